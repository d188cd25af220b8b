"""The page for the owner of a site: its files are read, its commands and its code run."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedspan.cli import main
from fedspan.owner import read_owned_site
from fedspan.owner.admission import OwnerRequest
from fedspan.owner.audit_log import OUTCOMES
from fedspan.owner.site_file import KEYS, read_site_file

PAGE = (Path(__file__).parents[2] / "docs" / "site-owner.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"age": rng.integers(10, 90, 200), "dose": rng.normal(size=200), "weight": rng.normal(70, 9, 200)}
    )
    frame["outcome"], frame["consent"], frame["patient"] = np.arange(200) % 2, True, [f"p{i}" for i in range(200)]
    frame.to_csv(tmp_path / "visits.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_whole_example_is_a_site(folder, capsys):
    example, _ = blocks("toml")
    (folder / "site.toml").write_text(example)
    check, log = (line for line in PAGE.splitlines() if line.startswith("fedspan site "))
    assert main(check.split()[1:]) == 0
    assert "no problems" in capsys.readouterr().out
    owned = read_owned_site("site.toml")
    assert owned.site.feature_names == ("age", "dose", "weight")
    owned.admission.release(OwnerRequest("alice", "analyst", "call", "r", 0, 0, "sums.sums", (), "ask"), 10)
    assert main(log.split()[1:]) == 0
    # every key of the log is explained
    entry = (folder / "audit.jsonl").read_text()
    keys = re.findall(r'"(\w+)": ', entry)
    table = PAGE[PAGE.index("| key |") : PAGE.index("There are no data in it")]
    assert sorted(keys) == sorted(set(re.findall(r"`(\w+)`", table)) - {"ask", *OUTCOMES})


def test_the_comments_of_the_example_are_settings_too(folder):
    example, _ = blocks("toml")
    known = set().union(*KEYS.values())
    shown = set(re.findall(r"^(?:# )?(\w+) = ", "".join(blocks("toml")), flags=re.MULTILINE))
    assert known - shown == {"password_file"}  # which stands beside password_env
    assert "password_file" in PAGE
    open_comments = (
        example.replace("# transforms", "transforms")
        .replace("# drop", "drop")
        .replace("columns = [", "# columns = [")
        .replace('level = "aggregate"', 'level = "trusted"')
    )
    (folder / "site.toml").write_text(open_comments.replace('"age >=', '"dose < 9 and age >='))
    path = folder / "site.toml"
    assert read_site_file(path).data.drop == ("patient",)


def test_the_database_example_is_read(folder, monkeypatch):
    monkeypatch.setenv("CLINIC_PASSWORD", "hush-hush")
    (folder / "site.toml").write_text(blocks("toml")[1])
    file = read_site_file(folder / "site.toml")
    assert file.data.source.label == "the query on PostgreSQL db.clinic.example/records"
    assert file.rules.least_rows == 10  # as the page says of the defaults
    assert file.rules.level == "aggregate"
    assert file.rules.steps.names == ("moments",)
    assert file.log.name == "audit.jsonl"


def test_the_code_runs(capsys):
    (code,) = blocks("python")
    exec(compile(code, "site-owner.md", "exec"), {})
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) > 25
    assert [line for line in shown if "eaves the site" not in line] == []
