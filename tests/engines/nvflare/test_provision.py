"""Kits of a federation: certificates, hardening, later participants. Nothing here is started."""

from __future__ import annotations

import json
import re
import shutil
import stat

import pytest

from fedspan.cli import main
from fedspan.engines.members.authority_folder import AuthorityFolder
from fedspan.engines.nvflare.setup import provision
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
    assert main(["federation", "init", str(plan), "--kits", "--out", str(folder / "out")]) == 0
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
        assert set(rights) == {"analyst", "operator", "runner", "viewer"}
        assert {value for right in rights.values() for what, value in right.items() if what != "view"} == {"none"}
        assert {"byoc", "shell_commands", "operate", "submit_job", "app_command"} < set(rights["analyst"])
        resources = json.loads((kits / name / "local" / "resources.json").read_text())
        assert resources["class_list_enforcement_mode"] == "enforce"
        assert resources["class_allow_list"] == []
    text = (kits / "coordinator" / "local" / "resources.json").read_text()
    assert json.dumps(str(kits / "coordinator" / "store" / "jobs")) in text
    assert not re.search(r'"/tmp/nvflare', text)
    assert not list(kits.rglob("*.sh"))


def test_private_files_are_private_and_no_key_stays_behind(kits):
    for path in kits.rglob("*"):
        inside = path.relative_to(kits).parts
        if len(inside) > 1 and path.is_file():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE((kits / "authority").stat().st_mode) == 0o700
    assert {path.name for path in (kits / "authority").glob("*.key")} == {"root.key"}
    assert not list(kits.rglob("*.next.key"))


def test_a_kit_is_made_by_its_owner_and_the_authority_never_sees_a_key(tmp_path, capsys):
    plan, hq, clinic = (
        write_plan(tmp_path / "fed.toml", ["north"], {"alice": "viewer"}),
        tmp_path / "hq",
        tmp_path / "c",
    )
    clinic.mkdir()
    assert main(["federation", "init", str(plan), "--out", str(hq)]) == 0
    assert {path.name for path in hq.iterdir()} == {"authority"}
    request, kit, authority = clinic / "north.request", clinic / "kit", hq / "authority"
    assert main(["site", "enroll", "north", "--kit", str(kit), "--request", str(request)]) == 0
    assert "PRIVATE" not in request.read_text()
    digest = re.search(r"read this digest out to the authority: (.+)", capsys.readouterr().out)[1]
    assert main(["site", "start", str(kit), "--config", "site.toml"]) == 2
    assert "has no certificate yet" in capsys.readouterr().err
    assert main(["federation", "approve", str(request), "--authority", str(authority)]) == 0
    assert f"approved: site north, key {digest}" in capsys.readouterr().out
    members = authority / "members.json"
    assert "PRIVATE" not in members.read_text()
    assert main(["site", "join", str(kit), str(members), "--root", "0000 1111"]) == 2
    assert "do not join" in capsys.readouterr().err
    assert main(["user", "join", str(kit), str(members)]) == 2
    assert "is the kit of the site north" in capsys.readouterr().err
    assert main(["site", "join", str(kit), str(members)]) == 0
    assert AuthorityFolder(authority).digest in capsys.readouterr().out
    assert Authority.from_kit(kit).sites == {"north"}
    assert Identity.from_kit(kit).name == "north"
    assert main(["federation", "members", str(kit)]) == 0
    assert re.search(r"north +site +20", capsys.readouterr().out)


def test_a_name_never_gets_a_second_identity(tmp_path, capsys):
    plan, out = write_plan(tmp_path / "fed.toml", ["north", "south"], {"alice": "analyst"}), tmp_path / "out"
    init = ["federation", "init", str(plan), "--kits", "--out", str(out)]
    assert main(init) == 0
    old = Identity.from_kit(out / "south")
    shutil.rmtree(out / "south")  # it was brought to its owner
    assert main(init) == 2
    assert "nothing has changed" in capsys.readouterr().err
    write_plan(plan, ["north", "south", "west"], {"alice": "analyst"})
    assert main(init) == 0
    assert "not made again: south" in capsys.readouterr().out
    assert not (out / "south").exists()
    assert Identity.from_kit(out / "west").name == "west"
    request = str(tmp_path / "south.request")
    assert main(["site", "enroll", "south", "--kit", str(out / "south"), "--request", request]) == 0
    approve = ["federation", "approve", request, "--authority", str(out / "authority")]
    assert main(approve) == 2
    assert "'south' takes part already: --replace revokes the current key" in capsys.readouterr().err
    assert main([*approve, "--replace"]) == 0
    new, authority = Identity.from_kit(out / "south"), Authority.from_kit(out / "north")
    assert authority.verify(new.certificate, new.sign(b"x"), b"x").name == "south"
    with pytest.raises(MessageError, match="the certificate of 'south' was revoked: replaced on 20"):
        authority.verify(old.certificate, old.sign(b"x"), b"x")


