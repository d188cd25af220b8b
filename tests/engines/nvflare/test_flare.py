"""NVIDIA FLARE's names that are not part of its public API: each of them is here, and in one module."""

from __future__ import annotations

import importlib
import inspect
import re
from concurrent.futures import Future
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install '.[nvflare]' in a checkout")
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.utils import new_cell_message

from fedspan.engines.nvflare import flare
from fedspan.engines.nvflare.flare import LARGE, RefusedError, carrier, serve, taken
from fedspan.engines.nvflare.setup.hardening import server_resources, site_resources

SOURCE = Path(flare.__file__).parents[2]

#: What `flare` uses: modules with their names, and the parameters that functions must have.
NAMES = {
    "nvflare.apis.event_type": [
        "EventType.SYSTEM_START",
        "EventType.BEFORE_CLIENT_REGISTER",
    ],
    "nvflare.apis.fl_component": ["FLComponent.handle_event"],
    "nvflare.apis.fl_constant": ["FLContextKey.UNAUTHENTICATED"],
    "nvflare.apis.fl_context": ["FLContext.get_engine", "FLContext.get_peer_context"],
    "nvflare.apis.fl_exception": ["FLCommunicationError"],
    "nvflare.fuel.f3.cellnet.cell": ["Cell"],
    "nvflare.fuel.f3.cellnet.core_cell": [
        "CoreCell.send_request(channel, topic, target, request, timeout, optional)",
        "CoreCell.fire_and_forget(channel, topic, targets, message, optional)",
        "CoreCell.register_request_cb(channel, topic, cb)",
        "CoreCell.add_incoming_reply_filter(channel, topic, cb)",
        "CoreCell.is_cell_connected",
        "CoreCell._create_internal_listener",
    ],
    "nvflare.fuel.f3.cellnet.defs": [
        "IdentityChallengeKey.CERT",
        "MessageHeaderKey.ORIGIN",
        "MessageHeaderKey.TOPIC",
        "MessageHeaderKey.ERROR",
        "MessageHeaderKey.RETURN_CODE",
        "ReturnCode.OK",
        "ReturnCode.TIMEOUT",
        "ReturnCode.UNAUTHENTICATED",
    ],
    "nvflare.fuel.f3.cellnet.utils": ["new_cell_message"],
    "nvflare.fuel.f3.drivers.aio_http_driver": ["aiohttp.ClientSession"],
    "nvflare.fuel.f3.mpm": ["MainProcessMonitor.add_cleanup_cb"],
    "nvflare.fuel.flare_api.api_spec": [
        "NoConnection",
        "SessionClosed",
        "SessionExpired",
        "AuthenticationError",
        "AuthorizationError",
        "InvalidJobDefinition",
        "InternalError",
    ],
    "nvflare.fuel.flare_api.flare_api": ["Session.try_connect", "Session.set_timeout", "Session.close"],
    "nvflare.fuel.hci.client.api": ["AdminAPI._print_hci"],
    "nvflare.fuel.utils.config_service": ["ConfigService.initialize(section_files, config_path)"],
    "nvflare.private.defs": [
        "CellChannel.SERVER_MAIN",
        "CellChannelTopic.Register",
        "CellMessageHeaderKeys.CLIENT_NAME",
        "CellMessageHeaderKeys.CLIENT_IP",
    ],
    "nvflare.private.fed.app.client.client_train": ["main"],
    "nvflare.private.fed.app.server.server_train": ["main"],
    "nvflare.private.fed.client.fed_client": ["FederatedClient"],
    "nvflare.private.fed.server.client_manager": ["ClientManager.authenticate(request, fl_ctx)"],
    "nvflare.private.fed.server.fed_server": ["_is_loopback_host(host)", "_normalize_loopback_host(host)"],
}


@pytest.mark.parametrize("module", NAMES)
def test_every_name_that_is_used_exists(module):
    for name in NAMES[module]:
        path, _, parameters = name.rstrip(")").partition("(")
        found = importlib.import_module(module)
        for part in path.split("."):
            assert hasattr(found, part), f"{module} has no {path}"
            found = getattr(found, part)
        if parameters:
            assert set(parameters.split(", ")) <= set(inspect.signature(found).parameters), name


def test_no_other_module_imports_what_is_not_public():
    """Errors of a session are public, and so is what a study of NVIDIA FLARE's own would use."""
    allowed = {"engines/nvflare/flare.py", "engines/nvflare/client/user_session.py"}
    found = set()
    for path in SOURCE.rglob("*.py"):
        if re.search(r"^\s*(from|import) nvflare", path.read_text(encoding="utf-8"), re.MULTILINE):
            found.add(path.relative_to(SOURCE).as_posix())
    assert found <= allowed


