"""``fedspan site check``: output and exit code."""

from __future__ import annotations

import pytest

from fedspan.cli import main
from fedspan.federation.site.noise_query import NoiseQuery
from fedspan.owner import read_owned_site
from fedspan.privacy import Ledger

from .example_site import SITE, request, write_example


@pytest.fixture
def site(tmp_path):
    return write_example(tmp_path)


def check(path, capsys):
    code = main(["site", "check", str(path)])
    return code, capsys.readouterr().out


def test_a_valid_site_is_described_and_nothing_is_written(site, capsys):
    code, shown = check(site, capsys)
    assert code == 0
    for words in (
        "site clinic, of",
        "data: 49 rows of",
        "where age > 20",
        "users: alice",
        "rows: at least 10, or nothing is answered",
        "replies: 1,000,000 bytes",
        "budget: epsilon=2 at delta=1e-05, in a new ledger",
        "audit.jsonl, a new one",
        "pca: all",
        "tables: not category_names",
        "no problems",
    ):
        assert words in shown
    words = [line.split() for line in shown.splitlines()]
    assert ["[bold]dose", "number", "float64", "6", "number"] in words
    assert ["outcome", "(label)", "integer", "int64", "0", "-"] in words
    assert "Secretward" not in shown  # no values
    assert sorted(path.name for path in site.parent.iterdir()) == ["rows.csv", "site.toml"]


def test_all_problems_of_the_file_are_reported(site, capsys):
    site.write_text(SITE.replace("rows.csv", "gone.csv").replace("2.0", "-2.0").replace('["alice"]', '"alice"'))
    code, shown = check(site, capsys)
    assert code == 1
    assert shown.count("problem: ") == 3
    assert "3 problems" in shown
    assert "gone.csv does not exist" in shown
    assert "users must be a list" in shown
    nowhere = site.with_name("nowhere.toml")
    sentence = f"problem: {nowhere} cannot be read: No such file or directory; name a TOML file\n1 problem\n"
    assert check(nowhere, capsys) == (1, sentence)


def test_all_problems_of_data_ledger_and_log_are_reported(site, capsys):
    text = SITE.replace('ward = "text"', 'ward = "number"\nheight = "number"').replace("age > 20", "age > 55")
    site.write_text(text.replace("largest_reply", "least_rows"))
    (site.parent / "clinic.ledger").write_text("spoilt\n")
    (site.parent / "clinic.ledger").chmod(0o600)
    (site.parent / "audit.jsonl").touch()
    (site.parent / "audit.jsonl").chmod(0o644)
    code, shown = check(site, capsys)
    assert code == 1
    for words in (
        "column 'ward' holds text, and the schema says number",
        "column 'height' (number) of the schema is missing",
        "fewer rows than its least_rows (1000000)",
        "clinic.ledger",
        "can be read by others",
    ):
        assert words in shown
    assert "5 problems" in shown


def test_a_check_writes_nothing_at_all(site, capsys):
    read_owned_site(site).admission.refused(request(), "refused", "no")
    for name in ("clinic.ledger", "audit.jsonl"):  # as a crash leaves them: with a last line that was cut
        with (site.parent / name).open("ab") as file:
            file.write(b'{"kind": "charge", "wh')
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in site.parent.iterdir()}
    _, shown = check(site, capsys)
    assert "budget: epsilon=2 at delta=1e-05, 2 left" in shown
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in site.parent.iterdir()} == before


def test_a_ledger_is_read_and_a_spent_one_is_a_problem(site, capsys):

    ledger = Ledger(site.parent / "clinic.ledger", 2.0, 1e-5)
    ledger.key(NoiseQuery("r", "step", b"1"), mu2=0.1)
    code, shown = check(site, capsys)
    assert code == 0
    assert f"budget: epsilon=2 at delta=1e-05, {2 - ledger.spent:.4g} left" in shown
    site.write_text(SITE.replace("epsilon = 2.0", "epsilon = 0.01"))
    code, shown = check(site, capsys)
    assert code == 1
    assert "the ledger has epsilon=2 at delta=1e-05, and will get the file's" in shown
    assert "is spent: every call that would cost something is refused" in shown
    assert Ledger(site.parent / "clinic.ledger").epsilon == 2.0  # a check changes nothing
    (site.parent / "clinic.ledger").unlink()
    site.write_text(SITE.replace("epsilon = 2.0\ndelta = 1e-5", ""))
    assert "does not exist: a new one needs epsilon and delta" in check(site, capsys)[1]


def test_missing_folders_are_reported(site, capsys):
    site.write_text(SITE.replace("clinic.ledger", "no/clinic.ledger") + '\n[log]\nfile = "nor/audit.jsonl"\n')
    code, shown = check(site, capsys)
    assert code == 1
    assert "the ledger cannot be made: the folder" in shown
    assert "the audit log cannot be made: the folder" in shown


def test_allowed_steps_follow_the_rules(site, capsys):
    site.write_text(SITE.replace('steps = ["summaries"]', 'steps = ["sums", "pca.gram"]'))
    shown = check(site, capsys)[1]
    assert "  sums: all\n" in shown
    assert "  pca: not axes, basis" in shown
    assert "  maps: none\n" in shown
    site.write_text(SITE.replace('steps = ["summaries"]', 'steps = ["fedspan"]\nsums_only = true'))
    shown = check(site, capsys)[1]
    assert "  maps: all\n" in shown
    assert "with sums_only, only by secure sums" in shown