@pytest.mark.parametrize("claimed", ["coordinator", "olga"])
def test_a_replaced_key_is_that_of_the_participant_after_whom_the_file_is_called(tmp_path, capsys, claimed):
    """An analyst whose key was to be replaced sent a request of the operator, or of the coordinator, and became it."""
    users = {"alice": "analyst", "olga": "operator"}
    plan, out = write_plan(tmp_path / "fed.toml", ["north"], users), tmp_path / "out"
    assert main(["federation", "init", str(plan), "--kits", "--out", str(out)]) == 0
    request, before = str(tmp_path / "alice.request"), (out / "authority" / "members.json").read_bytes()
    who = ["coordinator", "enroll"] if claimed == "coordinator" else ["user", "enroll", claimed]
    assert main([*who, "--kit", str(tmp_path / "own"), "--request", request]) == 0
    assert main(["federation", "approve", request, "--replace", "--authority", str(out / "authority")]) == 2
    assert f"{claimed!r}: call it {claimed}.request if that is whose key" in capsys.readouterr().err
    assert (out / "authority" / "members.json").read_bytes() == before


def test_participants_are_added_removed_renewed_and_moved_by_commands(tmp_path, capsys):
    plan, out = write_plan(tmp_path / "fed.toml", ["north", "south"], {"alice": "analyst"}), tmp_path / "out"
    assert main(["federation", "init", str(plan), "--kits", "--out", str(out)]) == 0
    authority, where = Authority.from_kit(out / "north"), ["--authority", str(out / "authority")]
    old, alice = Identity.from_kit(out / "north"), Identity.from_kit(out / "alice")
    request = str(tmp_path / "r")
    assert main(["user", "enroll", "olga", "--kit", str(out / "olga"), "--request", request, "--role", "operator"]) == 0
    assert main(["federation", "approve", request, *where]) == 2
    assert "fed.toml does not name the user 'olga': --add" in capsys.readouterr().err
    assert main(["federation", "approve", request, *where, "--add", "--role", "boss"]) == 2
    assert main(["federation", "approve", request, *where, "--add"]) == 0
    olga = Identity.from_kit(out / "olga")
    assert authority.verify(olga.certificate, olga.sign(b"x"), b"x") == olga.participant
    assert olga.role == "operator"
    assert main(["federation", "remove", "alice", *where]) == 0
    with pytest.raises(MessageError, match="the certificate of 'alice' was revoked: removed on 20"):
        authority.verify(alice.certificate, alice.sign(b"x"), b"x")
    assert main(["federation", "remove", "alice", *where]) == 2
    assert main(["federation", "renew", *where]) == 0
    assert "nothing is renewed" in capsys.readouterr().out
    assert main(["federation", "renew", "north", *where, "--days", "700"]) == 0
    new = Identity.from_kit(out / "north")
    assert new.certificate != old.certificate
    for one in (old, new):  # the one before stays valid to its end
        assert authority.verify(one.certificate, one.sign(b"x"), b"x").name == "north"
    assert main(["federation", "move", "127.0.0.1:9000", *where]) == 0
    assert read_kit(out / "south").server == "127.0.0.1:9000"
    assert '"target": "127.0.0.1:9000"' in (out / "south" / "startup" / "fed_client.json").read_text()
    assert main(["federation", "move", "nowhere", *where]) == 2


def test_a_name_that_differs_in_capital_letters_alone_is_refused(tmp_path, capsys):
    """Two users "alice" and "Alice" look alike in logs and pages, and have one folder on some disks."""
    plan, out = write_plan(tmp_path / "fed.toml", ["north", "south"], {"alice": "analyst"}), tmp_path / "out"
    assert main(["federation", "init", str(plan), "--kits", "--out", str(out)]) == 0
    request, where = str(tmp_path / "r"), ["--authority", str(out / "authority"), "--add"]
    for kind, name in (("user", "Alice"), ("site", "NORTH"), ("user", "South")):
        assert main([kind, "enroll", name, "--kit", str(tmp_path / f"{kind}s" / name), "--request", request]) == 0
        assert main(["federation", "approve", request, *where, "--role", "analyst"]) == 2
        assert "in capital letters alone" in capsys.readouterr().err
    assert main(["user", "enroll", "alicia", "--kit", str(tmp_path / "alicia"), "--request", request]) == 0
    assert main(["federation", "approve", request, *where, "--role", "analyst"]) == 0


