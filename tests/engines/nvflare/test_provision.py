"""Kits of a federation: certificates, hardening, later participants. Nothing here is started."""

from __future__ import annotations

import json
import re
import stat

import pytest

from fedspan.cli import main
from fedspan.engines.nvflare.setup.kit import read_kit
from fedspan.engines.remote.messages.identity import Authority, Identity
from fedspan.errors import InputError, MessageError
from fedspan.federation import SecureSum


def write_plan(path, sites, users, server="127.0.0.1:8002"):
    roles = "".join(f'{user} = "{role}"\n' for user, role in users.items())
    path.write_text(f'name = "lab"\nserver = "{server}"\nsites = {json.dumps(sites)}\n[users]\n{roles}')
    return path


@pytest.fixture(scope="module")
def kits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kits")
    plan = write_plan(folder / "fed.toml", ["north", "south"], {"alice": "analyst", "bob": "viewer"})
    assert main(["federation", "init", str(plan), "--out", str(folder / "out")]) == 0
    return folder / "out"


def test_one_kit_each_with_certificates_of_one_authority(kits):
    assert {path.name for path in kits.iterdir()} == {"coordinator", "north", "south", "alice", "bob", "authority"}
    authority = Authority.from_kit(kits / "north")
    assert authority.federation == "lab"
    for name, role in {"north": "", "south": "", "alice": "analyst", "bob": "viewer", "coordinator": ""}.items():
        identity = Identity.from_kit(kits / name)
        assert (identity.name, identity.role) == (name, role)
        assert authority.verify(identity.certificate, identity.sign(b"message"), b"message") == identity.participant
    kit = read_kit(kits / "alice")
    assert (kit.kind, kit.name, kit.server, kit.sites) == ("user", "alice", "127.0.0.1:8002", ("north", "south"))


def test_kits_are_hardened(kits):
    for name in ("coordinator", "north", "south"):
        rights = json.loads((kits / name / "local" / "authorization.json").read_text())["permissions"]
        assert set(rights) == {"analyst", "runner", "viewer"}
        assert {value for right in rights.values() for what, value in right.items() if what != "view"} == {"none"}
        assert {"byoc", "shell_commands", "operate", "submit_job", "app_command"} < set(rights["analyst"])
        resources = json.loads((kits / name / "local" / "resources.json").read_text())
        assert resources["class_list_enforcement_mode"] == "enforce"
        assert resources["class_allow_list"] == []
    text = (kits / "coordinator" / "local" / "resources.json").read_text()
    assert str(kits / "coordinator" / "store" / "jobs") in text
    assert not re.search(r'"/tmp/nvflare', text)
    assert not list(kits.rglob("*.sh"))


def test_private_files_are_private_and_no_key_stays_behind(kits):
    for path in kits.rglob("*"):
        inside = path.relative_to(kits).parts
        if len(inside) > 1 and path.is_file():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE((kits / "authority").stat().st_mode) == 0o700
    kept = json.loads((kits / "authority" / "lab" / "cert.json").read_text())
    assert set(kept) == {"root_cert", "root_pri_key"}


def test_init_reports_when_certificates_end_and_overwrites_nothing(kits, tmp_path, capsys):
    plan = write_plan(tmp_path / "fed.toml", ["north"], {"alice": "analyst"})
    out = tmp_path / "out"
    assert main(["federation", "init", str(plan), "--out", str(out)]) == 0
    assert re.search(r"certificates end on \d{4}-\d\d-\d\d, in 3(59|60) days", capsys.readouterr().out)
    key = (out / "north" / "startup" / "client.key").read_bytes()
    assert main(["federation", "init", str(plan), "--out", str(out)]) == 2
    assert "has the kits of all participants already" in capsys.readouterr().err
    assert (out / "north" / "startup" / "client.key").read_bytes() == key


def test_participants_are_added_with_the_same_authority(tmp_path, capsys):
    out = tmp_path / "out"
    main(
        ["federation", "init", str(write_plan(tmp_path / "a.toml", ["north"], {"alice": "analyst"})), "--out", str(out)]
    )
    key = (out / "north" / "startup" / "client.key").read_bytes()
    more = write_plan(tmp_path / "b.toml", ["north", "west"], {"alice": "analyst", "carol": "viewer"})
    assert main(["federation", "init", str(more), "--out", str(out)]) == 0
    assert "kept as they are: coordinator, north, alice" in capsys.readouterr().out
    assert (out / "north" / "startup" / "client.key").read_bytes() == key
    west = Identity.from_kit(out / "west")
    assert Authority.from_kit(out / "north").verify(west.certificate, west.sign(b"x"), b"x").name == "west"
    assert read_kit(out / "alice").sites == ("north", "west")


