"""All that fedspan uses of NVIDIA FLARE while it runs: the only module with names that are not part of its public API.

A message is a head, which JSON can hold, and a body of bytes. A small one travels in one frame, a large one as a stream
of pieces. A test names every attribute of NVIDIA FLARE that this module, `hardening` and `provision` need.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import sys
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # before it is imported: it would write on the owner's console
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")  # no forked process uses it: its handlers may block one
# Bytes of a stream that are under way at a time, and after which the receiver confirms them: the server holds as many.
os.environ.setdefault("NVFLARE_STREAMING_WINDOW_SIZE", str(2**22))
os.environ.setdefault("NVFLARE_STREAMING_ACK_INTERVAL", str(2**20))

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent as Component
from nvflare.apis.fl_constant import FLContextKey
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import IdentityChallengeKey, MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.utils import new_cell_message
from nvflare.fuel.f3.mpm import MainProcessMonitor
from nvflare.fuel.utils.config_service import ConfigService
from nvflare.private.defs import CellChannel, CellChannelTopic, CellMessageHeaderKeys

from fedspan.checks import json_value
from fedspan.engines.members.kit_instance import INSTANCE

if TYPE_CHECKING:
    from fedspan.engines.nvflare.server.admittance import Admittance

__all__ = ["Component", "EventType"]

#: Bytes of the largest body that travels in one frame.
LARGE = 2**18

#: NVIDIA FLARE's name of the server.
SERVER = "server"

#: NVIDIA FLARE's programs.
_PROGRAMS = {
    "coordinator": ("nvflare.private.fed.app.server.server_train", "fed_server.json"),
    "site": ("nvflare.private.fed.app.client.client_train", "fed_client.json"),
}
_HEAD = "fedspan"
_LONGEST_HEAD = 2**24

Head = dict[str, Any]
Message = tuple[Head, bytes]

#: Sends a target a message under a topic, within a number of seconds; raises `ConnectionError` or `TimeoutError`.
Carry = Callable[[str, str, Head, bytes, float], Message]

#: Answers a message: its sender, its topic, its head and its body.
Answer = Callable[[str, str, Head, bytes], "Message | Future[Message]"]


class RefusedError(ConnectionError):
    """The other side answers, and refuses the message."""


def carrier(cell: Any, channel: str, *, stream: bool = False, one_way: bool = False) -> Carry:
    """Return what sends messages over a channel of a cell.

    With `stream`, the answer may be large. `one_way`, the answer is empty, and that of a small message does not travel.
    """

    def carry(target: str, topic: str, head: Head, body: bytes, limit: float) -> Message:
        way = cell if stream or len(body) > LARGE else cell.core_cell
        request = new_cell_message({_HEAD: json.dumps(head)}, body)
        if one_way and way is not cell:
            failed = way.fire_and_forget(channel, topic, target, request, optional=True)
            if any(failed.values()):
                raise ConnectionError(str(failed))
            return {}, b""
        reply = way.send_request(
            channel=channel, topic=topic, target=target, request=request, timeout=limit, optional=True
        )
        code = reply.get_header(MessageHeaderKey.RETURN_CODE)
        if code == ReturnCode.TIMEOUT:
            raise TimeoutError
        if code not in (None, ReturnCode.OK) or reply.get_header(_HEAD) is None:
            raise ConnectionError(str(reply.get_header(MessageHeaderKey.ERROR) or code))
        answer = json_value(reply.get_header(_HEAD), _LONGEST_HEAD)
        if "refused" in answer:
            raise RefusedError(answer["refused"])
        return answer, reply.payload or b""

    return carry


def is_large(body: object) -> bool:
    """Return whether a body was received as a stream: NVIDIA FLARE then keeps it for a minute."""
    return isinstance(body, memoryview)


def release(body: object) -> None:
    """Free the bytes of a body that was received as a stream."""
    if isinstance(body, memoryview):
        body.release()


def taken(body: Any) -> bytes | memoryview:
    """Return the bytes of a body; NVIDIA FLARE keeps those of a stream no longer."""
    if not isinstance(body, memoryview):
        return bytes(body)
    whole = body.obj
    if isinstance(whole, bytearray) and len(whole) == len(body):
        body.release()
        return memoryview(whole).toreadonly()
    copy = bytes(body)
    body.release()
    return copy


def serve(cell: Any, channel: str, answer: Answer) -> None:
    """Answer the messages of a channel. A `RefusedError` becomes a refusal; only a stream may wait for a future."""

    def to_message(made: Message) -> Any:
        return new_cell_message({_HEAD: json.dumps(made[0])}, made[1])

    def done(made: Future[Message], reply: Future[Any]) -> None:
        error = made.exception()
        reply.set_result(to_message(({"refused": str(error) or type(error).__name__}, b"") if error else made.result()))

    def callback(message: Any) -> Any:
        origin, topic, head = (
            message.get_header(key) for key in (MessageHeaderKey.ORIGIN, MessageHeaderKey.TOPIC, _HEAD)
        )
        try:
            made = answer(str(origin), str(topic), json_value(head, _LONGEST_HEAD), message.payload or b"")
        except (ConnectionError, KeyError, TypeError, ValueError) as error:
            made = {"refused": str(error) if isinstance(error, ConnectionError) else "the message lacks a field"}, b""
        if not isinstance(made, Future):
            return to_message(made)
        reply: Future[Any] = Future()
        made.add_done_callback(partial(done, reply=reply))
        return reply

    cell.register_request_cb(channel=channel, topic="*", cb=callback)
    cell.core_cell.register_request_cb(channel=channel, topic="*", cb=callback)


def cell_of(context: Any) -> Any:
    """Return the cell of the process in whose event a component is."""
    return context.get_engine().get_cell()


def before_registering(context: Any, judge: Admittance) -> None:
    """Let `judge` decide before the server registers a site or a user."""
    manager = context.get_engine().server.client_manager
    register = manager.authenticate

    def authenticate(request: Any, fl_ctx: Any) -> Any:
        keys = (CellMessageHeaderKeys.CLIENT_NAME, CellMessageHeaderKeys.CLIENT_IP, MessageHeaderKey.ORIGIN)
        name, place, origin = (str(request.get_header(key)) for key in keys)
        certificate = request.payload.get(IdentityChallengeKey.CERT) or b""
        peer, there = request.payload.get_peer_context(), manager.name_to_clients.get(name)
        instance, _, version = (str(peer.get_prop(INSTANCE, "")) if peer else "").partition(" ")
        heard = 0.0 if there is None else float(there.last_connect_time)
        why = judge.judged(name, place, bytes(certificate), instance, heard)
        if why:
            fl_ctx.set_prop(FLContextKey.UNAUTHENTICATED, why, sticky=False)
            return None
        client = register(request, fl_ctx)
        if client is not None:
            judge.admitted(name, bytes(certificate), instance, origin, version[:40])
        return client

    manager.authenticate = authenticate


def send_instance(context: Any, instance: str, version: str) -> None:
    """Send the instance of a site's kit, and the version of fedspan, with its registration."""
    context.set_prop(INSTANCE, f"{instance} {version}", private=False, sticky=False)


