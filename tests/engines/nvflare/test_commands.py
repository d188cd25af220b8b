"""The commands that speak to a real federation."""

from __future__ import annotations

import pytest

import fedspan as fs
from fedspan.cli import main
from tests.engines.nvflare.conftest import SITES, rows_of

pytestmark = pytest.mark.xdist_group("nvflare")

STUDY = """
seed = 4

[[preprocess]]
name = "FedStandardScaler"

[model]
name = "FedPCA"
n_components = 2

[federation]
quorum = "all"
run_deadline = 60.0
"""


def test_a_study_runs_at_the_sites_and_gives_the_embedded_bytes(here, tmp_path, capsys):
    (tmp_path / "study.toml").write_text(STUDY)
    results = tmp_path / "results"
    assert main(["run", str(tmp_path / "study.toml"), "--kit", str(here.kit("alice")), "--out", str(results)]) == 0
    assert "FedPCA" in capsys.readouterr().out
    assert {"model.fedspan", "report.html", "summary.json", "study.toml", "run-001"} <= {
        p.name for p in results.iterdir()
    }
    fed = fs.LocalFederation([fs.Site(name, rows_of(name)) for name in SITES], seed=4)
    embedded = fs.FedPCA(2).fit(fs.FedStandardScaler().fit(fed).transform(fed))
    assert fs.load(results / "model.fedspan").components_.tobytes() == embedded.components_.tobytes()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[data]\nfile = "x.csv"\n', "the data are where the sites have them"),
        ("[federation]\nn_jobs = 2\n", "'n_jobs' is not a known key"),
    ],
)
def test_a_study_for_a_kit_names_no_data_and_no_jobs(tmp_path, capsys, text, said):
    (tmp_path / "study.toml").write_text(f'[model]\nname = "FedPCA"\nn_components = 2\n{text}')
    assert main(["run", str(tmp_path / "study.toml"), "--kit", "nowhere"]) == 2
    assert said in capsys.readouterr().err


def test_status_says_who_is_online_with_what(here, capsys):
    assert main(["federation", "status", str(here.kit("alice"))]) == 0
    said = capsys.readouterr().out
    for name in SITES:
        line = next(line for line in said.splitlines() if line.strip().startswith(name))
        assert line.split()[:5] == [name, "online", fs.__version__, str(len(rows_of(name))), "6"]
    assert main(["federation", "status", str(here.kit("bob"))]) == 0
    said = capsys.readouterr().out
    assert said.count("online") >= len(SITES)
    assert "viewers see who is online" in said


def test_status_says_that_versions_differ(here, capsys, monkeypatch):
    monkeypatch.setattr(fs, "__version__", "9.9.9")
    assert main(["federation", "status", str(here.kit("alice"))]) == 0
    assert "north: runs fedspan 0.1.0, and this is fedspan 9.9.9: use one version" in capsys.readouterr().out
