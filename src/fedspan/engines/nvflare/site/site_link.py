"""A site's end of the connection: its process passes the coordinator's bytes on to the worker, which decides."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedspan.engines.members.kit_instance import kit_instance
from fedspan.engines.members.member_list import DAY, ends_soon, kit_list
from fedspan.engines.nvflare.client.user_session import SITE_CHANNEL
from fedspan.engines.nvflare.flare import (
    LARGE,
    SERVER,
    Component,
    EventType,
    Head,
    Message,
    RefusedError,
    cell_of,
    connected,
    on_refusal,
    release,
    send_instance,
    serve,
)
from fedspan.engines.nvflare.setup.console_events import REFUSED, NewEvents, report
from fedspan.engines.nvflare.setup.kit import read_kit
from fedspan.engines.nvflare.setup.provision import RemovedError, join
from fedspan.engines.nvflare.setup.reach import trouble
from fedspan.engines.nvflare.site.worker_process import socket_path
from fedspan.engines.remote.messages.environment import fedspan_version
from fedspan.engines.remote.messages.identity import Authority
from fedspan.engines.remote.site.byte_link import ByteLink
from fedspan.errors import FedspanError

#: The link of this process, which makes it, and what starts or ends the process again, with a sentence.
link: SiteLink | None = None
restart: Callable[[str], None] = report
leave: Callable[[str], None] = report

#: Seconds after which no user is connected, as the coordinator's probes state: the worker may then read its data again.
IDLE = 15.0

#: Seconds between two checks of the connection.
EVERY = 2.0


class SiteLinkComponent(Component):  # type: ignore[misc]
    """The link as a component of NVIDIA FLARE's client."""

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Open the link when the site is up; before that, send the instance of the kit with the registration."""
        if link is None:
            return
        if event_type == EventType.BEFORE_CLIENT_REGISTER:
            link.cell = cell_of(fl_ctx)
            on_refusal(link.cell, refused)
            send_instance(fl_ctx, kit_instance(link.kit), fedspan_version())
        elif event_type == EventType.SYSTEM_START:
            serve(link.cell, SITE_CHANNEL, link.answer)
            report(f"{read_kit(link.kit).name} joined the federation")


def refused(why: str) -> None:
    """Report why the coordinator refuses this site, and end where trying again does not help."""
    report(f"the coordinator refuses this site: {why.replace(REFUSED, '')}")
    if REFUSED in why:
        leave("not admitted: this process ends")


class SiteLink:
    """Passes requests to the worker of a kit, and keeps its large answers until they are fetched."""

    def __init__(self, kit: Path) -> None:
        self.instance = secrets.token_hex(8)
        self.kit = kit
        self.cell: Any = None
        self._path = socket_path(kit)
        self._lock = threading.Lock()
        self._free: list[ByteLink] = []
        self._large: dict[str, tuple[Any, float]] = {}  # answers, and until when they are kept
        self._heard = self._warned = time.monotonic()
        self._trouble = NewEvents()

    def answer(self, sender: str, topic: str, head: Head, body: bytes) -> Message:
        """Answer the server: that this site is there, or with the worker's answer. Other sites are refused."""
        if sender != SERVER:
            raise RefusedError("only the federation's server may call a site")
        if topic == "members":
            self.follow(bytes(body))
            return {}, b""
        if topic == "notice":
            report(bytes(body).decode("utf-8", "replace")[:1000])
            return {}, b""
        if head.get("used", True):
            self._heard = time.monotonic()
        if topic == "alive":
            return {"instance": self.instance}, b""
        if topic == "fetch":
            with self._lock:
                kept = self._large.pop(str(head["answer"]), None)
            if kept is None:
                raise RefusedError("the site has no such answer any more")
            return {}, kept[0]
        answer = self.ask(body)
        release(body)
        if len(answer) <= LARGE:
            return {}, answer
        name = secrets.token_hex(8)
        with self._lock:
            self._large[name] = answer, time.monotonic() + float(head["keep"])
        return {"answer": name, "size": len(answer)}, b""

    def follow(self, data: bytes) -> None:
        """Install the list of participants that the coordinator hands out; the worker reads it again by itself."""
        try:
            join(self.kit, data)
        except RemovedError as error:
            threading.Timer(1.0, leave, [f"this site has left the federation: {error}"]).start()
        except (FedspanError, OSError) as error:
            report(f"a list of participants is refused: {error}")

    def check_kit(self, began: tuple[str, str, bytes]) -> None:
        """Start again where the kit has another key than at the start, or another address or transport that answers."""
        server, transport, key = kit_identity(self.kit)
        if key != began[2]:
            restart("the site's key was replaced: connecting with the new one")
        elif server != began[0]:
            host, _, port = server.rpartition(":")
            with suppress(OSError), socket.create_connection((host, int(port)), timeout=1.0):
                restart(f"the coordinator is at {server} now")
        elif transport != began[1] and trouble(read_kit(self.kit), 1.0) is None:
            restart(f"messages travel by {transport} now")

    def ask(self, request: bytes) -> Any:
        """Send a request to the worker, and return its answer."""
        with self._lock:
            link = self._free.pop() if self._free else None
        if link is not None and link.wait(0.0):  # a worker sends nothing without a request: this one has ended
            link.close()
            link = None
        link = link or self._connect()
        try:
            link.send(request)
            answer = link.receive()
        except (EOFError, OSError):
            link.close()
            raise RefusedError("the site's worker died during this request; it is restarting") from None
        with self._lock:
            self._free.append(link)
        return answer

    def watch(self) -> None:
        """Report when the coordinator is offline, and why; start again where the kit changes; warn before its end."""
        events, offline = NewEvents(), True
        began, authority = kit_identity(self.kit), Authority.from_kit(self.kit)
        while True:
            time.sleep(EVERY)
            self.release()
            if self.cell is not None and connected(self.cell):
                if offline and events.last:
                    events.report("the coordinator is back")
                offline = False
            else:
                if not offline:
                    events.report("the coordinator is offline")
                offline = True
            with suppress(FedspanError, OSError):  # of a file that is just being written, or a full disk
                if repaired := authority.repair():
                    report(repaired)
                self.check_kit(began)
                if offline and (why := trouble(read_kit(self.kit))):
                    events.report(why)
                if time.monotonic() - self._warned > DAY:
                    self._warned = time.monotonic()
                    if soon := ends_soon(self.kit):
                        report(soon)

    def release(self) -> None:
        """Forget answers that were not fetched in time; close connections to the worker when no user is connected."""
        now = time.monotonic()
        with self._lock:
            self._large = {name: kept for name, kept in self._large.items() if kept[1] > now}
            idle = self._free if now - self._heard > IDLE else []
            self._free = [] if idle else self._free
        for link in idle:
            link.close()

    def _connect(self) -> ByteLink:
        try:
            return ByteLink.to(self._path)
        except OSError as error:
            why = error.strerror or type(error).__name__
            self._trouble.report(f"requests are refused while this site's worker cannot be reached: {why}")
            raise RefusedError("the site's worker is restarting") from None


def kit_identity(kit: Path) -> tuple[str, str, bytes]:
    """Return the coordinator's address, the transport and the key with which a site of this kit connects."""
    members = kit_list(kit)
    return members.server, members.transport, (kit / "startup" / "client.key").read_bytes()
