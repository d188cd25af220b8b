"""Who may register with the coordinator: listed participants, and one process of a kit at a time."""

from __future__ import annotations

import re
import time
from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install '.[nvflare]' in a checkout")
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.fuel.f3.cellnet.defs import IdentityChallengeKey, MessageHeaderKey
from nvflare.fuel.f3.cellnet.utils import new_cell_message
from nvflare.private.defs import CellMessageHeaderKeys

from fedspan.engines.members.kit_instance import INSTANCE, kit_instance, lock_kit
from fedspan.engines.members.member_list import ends_soon
from fedspan.engines.nvflare.flare import before_registering
from fedspan.engines.nvflare.server import admittance as admittances
from fedspan.engines.nvflare.server.admittance import Admittance
from fedspan.engines.nvflare.setup.console_events import REFUSED
from fedspan.engines.nvflare.setup.hardening import SILENT_AFTER
from fedspan.engines.remote.messages import identity as identities
from fedspan.engines.remote.messages.identity import Participant
from fedspan.errors import InputError, MessageError
from tests.engines.remote.people import identity, member_list, signed, user, write_kit


@pytest.fixture
def desk(tmp_path):
    write_kit(tmp_path, "coordinator", "coordinator", members=member_list(3, ["a", "b"]))
    screen = []
    made = Admittance(tmp_path, screen.append)
    made.screen = screen
    return made


class Manager:
    """NVIDIA FLARE's manager of clients, which would admit every certificate of the root."""

    def __init__(self):
        self.name_to_clients = {}

    def authenticate(self, request, fl_ctx):
        name = request.get_header(CellMessageHeaderKeys.CLIENT_NAME)
        self.name_to_clients[name] = SimpleNamespace(last_connect_time=time.time())
        return name


def register(manager, who, instance="", origin="x"):
    """Register as NVIDIA FLARE's client does; return the result, and why it was refused."""
    payload, peer, fl_ctx = Shareable(), FLContext(), FLContext()
    peer.set_prop(INSTANCE, instance, private=False)
    payload.set_peer_context(peer)
    payload[IdentityChallengeKey.CERT] = who.certificate
    headers = {CellMessageHeaderKeys.CLIENT_NAME: who.name, CellMessageHeaderKeys.CLIENT_IP: "10.0.0.9"}
    done = manager.authenticate(new_cell_message({**headers, MessageHeaderKey.ORIGIN: origin}, payload), fl_ctx)
    return done, fl_ctx.get_prop(FLContextKey.UNAUTHENTICATED)


def event_at(manager):
    """Return the context of an event at a server with this manager."""
    engine = SimpleNamespace(server=SimpleNamespace(client_manager=manager))
    return SimpleNamespace(get_engine=lambda: engine)


def test_a_removed_participant_does_not_register_and_its_connection_is_refused(desk, tmp_path):
    manager = Manager()
    before_registering(event_at(manager), desk)
    assert register(manager, identity("b"), "1") == ("b", None)
    assert register(manager, user(), origin="session 7") == ("alice", None)
    assert desk.user("session 7") == Participant("alice", "analyst")
    assert desk.user("session 8") is None
    (tmp_path / "members.json").write_bytes(signed(member_list(3, ["a", "b"]).without("b", "removed on a Monday")))
    assert register(manager, identity("b"), "1") == (
        None,
        f"{REFUSED}the certificate of 'b' was revoked: removed on a Monday",
    )
    assert "b at 10.0.0.9 was refused: the certificate of 'b' was revoked" in desk.screen[-1]
    (tmp_path / "members.json").write_bytes(signed(member_list(5, ["a"], {"bob": "viewer"})))
    with pytest.raises(MessageError, match="is not on the federation's list"):
        desk.user("session 7")
    assert desk.sites == {"a"}
    manager.authenticate(new_cell_message({}, Shareable()), context := FLContext())
    assert "cannot be read" in context.get_prop(FLContextKey.UNAUTHENTICATED)


def test_a_copy_of_a_kit_is_refused_while_the_other_answers_and_both_screens_show_it(desk):
    manager, joined = Manager(), []
    desk.joined = joined.append
    before_registering(event_at(manager), desk)
    assert register(manager, identity("a"), "here")[0] == "a"
    assert register(manager, identity("a"), "here")[0] == "a"  # a restart
    done, why = register(manager, identity("a"), "copied")
    assert done is None
    assert "a process with another copy of the kit of 'a' is connected: stop it first" in why
    assert desk.notices == {"a": "another process with a copy of this kit, at 10.0.0.9, was refused by the coordinator"}
    assert "a process with another copy" in desk.screen[-1]
    assert joined == ["a", "a"]  # the copy has not
    manager.name_to_clients["a"].last_connect_time -= SILENT_AFTER + 1
    assert register(manager, identity("a"), "copied")[0] == "a"  # the other one has ended: the kit was moved
    assert "a process with another copy" in register(manager, identity("a"), "here")[1]


def test_a_copied_kit_is_another_instance_and_one_process_has_a_kit(tmp_path):
    import shutil

    (tmp_path / "kit").mkdir()
    first = kit_instance(tmp_path / "kit")
    assert kit_instance(tmp_path / "kit") == first
    shutil.copytree(tmp_path / "kit", tmp_path / "copy")
    assert kit_instance(tmp_path / "copy") != first
    assert kit_instance(tmp_path / "kit") == first
    (tmp_path / "kit" / "instance.json").write_text("[")
    assert kit_instance(tmp_path / "kit") != first
    held = lock_kit(tmp_path / "kit")
    with pytest.raises(InputError, match="is in use by another process on this machine"):
        lock_kit(tmp_path / "kit")
    held.close()
    lock_kit(tmp_path / "kit").close()


def test_the_end_of_a_certificate_is_announced_once_a_day(desk, tmp_path, monkeypatch):
    assert ends_soon(tmp_path) == ""
    desk.warn()
    monkeypatch.setattr(admittances, "DAY", 0.0)
    desk.warn()
    assert desk.screen == []
    monkeypatch.setattr(admittances, "ends_soon", lambda kit: ends_soon(kit, 400.0))
    desk.warn()
    assert re.search(r"ends on 20\d\d-\d\d-\d\d, in 3\d\d days: let the authority renew it", desk.screen[-1])


def test_a_list_that_is_damaged_while_the_coordinator_runs_is_handed_out_whole_and_written_again(
    desk, tmp_path, monkeypatch
):
    now = [1000.0]
    monkeypatch.setattr(identities.time, "monotonic", lambda: now[0])
    file = tmp_path / "members.json"
    whole = file.read_bytes()
    older = signed(member_list(2, ["a", "b", "c"]))
    for damage in (whole[:50], b"", older):
        file.write_bytes(damage)
        desk.repair()
        assert desk.list_bytes == whole
        assert (desk.version, desk.sites) == (3, {"a", "b"})
        assert file.read_bytes() == damage  # it may just be being copied
        now[0] += 60.0
        desk.repair()
        assert file.read_bytes() == whole
    newer = signed(member_list(4, ["a"]))
    file.write_bytes(newer)
    desk.repair()
    assert (desk.version, desk.list_bytes) == (4, newer)
    assert desk.screen == ["members.json was damaged or older: version 3 is written again"] * 3


def test_a_damaged_file_enables_no_site_at_a_running_coordinator(desk, tmp_path):
    (tmp_path / "disabled.json").write_text('{"a": "disabled by the operator olga"}')
    assert desk.disabled == {"a": "disabled by the operator olga"}
    (tmp_path / "disabled.json").write_text('{"a": "dis')
    assert desk.disabled == {"a": "disabled by the operator olga"}
