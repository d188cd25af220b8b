"""A detached study runs at the coordinator: it reads none of the coordinator's files."""

from __future__ import annotations

import sys

import pytest

from fedspan.cli.study import detached_study
from fedspan.cli.study.study_file import read_study
from fedspan.errors import InputError

STUDY = """
[model]
name = "FedPCADetector"
[report]
judge = "{file}"
label = "y"
normal = "0"
"""


@pytest.mark.parametrize("file", ["secret.csv", "/etc/passwd", "../../startup/server.key"])
def test_a_detached_study_names_no_file(tmp_path, monkeypatch, capsys, file):
    folder = tmp_path / "studies" / "abc"
    folder.mkdir(parents=True)
    (folder / "secret.csv").write_text("x,y\n17,0\n")
    (folder / "study.toml").write_text(STUDY.format(file=file))
    monkeypatch.setattr(detached_study, "die_with_parent", lambda: None)
    monkeypatch.setattr(detached_study, "run_study", lambda *args, **options: pytest.fail("the study ran"))
    monkeypatch.setattr(sys, "argv", ["detached_study", str(tmp_path), "abc"])
    assert detached_study.main() == 2
    assert "goes without [report] judge" in capsys.readouterr().out
    with pytest.raises(InputError, match=r"goes without \[report\] judge"):
        read_study(folder / "study.toml", at_sites=True, detached=True)


def test_a_study_that_runs_from_its_users_machine_may_name_one(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY.format(file="rows.csv"))
    (tmp_path / "rows.csv").write_text("x,y\n17,0\n")
    assert read_study(tmp_path / "study.toml", at_sites=True).report.judge.file == tmp_path / "rows.csv"
