"""A site's end of the connection: its process passes the coordinator's bytes on to the worker, which decides."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent

from fedspan.engines.members.kit_instance import INSTANCE, VERSION, kit_instance
from fedspan.engines.members.member_list import DAY, ends_soon
from fedspan.engines.nvflare.client.user_session import SITE_CHANNEL
from fedspan.engines.nvflare.setup.console_events import report
from fedspan.engines.nvflare.setup.provision import RemovedError, join
from fedspan.engines.nvflare.site.worker_socket import LONGEST, socket_path
from fedspan.engines.remote.messages.environment import fedspan_version
from fedspan.errors import FedspanError

#: The site's kit, set by its own process, and what starts or ends that process again, with a sentence.
home: Path | None = None
restart: Callable[[str], None] = report
leave: Callable[[str], None] = report

#: Seconds without a message from the coordinator, which probes while a user is connected, after which no user is: the
#: worker may then read its data again.
IDLE = 15.0


class SiteLinkComponent(FLComponent):  # type: ignore[misc]
    """The link as a component of NVIDIA FLARE's client."""

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Open the link when the site is up; before that, send the instance of the kit with the registration."""
        if event_type == EventType.BEFORE_CLIENT_REGISTER and home is not None:
            fl_ctx.set_prop(INSTANCE, kit_instance(home), private=False, sticky=False)
            fl_ctx.set_prop(VERSION, fedspan_version(), private=False, sticky=False)
        if event_type == EventType.SYSTEM_START and home is not None:
            link = SiteLink(home)
            fl_ctx.get_engine().get_cell().register_request_cb(channel=SITE_CHANNEL, topic="*", cb=link.request)
            threading.Thread(target=link.watch, daemon=True, name="fedspan-site-link").start()


class SiteLink:
    """Passes requests to the worker of a kit."""

    def __init__(self, kit: Path) -> None:
        self.instance = secrets.token_bytes(8)
        self._kit = kit
        self._path = socket_path(kit)
        self._lock = threading.Lock()
        self._free: list[Connection[bytes, bytes]] = []
        self._heard = time.monotonic()

    def request(self, message: Any) -> Any:
        """Answer the server: that this site is there, or with the worker's answer. Other sites are refused."""
        from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
        from nvflare.fuel.f3.cellnet.utils import make_reply, new_cell_message

        if message.get_header(MessageHeaderKey.ORIGIN) != "server":
            return make_reply("unauthorized", "only the federation's server may call a site")
        topic = message.get_header(MessageHeaderKey.TOPIC)
        if topic == "members":
            return new_cell_message({}, self.follow(bytes(message.payload)))
        if topic == "notice":
            report(bytes(message.payload).decode("utf-8", "replace")[:1000])
            return new_cell_message({}, b"")
        self._heard = time.monotonic()
        if topic == "alive":
            return new_cell_message({}, self.instance)
        try:
            return new_cell_message({}, self.answer(bytes(message.payload)))
        except ConnectionError as error:
            return make_reply("service_unavailable", str(error))

    def follow(self, data: bytes) -> bytes:
        """Install the list of participants that the coordinator hands out; the worker reads it again by itself."""
        try:
            joined = join(self._kit, data)
        except RemovedError as error:
            threading.Timer(1.0, leave, [f"this site has left the federation: {error}"]).start()
            return b""
        except (FedspanError, OSError) as error:
            report(f"a list of participants is refused: {error}")
            return b""
        if joined.new_key:
            threading.Timer(1.0, restart, ["the site's key was replaced: connecting with the new one"]).start()
        elif joined.new_address:
            report(f"the coordinator moves to {joined.members.server}: this site follows when it is there")
            threading.Thread(target=self._move, args=(joined.members.server,), daemon=True).start()
        return b""

    def _move(self, server: str) -> None:
        host, _, port = server.rpartition(":")
        while True:
            with suppress(OSError), socket.create_connection((host, int(port)), timeout=2.0):
                restart(f"the coordinator is at {server} now")
            time.sleep(2.0)

    def answer(self, request: bytes) -> bytes:
        """Return the worker's answer."""
        with self._lock:
            link = self._free.pop() if self._free else None
        if link is not None and link.poll():  # a worker sends nothing without a request: this one has ended
            link.close()
            link = None
        link = link or self._connect()
        try:
            link.send_bytes(request)
            answer = link.recv_bytes(LONGEST)
        except (EOFError, OSError):
            link.close()
            raise ConnectionError("the site's worker died during this request; it is restarting") from None
        with self._lock:
            self._free.append(link)
        return answer

    def watch(self) -> None:
        """Close the connections to the worker when no user is connected any more; warn before the certificate ends."""
        warned = time.monotonic()
        while True:
            time.sleep(IDLE / 5)
            if time.monotonic() - warned > DAY:
                warned = time.monotonic()
                if soon := ends_soon(self._kit):
                    report(soon)
            if time.monotonic() - self._heard > IDLE:
                with self._lock:
                    idle, self._free = self._free, []
                for link in idle:
                    link.close()

    def _connect(self) -> Connection[bytes, bytes]:
        try:
            return Client(self._path, "AF_UNIX")
        except OSError:
            raise ConnectionError("the site's worker is restarting") from None