def test_the_schema_and_the_settings_are_signed_and_may_change(tmp_path, capsys):
    plan, out = write_plan(tmp_path / "a.toml", ["a", "b", "c"], {"alice": "analyst"}), tmp_path / "out"
    without = plan.read_text()
    plan.write_text(without + '[schema]\ndose = "number"\nage = "integer"\n')
    init = ["federation", "init", str(plan), "--kits", "--out", str(out)]
    assert main(init) == 0
    assert Authority.from_kit(out / "a").secure_sum == SecureSum()
    for name in ("coordinator", "a", "alice", "coordinator/runner"):
        assert list(read_kit(out / name).schema.items()) == [("dose", "number"), ("age", "integer")]
    plan.write_text(without + '[schema]\nage = "integer"\ndose = "number"\n')
    assert main(init) == 0  # the order counts
    assert list(read_kit(out / "a").schema) == ["age", "dose"]
    plan.write_text(without + "[secure_sum]\nthreshold = 0.9\nleast = 3\n")
    assert main(init) == 0
    assert read_kit(out / "a").schema is None
    for name in ("coordinator", "a", "alice", "coordinator/runner"):
        assert Authority.from_kit(out / name).secure_sum == SecureSum(threshold=0.9, least=3)
    file = out / "a" / "members.json"
    file.write_text(file.read_text().replace(r"\"least\": 3", r"\"least\": 2"))
    with pytest.raises(InputError, match="is not one that this federation's root has signed"):
        Authority.from_kit(out / "a")


def test_a_changed_address_or_role_or_a_used_folder_is_refused(tmp_path, capsys):
    out = tmp_path / "out"
    plan = write_plan(tmp_path / "a.toml", ["north"], {"alice": "analyst"})
    main(["federation", "init", str(plan), "--kits", "--out", str(out)])
    moved = write_plan(tmp_path / "b.toml", ["north", "west"], {"alice": "analyst"}, server="127.0.0.1:9000")
    assert main(["federation", "init", str(moved), "--out", str(out)]) == 2
    assert "'fedspan federation move' changes the address" in capsys.readouterr().err
    other = write_plan(tmp_path / "c.toml", ["north", "west"], {"alice": "viewer"})
    assert main(["federation", "init", str(other), "--out", str(out)]) == 2
    assert "alice is analyst by certificate, not viewer" in capsys.readouterr().err
    assert main(["federation", "init", str(tmp_path / "a.toml"), "--out", str(tmp_path)]) == 2
    assert "is used already" in capsys.readouterr().err


def test_another_federations_certificate_is_refused(kits, tmp_path):
    plan = write_plan(tmp_path / "fed.toml", ["north"], {"alice": "analyst"})
    main(["federation", "init", str(plan), "--kits", "--out", str(tmp_path / "out")])
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


def test_a_kill_while_a_list_is_installed_is_made_good(tmp_path, monkeypatch):
    plan, out = write_plan(tmp_path / "fed.toml", ["north", "south"], {"alice": "analyst"}), tmp_path / "out"
    assert main(["federation", "init", str(plan), "--kits", "--out", str(out)]) == 0
    hq, kit, request = tmp_path / "hq", out / "north", tmp_path / "north.request"
    (out / "authority").rename(hq)
    assert main(["site", "enroll", "north", "--kit", str(kit), "--request", str(request)]) == 0
    assert main(["federation", "approve", str(request), "--authority", str(hq), "--replace"]) == 0
    old, data = Identity.from_kit(kit), (hq / "members.json").read_bytes()

    class Killed(BaseException):
        pass

    def killed(*arguments):
        raise Killed

    for where in ("install_certificate", "_write_settings"):
        with monkeypatch.context() as at:
            at.setattr(provision, where, killed)
            with pytest.raises(Killed):
                provision.join(kit, data)
        provision.check_own(kit)
        assert Identity.from_kit(kit).certificate != old.certificate
    (kit / "startup" / "client.crt").write_bytes(old.certificate)  # between certificate and key
    provision.check_own(kit)
    (kit / "startup" / "client.key").unlink()
    with pytest.raises(InputError, match="cannot be used"):
        provision.check_own(kit)


@pytest.mark.parametrize("content", [b"", b'{"list": "cut'])
def test_a_kit_whose_list_was_damaged_joins_again(kits, content, tmp_path, capsys):
    kit = shutil.copytree(kits / "alice", tmp_path / "alice")
    (kit / "members.json").write_bytes(content)
    assert main(["federation", "status", str(kit)]) == 2
    assert "the list of participants cannot be read: 'join' again with that of the authority" in capsys.readouterr().err
    assert main(["user", "join", str(kit), str(kits / "authority" / "members.json")]) == 0
    assert (kit / "members.json").read_bytes() == (kits / "authority" / "members.json").read_bytes()