@pytest.mark.parametrize("resources", [server_resources(Path("/kit")), site_resources()], ids=["server", "site"])
def test_components_of_the_settings_exist(resources):
    for component in resources["components"]:
        module, _, name = component["path"].rpartition(".")
        assert hasattr(importlib.import_module(module), name)


class Cell:
    """Carries messages to itself, and notes in which way."""

    def __init__(self, code=None):
        self.core_cell, self.ways, self.code = self, [], code
        self.forgotten = []

    def register_request_cb(self, channel, topic, cb):
        self.callback = cb

    def send_request(self, channel, topic, target, request, timeout, optional):
        if self.code is not None:
            return new_cell_message({MessageHeaderKey.RETURN_CODE: self.code})
        request.headers |= {MessageHeaderKey.ORIGIN: "alice", MessageHeaderKey.TOPIC: topic}
        reply = self.callback(request)
        return reply.result(timeout=120.0) if isinstance(reply, Future) else reply

    def fire_and_forget(self, channel, topic, targets, message, *, optional):
        if self.code is None:
            self.forgotten.append(targets)
            self.send_request(channel, topic, targets, message, 1.0, optional)
        return {targets: self.code}


class StreamCell(Cell):
    """A cell whose small messages go another way."""

    def __init__(self):
        super().__init__()
        self.core_cell = Cell()

    def send_request(self, **message):
        self.ways.append(message["topic"])
        self.callback = self.core_cell.callback
        return super().send_request(**message)


def test_a_message_goes_there_and_its_answer_comes_back():
    cell = StreamCell()
    later = Future()
    later.set_result(({"later": True}, b"answer"))
    failed = Future()
    failed.set_exception(RefusedError("no such answer"))

    def answer(sender, topic, head, body):
        if topic == "refuse":
            raise RefusedError("not for you")
        return {"fetch": later, "fail": failed}.get(topic, ({"from": sender, **head}, bytes(body)[::-1]))

    serve(cell, "channel", answer)
    carry, stream = carrier(cell, "channel"), carrier(cell, "channel", stream=True)
    assert carry("server", "small", {"a": 1}, b"ab", 1.0) == ({"from": "alice", "a": 1}, b"ba")
    assert cell.ways == []
    assert len(carry("server", "large", {}, bytes(LARGE + 1), 1.0)[1]) == LARGE + 1
    assert stream("server", "fetch", {}, b"", 1.0) == ({"later": True}, b"answer")
    assert cell.ways == ["large", "fetch"]
    with pytest.raises(RefusedError, match="not for you"):
        carry("server", "refuse", {}, b"", 1.0)
    with pytest.raises(RefusedError, match="no such answer"):
        stream("server", "fail", {}, b"", 1.0)


def test_a_message_one_way_waits_for_no_answer():
    cell, received = StreamCell(), []
    serve(cell, "channel", lambda sender, topic, head, body: received.append((topic, head, len(body))) or ({}, b""))
    carry = carrier(cell, "channel", one_way=True)
    assert carry("alice", "answer", {"a": 1}, b"ab", 1.0) == ({}, b"")
    assert received == [("answer", {"a": 1}, 2)]
    assert cell.core_cell.forgotten == ["alice"]
    carry("alice", "call", {}, bytes(LARGE + 1), 1.0)
    assert cell.ways == ["call"]
    cell.core_cell.code = "no way to alice"
    with pytest.raises(ConnectionError, match="no way to alice"):
        carry("alice", "answer", {}, b"", 1.0)


def test_the_bytes_of_a_stream_are_taken_without_a_copy():
    whole = bytearray(b"many bytes")
    kept = memoryview(whole)  # by NVIDIA FLARE
    found = taken(kept)
    assert (bytes(found), found.obj is whole, found.readonly) == (b"many bytes", True, True)
    with pytest.raises(ValueError, match="released"):
        kept[0]
    assert taken(memoryview(whole)[2:5]) == b"ny "
    assert taken(b"few") == b"few"


def test_codes_of_the_cell_are_errors():
    with pytest.raises(TimeoutError):
        carrier(Cell(ReturnCode.TIMEOUT), "channel")("north", "call", {}, b"", 1.0)
    with pytest.raises(ConnectionError, match="target_unreachable"):
        carrier(Cell(ReturnCode.TARGET_UNREACHABLE), "channel")("north", "call", {}, b"", 1.0)
    with pytest.raises(ConnectionError):
        carrier(Cell(ReturnCode.OK), "channel")("north", "call", {}, b"", 1.0)
