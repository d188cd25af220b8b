"""How tests read the state of a study and its results."""

from __future__ import annotations

import json

from fedspan.cli import main
from tests.engines.nvflare.conftest import wait_until


def assert_report_again(results, versions_of):
    (results / "report.html").unlink()
    assert main(["report", str(results)]) == 0
    page = (results / "report.html").read_text(encoding="utf-8")
    assert "Explained variance" in page
    assert "not read" not in page
    assert f"<dt>{versions_of}</dt>" in page


def study_at(kit, name, capsys):
    """Return what ``fedspan status`` prints about a study."""
    capsys.readouterr()
    assert main(["status", kit, name]) == 0
    return capsys.readouterr().out.strip()


def state_of(deployment, name):
    return json.loads((deployment.kit("coordinator") / "studies" / name / "about.json").read_text())["state"]


def wait_for_study(deployment, name, state):
    """Wait until a study is in a state, by the coordinator's own file: a request takes a login each time."""
    wait_until(lambda: state_of(deployment, name) == state, f"study {name} is not {state}", limit=180.0)
