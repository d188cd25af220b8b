"""``fedspan site log``: output and exit code."""

from __future__ import annotations

import pytest

from fedspan.cli import main
from fedspan.owner import read_owned_site

from .example_site import request, write_example


@pytest.fixture
def site(tmp_path):
    return write_example(tmp_path)


def logged(site, count=3):
    admission = read_owned_site(site).admission
    for number in range(count):
        admission.release(request(number), 100)
    admission.refused(request(0, "bob", "ourlab.step"), "refused", "no [bold]step")
    return site.parent / "audit.jsonl"


def test_a_log_is_summed_up(site, capsys):
    log = logged(site)
    assert main(["site", "log", str(log), "--refused"]) == 0
    shown = capsys.readouterr().out
    assert "4 lines, from 20" in shown
    assert "alice: 3 answered, 0 refused, 0 failed; 300 bytes left the site" in shown
    assert "bob: 0 answered, 1 refused, 0 failed; 0 bytes" in shown
    assert "bob  refused ourlab.step: no [bold]step" in shown
    assert main(["site", "log", str(log)]) == 0
    assert "ourlab.step" not in capsys.readouterr().out
    assert main(["site", "check", str(site)]) == 0


def test_an_altered_log_is_reported(site, capsys):
    log = logged(site)
    assert main(["site", "log", str(log)]) == 0
    last = capsys.readouterr().out.split()[-1]
    assert main(["site", "log", str(log), "--last", last]) == 0
    whole = log.read_text().splitlines(keepends=True)
    log.write_text("".join(whole[:-1]))
    assert main(["site", "log", str(log)]) == 0  # not noticed ...
    assert main(["site", "log", str(log), "--last", last]) == 1  # ... without an earlier last digest
    log.write_text("".join([whole[0], *whole[2:]]))
    capsys.readouterr()
    assert main(["site", "log", str(log)]) == 1
    assert "altered at entry 1" in capsys.readouterr().out
    assert main(["site", "log", str(site.parent / "gone")]) == 1