def test_the_schema_is_in_every_kit_and_may_change(tmp_path, capsys):
    plan, out = write_plan(tmp_path / "a.toml", ["north"], {"alice": "analyst"}), tmp_path / "out"
    without = plan.read_text()
    plan.write_text(without + '[schema]\ndose = "number"\nage = "integer"\n')
    init = ["federation", "init", str(plan), "--out", str(out)]
    assert main(init) == 0
    for name in ("coordinator", "north", "alice", "coordinator/runner"):
        assert list(read_kit(out / name).schema.items()) == [("dose", "number"), ("age", "integer")]
    assert main(init) == 2
    plan.write_text(without + '[schema]\nage = "integer"\ndose = "number"\n')
    capsys.readouterr()
    assert main(init) == 0  # the order counts
    assert "a new fedspan.json, to be handed to its owner: coordinator, north, alice" in capsys.readouterr().out
    assert list(read_kit(out / "north").schema) == ["age", "dose"]
    plan.write_text(without)
    assert main(init) == 0
    assert read_kit(out / "north").schema is None


def test_the_settings_of_secure_sums_are_signed_in_every_kit(tmp_path, capsys):
    plan, out = write_plan(tmp_path / "a.toml", ["a", "b", "c"], {"alice": "analyst"}), tmp_path / "out"
    without = plan.read_text()
    init = ["federation", "init", str(plan), "--out", str(out)]
    assert main(init) == 0
    assert Authority.from_kit(out / "a").secure_sum == SecureSum()
    plan.write_text(without + "[secure_sum]\nthreshold = 0.9\nleast = 3\n")
    capsys.readouterr()
    assert main(init) == 0
    assert "a new fedspan.json, to be handed to its owner: coordinator, a, b, c, alice" in capsys.readouterr().out
    for name in ("coordinator", "a", "alice", "coordinator/runner"):
        assert Authority.from_kit(out / name).secure_sum == SecureSum(threshold=0.9, least=3)
    assert main(init) == 2  # nothing has changed
    file = out / "a" / "fedspan.json"
    raw = json.loads(file.read_text())
    settings = raw["secure_sum"]
    for wrong in (settings | {"least": 2}, {"least": 2}, settings | {"signature": "00"}, settings | {"x": 1}, 3):
        file.write_text(json.dumps(raw | {"secure_sum": wrong}))
        with pytest.raises(InputError, match="not those that the federation's root has signed"):
            Authority.from_kit(out / "a")


def test_a_kit_with_an_invalid_schema_is_refused(kits, tmp_path):
    (tmp_path / "kit").mkdir()
    raw = json.loads((kits / "north" / "fedspan.json").read_text())
    (tmp_path / "kit" / "fedspan.json").write_text(json.dumps(raw | {"schema": {"age": 3}}))
    with pytest.raises(InputError, match="age = 3 must be one of"):
        read_kit(tmp_path / "kit")
    (tmp_path / "kit" / "fedspan.json").write_text(json.dumps(raw | {"schema": "age"}))
    with pytest.raises(InputError, match="is damaged"):
        read_kit(tmp_path / "kit")


def test_a_changed_address_or_role_or_a_used_folder_is_refused(tmp_path, capsys):
    out = tmp_path / "out"
    main(
        ["federation", "init", str(write_plan(tmp_path / "a.toml", ["north"], {"alice": "analyst"})), "--out", str(out)]
    )
    moved = write_plan(tmp_path / "b.toml", ["north", "west"], {"alice": "analyst"}, server="127.0.0.1:9000")
    assert main(["federation", "init", str(moved), "--out", str(out)]) == 2
    assert "kits carry the address" in capsys.readouterr().err
    other = write_plan(tmp_path / "c.toml", ["north", "west"], {"alice": "viewer"})
    assert main(["federation", "init", str(other), "--out", str(out)]) == 2
    assert "alice is analyst by certificate, not viewer" in capsys.readouterr().err
    assert main(["federation", "init", str(tmp_path / "a.toml"), "--out", str(tmp_path)]) == 2
    assert "is used already" in capsys.readouterr().err


def test_another_federations_certificate_is_refused(kits, tmp_path):
    plan = write_plan(tmp_path / "fed.toml", ["north"], {"alice": "analyst"})
    main(["federation", "init", str(plan), "--out", str(tmp_path / "out")])
    stranger = Identity.from_kit(tmp_path / "out" / "alice")
    with pytest.raises(MessageError, match="not issued by the root of this federation"):
        Authority.from_kit(kits / "north").verify(stranger.certificate, stranger.sign(b"x"), b"x")


def test_a_command_refuses_the_kit_of_another_participant(kits, tmp_path, capsys):
    assert main(["coordinator", "start", str(kits / "north")]) == 2
    assert (
        "is the kit of the site north; 'fedspan coordinator start' needs a coordinator's kit" in capsys.readouterr().err
    )
    assert main(["site", "start", str(kits / "alice"), "--config", "site.toml"]) == 2
    assert "needs a site's kit" in capsys.readouterr().err
    assert main(["site", "start", str(kits / "north"), "--config", str(tmp_path / "none.toml")]) == 2
    assert "does not exist: it is the owner's site.toml" in capsys.readouterr().err
    assert main(["federation", "status", str(tmp_path)]) == 2
    assert "is not a kit: it has no fedspan.json" in capsys.readouterr().err
    assert main(["federation", "status", str(kits / "north")]) == 2
    assert "needs a user's kit" in capsys.readouterr().err