def connected(cell: Any) -> bool:
    """Return whether a site's process has a connection to the server now."""
    return bool(cell.core_cell.is_cell_connected(SERVER))


def on_refusal(cell: Any, take: Callable[[str], None]) -> None:
    """Give `take` the reason why the server refuses to register this site."""

    def look(message: Any) -> None:
        if message.get_header(MessageHeaderKey.RETURN_CODE) == ReturnCode.UNAUTHENTICATED:
            take(str(message.get_header(MessageHeaderKey.ERROR)))

    cell.core_cell.add_incoming_reply_filter(CellChannel.SERVER_MAIN, CellChannelTopic.Register, look)


def run_program(kind: str, kit: str, listen: str | None, named: list[str]) -> int:
    """Become NVIDIA FLARE's process of a coordinator or site; a coordinator listens on the address `listen` alone.

    No process opens a port for jobs, which do not exist here.
    """
    module, settings = _PROGRAMS[kind]
    CoreCell._create_internal_listener = lambda self, *arguments: None
    if listen is not None:
        server: Any = importlib.import_module("nvflare.private.fed.server.fed_server")
        server._is_loopback_host = lambda host: True
        server._normalize_loopback_host = lambda host: listen
    options = ["secure_train=true", "org=fedspan", "config_folder=config", *named]
    sys.argv = [module, "-m", kit, "-s", settings, "--set", *options]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    return 0


def import_early() -> None:
    """Import the client's program, which takes seconds."""
    importlib.import_module("nvflare.private.fed.client.fed_client")


def when_it_ends(then: Callable[[], None]) -> None:
    """Call `then` if NVIDIA FLARE ends its process by itself."""
    MainProcessMonitor.add_cleanup_cb(then)


def use_proxy(proxy: str | None) -> None:
    """Let the transport ``http`` go through this proxy, ``host:port``; gRPC finds the environment's by itself."""
    with suppress(ImportError):
        from nvflare.fuel.f3.drivers import aio_http_driver

        aiohttp = aio_http_driver.aiohttp
        plain = getattr(aiohttp.ClientSession, "func", aiohttp.ClientSession)
        aiohttp.ClientSession = plain if proxy is None else partial(plain, proxy=f"http://{proxy}")


def settings_in(folder: str) -> None:
    """Let NVIDIA FLARE look for settings here; a user's process would search all that is below its working folder."""
    ConfigService.initialize({}, [folder])


def user_cell(session: Any) -> Any:
    """Return the cell of a user's session, which prints nothing into a notebook from now on."""
    session.api._print_hci = lambda message: None
    return session.api.cell
