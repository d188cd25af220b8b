"""The commands that speak to a real federation."""

from __future__ import annotations

import io
import os
import signal
import time
import zipfile

import pytest

import fedspan as fs
from fedspan.cli import main
from fedspan.engines.nvflare.client import status
from fedspan.engines.nvflare.client.study_client import submit_study, unzipped
from fedspan.engines.nvflare.setup.kit import read_kit
from fedspan.engines.remote.coordinator.remote_federation import RemoteFederation
from fedspan.engines.remote.messages.identity import Authority, Identity
from tests.engines.nvflare.conftest import SITES, processes_of, rows_of

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
    assert_report_anew(results, "nvflare")


def assert_report_anew(results, versions_of):
    (results / "report.html").unlink()
    assert main(["report", str(results)]) == 0
    page = (results / "report.html").read_text(encoding="utf-8")
    assert "Explained variance" in page
    assert "not read" not in page
    assert f"<dt>{versions_of}</dt>" in page


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


def test_status_says_who_is_online_with_what_and_that_versions_differ(here, capsys, monkeypatch):
    own = fs.__version__
    monkeypatch.setattr(status, "fedspan_version", lambda: "9.9.9")
    assert main(["federation", "status", str(here.kit("alice")), "--steps"]) == 0
    said = capsys.readouterr().out
    for name in SITES:
        line = next(line for line in said.splitlines() if line.strip().startswith(name))
        assert line.split()[:5] == [name, "online", own, str(len(rows_of(name))), "6"]
    assert f"north: runs fedspan {own}, and this is fedspan 9.9.9: use one version" in said
    assert "north: fedspan.sums.moments.local_sums" in said.splitlines()  # --steps
    assert main(["federation", "status", str(here.kit("bob"))]) == 0
    said = capsys.readouterr().out
    assert "local_sums" not in said
    assert said.count("online") >= len(SITES)
    assert "viewers see who is online" in said
    assert main(["federation", "status", str(here.kit("carol"))]) == 0  # an analyst whom no owner names
    said = capsys.readouterr().out
    for name in SITES:
        line = next(line for line in said.splitlines() if line.strip().startswith(name))
        assert line.split() == [name, "online", own]
        assert f"{name}: you are not among this site's users" in said


def study_at(kit, name, capsys):
    capsys.readouterr()
    assert main(["status", kit, name]) == 0
    return capsys.readouterr().out.strip()


def wait_for_study(kit, name, state, capsys, limit=180.0):
    until = time.monotonic() + limit
    while state not in (line := study_at(kit, name, capsys)):
        assert time.monotonic() < until, line
        time.sleep(1.0)
    return line


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_detached_study_survives_its_coordinator_and_is_fetched(here, way, tmp_path, capsys):
    (tmp_path / "slowly.toml").write_text(
        'seed = 3\n[model]\nname = "FedPCA"\nn_components = 2\nsolver = "fedpg"\nmax_rounds = 60\ntol = 1e-12\n'
        '[federation]\nquorum = "all"\nrun_deadline = 120.0\n'
    )
    kit = str(here.kit("alice"))
    assert main(["run", str(tmp_path / "slowly.toml"), "--kit", kit, "--detach", "--hours", "1"]) == 0
    name = capsys.readouterr().out.split()[1]
    assert main(["fetch", kit, name, "--out", str(tmp_path / "early")]) == 2
    assert f"study {name} is " in capsys.readouterr().err
    journal = here.kit("coordinator") / "studies" / name / "results" / "run-000" / "journal.bin"
    until = time.monotonic() + 120.0
    while not any(path.stat().st_size > 20_000 for path in journal.parent.glob("*")):
        assert time.monotonic() < until, list(journal.parent.glob("*"))
        time.sleep(0.05)
    here.kill("coordinator")
    here.start_coordinator()
    line = wait_for_study(kit, name, "done", capsys)
    assert "slowly" in line
    assert main(["fetch", kit, name, "--out", str(tmp_path / "results")]) == 0
    fetched = {path.name for path in (tmp_path / "results").iterdir()}
    assert {"model.fedspan", "report.html", "summary.json", "study.toml", "run-000"} <= fetched
    fed = fs.LocalFederation([fs.Site(site, rows_of(site)) for site in SITES], seed=3)
    embedded = fs.FedPCA(2, solver="fedpg", max_rounds=60, tol=1e-12).fit(fed)
    assert fs.load(tmp_path / "results" / "model.fedspan").components_.tobytes() == embedded.components_.tobytes()
    assert_report_anew(tmp_path / "results", "nvflare")


