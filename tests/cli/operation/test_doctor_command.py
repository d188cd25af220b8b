"""The doctor names what is wrong, each with its remedy."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import threading
from collections import namedtuple
from datetime import UTC, datetime, timedelta

import pytest

from fedspan.cli import main
from fedspan.cli.operation import doctor_command
from fedspan.engines.members.enrolment import COORDINATOR
from fedspan.engines.nvflare.setup.kit import FederationPlan
from fedspan.engines.nvflare.setup.provision import provision
from fedspan.privacy import Ledger
from tests.owner.owner_desk import numbers


@pytest.fixture
def listening():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


@pytest.fixture
def kits(tmp_path, listening, monkeypatch):
    monkeypatch.setattr(doctor_command, "_ntp", lambda: True)
    plan = FederationPlan("clinics", "127.0.0.1", listening, ("north", "south"), {"alice": "analyst"})
    provision(plan, tmp_path / "kits")
    return tmp_path / "kits"


@pytest.fixture
def config(tmp_path):
    numbers().to_csv(tmp_path / "rows.csv", index=False)
    path = tmp_path / "site.toml"
    path.write_text('[site]\nname = "north"\n[data]\nfile = "rows.csv"\n[rules]\nlevel = "trusted"\n')
    return path


def findings(capsys, *command):
    code = main(["doctor", *map(str, command)])
    return code, capsys.readouterr().out


def test_a_healthy_site(kits, config, capsys):
    code, out = findings(capsys, kits / "north", "--config", config)
    assert code == 0, out
    for words in ("fedspan ", "valid until", "the clock says", "GiB left", "accepts connections", "40 rows"):
        assert words in out
    assert "no problems" in out


def test_a_user_and_a_coordinator(kits, capsys):
    assert findings(capsys, kits / "alice")[0] == 0
    assert findings(capsys, kits / COORDINATOR)[0] == 0


def every_problem_has_a_remedy(out):
    lines = [line for line in out.splitlines() if line.startswith("problem: ")]
    assert all(". Remedy: " in line for line in lines)
    return "\n".join(lines)


def test_a_coordinator_that_is_offline_or_unknown(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(doctor_command, "_ntp", lambda: None)
    for number, (server, words) in enumerate(
        [(("127.0.0.1", 1), "can't be reached"), (("no.such.name.invalid", 8002), "is not known here")]
    ):
        folder = tmp_path / str(number)
        provision(FederationPlan("clinics", *server, ("north", "south"), {"alice": "analyst"}), folder)
        code, out = findings(capsys, folder / "alice")
        assert code == 1
        assert words in every_problem_has_a_remedy(out)


def test_a_clock_that_is_wrong(kits, config, capsys, monkeypatch):
    monkeypatch.setattr(doctor_command, "_now", lambda: datetime(2001, 1, 1, tzinfo=UTC))
    code, out = findings(capsys, kits / "north", "--config", config)
    assert code == 1
    assert "before the certificate begins" in every_problem_has_a_remedy(out)
    monkeypatch.setattr(doctor_command, "_now", lambda: datetime.now(UTC) + timedelta(days=100000))
    assert findings(capsys, kits / "north", "--config", config)[0] == 1


def test_disk_clock_server_versions_and_keys(kits, config, capsys, monkeypatch):
    monkeypatch.setattr(doctor_command, "LEAST_DISK", 2**80)
    monkeypatch.setattr(doctor_command, "_ntp", lambda: False)
    monkeypatch.setattr(
        doctor_command, "version_of", lambda package: "not installed" if package == "nvflare" else "9.9"
    )
    next((kits / "north" / "startup").glob("*.key")).chmod(0o644)
    code, out = findings(capsys, kits / "north", "--config", config)
    problems = every_problem_has_a_remedy(out)
    for words in ("MiB left", "no time server", "pip install '.[nvflare]'", "chmod 600"):
        assert words in problems
    assert code == 1


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ('url = "mysql://r@h/d"\nquery = "SELECT 1"', "pip install '.[mysql]'"),
        ('file = "none.csv"', "does not exist"),
        ('url = "postgresql://r@127.0.0.1:1/d"\nquery = "SELECT 1"', "the data can't be read"),
    ],
)
def test_data_and_drivers(kits, config, capsys, monkeypatch, data, words):
    if "mysql" in data:
        monkeypatch.setattr("fedspan.datasets.sources.sql_source.find_spec", lambda module: None)
    config.write_text(config.read_text().replace('file = "rows.csv"', data))
    code, out = findings(capsys, kits / "north", "--config", config)
    assert code == 1
    assert words in every_problem_has_a_remedy(out)


def test_a_damaged_log(kits, config, capsys):
    (config.parent / "audit.jsonl").write_text('{"a": 1}\n{"b": 2}\n')
    (config.parent / "audit.jsonl").chmod(0o600)
    code, out = findings(capsys, kits / "north", "--config", config)
    assert code == 1
    assert "is damaged" in every_problem_has_a_remedy(out)


def test_health_of_a_site_that_does_not_run(kits, capsys):
    code, out = findings(capsys, kits / "north", "--health")
    assert code == 1
    assert "does not run" in out
    assert findings(capsys, kits / COORDINATOR, "--health")[0] == 0


def test_a_full_disk_of_its_own_under_the_runs_is_named(kits, config, capsys, monkeypatch):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as runs:
        if os.stat(runs).st_dev == os.stat(kits).st_dev:
            pytest.skip("this machine has one file system")
        (kits / "north" / "runs").symlink_to(runs)
        whole = shutil.disk_usage
        few = namedtuple("few", "total used free")(2**20, 2**20, 0)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: few if path.name == "runs" else whole(path))
        code, out = findings(capsys, kits / "north", "--config", config)
    assert code == 1
    assert "runs has 0 MiB left. Remedy: free at least 1 GiB" in out


def test_a_ledger_that_was_restored_is_to_be_confirmed(kits, config, capsys):
    config.write_text(config.read_text() + '[privacy]\nledger = "north.ledger"\nepsilon = 3.0\ndelta = 1e-6\n')
    ledger = Ledger(config.parent / "north.ledger", 3.0, 1e-6)
    assert findings(capsys, kits / "north", "--config", config)[0] == 0
    ledger.restored()
    code, out = findings(capsys, kits / "north", "--config", config)
    assert code == 1
    assert "fedspan site confirm-ledger site.toml" in every_problem_has_a_remedy(out)
    ledger.confirm()
    assert findings(capsys, kits / "north", "--config", config)[0] == 0


def test_behind_a_proxy_the_proxy_is_the_way(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(doctor_command, "_ntp", lambda: None)
    provision(
        FederationPlan("clinics", "no.such.name.invalid", 8002, ("north", "south"), {"alice": "analyst"}), tmp_path
    )

    def refuse(server):
        link, _ = server.accept()
        link.recv(1024)
        link.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")
        link.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        proxy = f"127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("https_proxy", f"http://{proxy}")
        thread = threading.Thread(target=refuse, args=(server,), daemon=True)
        thread.start()
        code, out = findings(capsys, tmp_path / "alice")
        thread.join(60)
    assert code == 1
    assert f"the proxy {proxy} answers 'HTTP/1.1 403 Forbidden'" in every_problem_has_a_remedy(out)
    assert "of the coordinator is not known" not in out
    monkeypatch.setattr(doctor_command, "trouble", lambda kit, seconds: None)
    code, out = findings(capsys, tmp_path / "alice")
    assert code == 0, out
    assert f"accepts connections through the proxy {proxy}" in out
