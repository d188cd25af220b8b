"""Backups: what is restored works as before, and a restored ledger refuses until its owner confirms it."""

from __future__ import annotations

import io
import shutil
import tarfile

import pytest

from fedspan.cli import main
from fedspan.engines.members.enrolment import COORDINATOR
from fedspan.engines.nvflare.setup.kit import FederationPlan, read_kit
from fedspan.engines.nvflare.setup.provision import provision
from fedspan.errors import LedgerError
from fedspan.federation.site.noise_query import NoiseQuery
from fedspan.owner import read_owned_site
from fedspan.owner.admission import OwnerRequest
from fedspan.privacy import Ledger
from tests.owner.owner_desk import numbers

RULES = '[rules]\nlevel = "trusted"\n[privacy]\nledger = "clinic.ledger"\nepsilon = 4.0\ndelta = 1e-6\n'


@pytest.fixture
def kits(tmp_path):
    plan = FederationPlan("clinics", "127.0.0.1", 8002, ("north", "south"), {"alice": "analyst"})
    provision(plan, tmp_path / "kits")
    return tmp_path / "kits"


@pytest.fixture
def config(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    numbers().to_csv(home / "rows.csv", index=False)
    (home / "site.toml").write_text(f'[site]\nname = "north"\n[data]\nfile = "rows.csv"\n{RULES}')
    return home / "site.toml"


def query(number):
    return NoiseQuery("FedPCA#0 x", "pca.noisy_gram", bytes([number]) * 16)


def used(config, charges=2):
    """Open the site, charge its ledger, and log a request."""
    owned = read_owned_site(config)
    for number in range(charges):
        owned.ledger.key(query(number), mu2=0.02)
    owned.admission.release(OwnerRequest("alice", "analyst", "call", "r", 0, 0, "sums.sums", (), "ask"), 10)
    return owned


def test_a_site_is_restored_and_its_ledger_waits_for_the_owner(kits, config, tmp_path, capsys):
    used(config)
    file, folder = tmp_path / "north.tar.gz", tmp_path / "restored"
    assert main(["backup", str(kits / "north"), "--config", str(config), "--to", str(file)]) == 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert main(["restore", str(file), "--to", str(folder)]) == 0
    assert "refuses every charge" in capsys.readouterr().out
    assert read_kit(folder / "kit").name == "north"
    assert (folder / "owner" / "audit.jsonl").read_bytes() == (config.parent / "audit.jsonl").read_bytes()
    for path in folder.rglob("*"):
        assert not path.stat().st_mode & 0o077

    shutil.copy(config.parent / "rows.csv", folder / "owner")
    owned = read_owned_site(folder / "owner" / "site.toml")
    with pytest.raises(LedgerError, match="was restored from a backup"):
        owned.ledger.key(query(0), mu2=0.02)  # also what was charged before
    assert main(["site", "confirm-ledger", str(folder / "owner" / "site.toml")]) == 0
    owned.ledger.key(query(9), mu2=0.02)
    assert len(owned.ledger.charges) == 3


def test_an_older_copy_of_a_ledger_is_noticed_by_the_log(config):
    used(config)
    ledger = config.parent / "clinic.ledger"
    old = ledger.read_bytes()
    used(config, 6)
    ledger.write_bytes(old)
    owned = read_owned_site(config)
    with pytest.raises(LedgerError, match="an older copy"):
        owned.ledger.key(query(30), mu2=0.02)
    assert main(["site", "confirm-ledger", str(config)]) == 0
    read_owned_site(config).ledger.key(query(30), mu2=0.02)


def test_a_larger_budget_is_no_older_copy(config):
    used(config)
    config.write_text(config.read_text().replace("epsilon = 4.0", "epsilon = 9.0"))
    read_owned_site(config).ledger.key(query(30), mu2=0.02)


def test_a_coordinator_is_restored(kits, tmp_path):
    study = kits / COORDINATOR / "studies" / "0123456789ab"
    study.mkdir(parents=True)
    (study / "about.json").write_text("{}")
    file = tmp_path / "c.tar.gz"
    assert main(["backup", str(kits / COORDINATOR), "--to", str(file)]) == 0
    assert main(["restore", str(file), "--to", str(tmp_path / "new")]) == 0
    restored = tmp_path / "new" / "kit"
    assert (restored / "studies" / "0123456789ab" / "about.json").read_text() == "{}"
    assert read_kit(restored).kind == COORDINATOR


def test_what_is_refused(kits, config, tmp_path, capsys):
    file = tmp_path / "x.tar.gz"
    assert main(["backup", str(kits / "north"), "--to", str(file)]) == 2
    file.write_bytes(b"")
    assert main(["backup", str(kits / "north"), "--config", str(config), "--to", str(file)]) == 2
    assert main(["restore", str(file), "--to", str(tmp_path / "new")]) == 2
    assert main(["restore", str(config), "--to", str(tmp_path / "new")]) == 2
    assert main(["restore", str(config), "--to", str(config.parent)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 5
    assert all(line.startswith("fedspan: ") for line in lines)


@pytest.mark.parametrize("name", ["../evil", "kit/../../evil", "/etc/evil", "other/x"])
def test_a_hostile_backup_writes_nothing_elsewhere(tmp_path, name, capsys):
    file = tmp_path / "evil.tar.gz"
    with tarfile.open(file, "w:gz") as tar:
        head = (
            b'{"kind": "site", "name": "n", "federation": "f", "version": "0", "when": "", "config": "", "ledger": ""}'
        )
        for one, body in (("fedspan-backup.json", head), (name, b"x")):
            member = tarfile.TarInfo(one)
            member.size = len(body)
            tar.addfile(member, io.BytesIO(body))
    assert main(["restore", str(file), "--to", str(tmp_path / "a" / "new")]) == 2
    assert "does not belong" in capsys.readouterr().err
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize(
    "head",
    [
        b'{"kind": "site", "name": "n", "federation": "f", "version": "0", "when": "", "config": "", "ledger": %s}',
        b"[" * 100_000,
        b"[]",
        b"{}",
    ],
)
def test_a_hostile_head_of_a_backup_touches_no_other_ledger(tmp_path, head, capsys):
    ledger = Ledger(tmp_path / "x.ledger", 2.0, 1e-6)
    head = head % f'"{tmp_path}/x.ledger"'.encode() if b"%s" in head else head
    with tarfile.open(tmp_path / "evil.tar.gz", "w:gz") as tar:
        member = tarfile.TarInfo("fedspan-backup.json")
        member.size = len(head)
        tar.addfile(member, io.BytesIO(head))
    assert main(["restore", str(tmp_path / "evil.tar.gz"), "--to", str(tmp_path / "new")]) == 2
    assert capsys.readouterr().err.startswith("fedspan: ")
    ledger.key(query(0), mu2=0.01)  # it was not marked as restored


def test_a_ledger_without_doubt_charges(tmp_path):
    ledger = Ledger(tmp_path / "x.ledger", 2.0, 1e-6)
    ledger.key(query(0), mu2=0.01)
    ledger.must_have_spent(1.0e9, "2026-01-01T00:00:00+00:00")
    ledger.key(query(1), mu2=0.01)