def test_a_detached_study_is_its_users_alone_and_says_why_it_failed(here, tmp_path, capsys):
    kit = str(here.kit("alice"))
    name = submit_study(read_kit(kit), "broken", "[model]\n", 1.0)  # past the check of 'fedspan run'
    assert "[model] name = None must be one of" in wait_for_study(kit, name, "failed", capsys)
    assert main(["fetch", str(here.kit("carol")), name, "--out", str(tmp_path / "x")]) == 2
    assert f"carol has no study '{name}' here" in capsys.readouterr().err
    with pytest.raises(fs.errors.InputError, match="'viewer', which may not run studies"):
        submit_study(read_kit(here.kit("bob")), "broken", "[model]\n", 1.0)


def process_of_study(here, name, other_than=None):
    """Wait for the process of a detached study, and return it."""
    until = time.monotonic() + 120.0
    while True:
        for process, command in processes_of(here.kit("coordinator")).items():
            if command.rstrip().endswith(name) and process != other_than:
                return process
        assert time.monotonic() < until, f"study {name} has no process"
        time.sleep(0.05)


def test_a_detached_study_whose_process_dies_is_started_anew_until_it_is_cancelled(here, capsys):
    kit = str(here.kit("alice"))
    text = '[model]\nname = "FedPCA"\nn_components = 2\nsolver = "fedpg"\nmax_rounds = 100000\ntol = 1e-300\n'
    name = submit_study(read_kit(kit), "endless", text, 1.0)
    word = here.kit("coordinator") / "studies" / name / "delegation"
    first = process_of_study(here, name)
    os.kill(first, signal.SIGKILL)
    second = process_of_study(here, name, other_than=first)
    assert word.exists()
    assert main(["cancel", str(here.kit("carol")), name]) == 2
    assert f"carol has no study '{name}' here" in capsys.readouterr().err
    assert main(["cancel", kit, name]) == 0
    assert "is cancelled, and the coordinator has deleted your word" in capsys.readouterr().out
    assert not word.exists()
    until = time.monotonic() + 90.0
    while second in processes_of(here.kit("coordinator")):
        assert time.monotonic() < until, "the study's process lives on"
        time.sleep(0.05)
    assert "endless  cancelled" in study_at(kit, name, capsys)
    assert not [c for c in processes_of(here.kit("coordinator")).values() if c.rstrip().endswith(name)]


@pytest.mark.parametrize("hours", [0.0, -1.0, 100_000.0, float("nan")])
def test_hours_are_above_none_and_at_most_thirty_days(here, hours):
    with pytest.raises(fs.errors.InputError, match=rf"hours={hours:g} must be above 0 and at most 720"):
        submit_study(read_kit(here.kit("alice")), "long", "[model]\n", hours)


def test_the_coordinator_may_ask_nothing_in_its_own_name(here, way):
    runner = here.kit("coordinator") / "runner"
    fed = RemoteFederation(way, Identity.from_kit(runner), Authority.from_kit(runner))
    with pytest.raises(fs.errors.QuorumError) as refused:
        fs.FedPCA(2).fit(fed)
    assert all("'runner', which may not run anything" in reason for reason in refused.value.failed.values())


def test_detach_needs_a_kit_and_brings_no_results(tmp_path, capsys):
    (tmp_path / "study.toml").write_text('[data]\nsites = {}\n[model]\nname = "FedPCA"\nn_components = 2\n')
    assert main(["run", str(tmp_path / "study.toml"), "--detach"]) == 2
    assert "--detach needs --kit" in capsys.readouterr().err
    (tmp_path / "study.toml").write_text('[model]\nname = "FedPCA"\nn_components = 2\n')
    assert main(["run", str(tmp_path / "study.toml"), "--kit", "x", "--detach", "--out", "y"]) == 2
    assert "--detach goes without --out" in capsys.readouterr().err


def test_an_archive_that_leaves_its_folder_is_refused(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("../outside", "x")
    with pytest.raises(fs.errors.InputError, match="names a file outside its folder"):
        unzipped(buffer.getvalue(), tmp_path / "in")
    assert not (tmp_path / "outside").exists()
