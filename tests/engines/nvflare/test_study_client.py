"""Commands for a real federation."""

from __future__ import annotations

import io
import os
import signal
import stat
import zipfile

import pytest

import fedspan as fs
from fedspan.cli import main
from fedspan.engines.nvflare.client import connect
from fedspan.engines.nvflare.client.study_client import submit_study, unzip
from fedspan.engines.remote.coordinator import site_directory
from fedspan.engines.remote.coordinator.remote_federation import RemoteFederation
from fedspan.engines.remote.messages.identity import Authority, Identity
from fedspan.errors import InputError
from tests.engines.nvflare.conftest import SITES, processes_of, rows_of, wait_until
from tests.engines.nvflare.studies import assert_report_again, study_at, wait_for_study

pytestmark = pytest.mark.slow

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


def test_a_study_runs_at_the_sites_and_gives_the_embedded_bytes(deployment, tmp_path, capsys):
    (tmp_path / "study.toml").write_text(STUDY)
    results = tmp_path / "results"
    assert (
        main(["run", str(tmp_path / "study.toml"), "--kit", str(deployment.kit("alice")), "--out", str(results)]) == 0
    )
    assert "FedPCA" in capsys.readouterr().out
    assert {"model.fedspan", "report.html", "summary.json", "study.toml", "run-001"} <= {
        p.name for p in results.iterdir()
    }
    fed = fs.LocalFederation([fs.Site(name, rows_of(name)) for name in SITES], seed=4)
    embedded = fs.FedPCA(2).fit(fs.FedStandardScaler().fit(fed).transform(fed))
    assert fs.load(results / "model.fedspan").components_.tobytes() == embedded.components_.tobytes()
    assert_report_again(results, "nvflare")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[data]\nfile = "x.csv"\n', "the data are at the sites"),
        ("[federation]\nn_jobs = 2\n", "'n_jobs' is not a known key"),
    ],
)
def test_a_study_for_a_kit_names_no_data_and_no_jobs(tmp_path, capsys, text, why):
    (tmp_path / "study.toml").write_text(f'[model]\nname = "FedPCA"\nn_components = 2\n{text}')
    assert main(["run", str(tmp_path / "study.toml"), "--kit", "nowhere"]) == 2
    assert why in capsys.readouterr().err


def test_status_shows_online_sites_and_other_versions(deployment, connection, capsys, monkeypatch):
    class Shared:
        """The connection that is open already, under any user's name: opening another takes ten seconds."""

        def __init__(self, kit):
            assert kit in map(deployment.kit, ("alice", "bob", "carol"))

        def __getattr__(self, name):
            return getattr(connection, name)

        def close(self): ...

    own = fs.__version__
    monkeypatch.setattr(site_directory, "fedspan_version", lambda: "9.9.9")
    monkeypatch.setattr(connect, "NVFlareTransport", Shared)
    assert main(["federation", "status", str(deployment.kit("alice")), "--steps"]) == 0
    shown = capsys.readouterr().out
    for name in SITES:
        line = next(line for line in shown.splitlines() if line.strip().startswith(name))
        assert line.split()[:5] == [name, "online", own, str(len(rows_of(name))), "6"]
    assert f"north: site 'north' runs fedspan {own}, and this is fedspan 9.9.9: use one version" in shown
    assert "north: sums.sums" in shown.splitlines()  # --steps
    assert main(["federation", "status", str(deployment.kit("bob"))]) == 0
    shown = capsys.readouterr().out
    assert "sums.sums" not in shown
    assert shown.count("online") >= len(SITES)
    assert "viewers see which sites are online" in shown
    assert main(["federation", "status", str(deployment.kit("carol"))]) == 0  # an analyst that no owner lists
    shown = capsys.readouterr().out
    for name in SITES:
        line = next(line for line in shown.splitlines() if line.strip().startswith(name))
        assert line.split() == [name, "online", own]
        assert f"{name}: you are not among this site's users" in shown


def test_a_detached_study_is_its_users_alone_and_reports_why_it_failed(deployment, tmp_path, capsys):
    kit = str(deployment.kit("alice"))
    name = submit_study(kit, "broken", "[model]\n", 1.0)  # past the check of 'fedspan run'
    wait_for_study(deployment, name, "failed")
    assert "the name is missing, and must be one of" in study_at(kit, name, capsys)
    assert main(["fetch", str(deployment.kit("carol")), name, "--out", str(tmp_path / "x")]) == 2
    assert f"carol has no study '{name}' here" in capsys.readouterr().err
    with pytest.raises(fs.errors.InputError, match="'viewer', which may not run studies"):
        submit_study(deployment.kit("bob"), "broken", "[model]\n", 1.0)


def process_of_study(deployment, name, other_than=None):
    """Wait for the process of a detached study, and return it."""

    def found():
        commands = processes_of(deployment.kit("coordinator")).items()
        return [process for process, line in commands if line.rstrip().endswith(name) and process != other_than]

    return wait_until(found, f"study {name} has no process")[0]


def test_a_detached_study_whose_process_dies_is_restarted_until_it_is_cancelled(deployment, capsys):
    kit = str(deployment.kit("alice"))
    text = '[model]\nname = "FedPCA"\nn_components = 2\nsolver = "fedpg"\nmax_rounds = 100000\ntol = 1e-300\n'
    name = submit_study(kit, "endless", text, 1.0)
    delegation = deployment.kit("coordinator") / "studies" / name / "delegation"
    first = process_of_study(deployment, name)
    os.kill(first, signal.SIGKILL)
    second = process_of_study(deployment, name, other_than=first)
    assert delegation.exists()
    assert main(["cancel", str(deployment.kit("carol")), name]) == 2
    assert f"carol has no study '{name}' here" in capsys.readouterr().err
    assert main(["cancel", kit, name]) == 0
    assert "is cancelled, and the coordinator has deleted its authorisation" in capsys.readouterr().out
    assert not delegation.exists()
    wait_until(lambda: second not in processes_of(deployment.kit("coordinator")), "the study's process lives on")
    assert "endless  cancelled" in study_at(kit, name, capsys)
    assert not [c for c in processes_of(deployment.kit("coordinator")).values() if c.rstrip().endswith(name)]


@pytest.mark.parametrize("hours", [0.0, -1.0, 100_000.0, float("nan")])
def test_hours_are_above_none_and_at_most_thirty_days(deployment, hours):
    with pytest.raises(fs.errors.InputError, match=rf"hours={hours:g} must be above 0 and at most 720"):
        submit_study(deployment.kit("alice"), "long", "[model]\n", hours)


def test_the_coordinator_may_run_nothing_in_its_own_name(deployment, connection):
    runner = deployment.kit("coordinator") / "runner"
    fed = RemoteFederation(connection, Identity.from_kit(runner), Authority.from_kit(runner))
    with pytest.raises(fs.errors.QuorumError) as refused:
        fs.FedPCA(2).fit(fed)
    assert all("'runner', which may not run steps" in reason for reason in refused.value.failed.values())


def test_detach_needs_a_kit_and_brings_no_results(tmp_path, capsys):
    (tmp_path / "study.toml").write_text('[data]\nsites = {}\n[model]\nname = "FedPCA"\nn_components = 2\n')
    assert main(["run", str(tmp_path / "study.toml"), "--detach"]) == 2
    assert "--detach needs --kit" in capsys.readouterr().err
    (tmp_path / "study.toml").write_text('[model]\nname = "FedPCA"\nn_components = 2\n')
    assert main(["run", str(tmp_path / "study.toml"), "--kit", "x", "--detach", "--out", "y"]) == 2
    assert "--detach goes without --out" in capsys.readouterr().err


def test_an_archive_writes_no_file_outside_its_folder(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("../outside", "x")
    unzip(buffer.getvalue(), tmp_path / "in")
    assert not (tmp_path / "outside").exists()
    assert stat.S_IMODE((tmp_path / "in" / "outside").stat().st_mode) == 0o600


def test_an_archive_that_unfolds_too_far_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("fedspan.engines.nvflare.client.study_client._LARGEST_RESULTS", 10**6)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(10**6 + 1))
    with pytest.raises(InputError, match="the results have 1,000,001 bytes"):
        unzip(buffer.getvalue(), tmp_path / "in")
    assert not any((tmp_path / "in").iterdir())
