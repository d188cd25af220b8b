"""TLS handshakes with a deadline, each in a thread of its own, at both ends.

NVIDIA FLARE's server shakes hands in the loop that accepts connections: one silent outsider would block all others. Its
client waits for the server's half of a handshake without a limit.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from socketserver import ThreadingTCPServer
from typing import Any, ClassVar

from nvflare.fuel.f3.drivers import tcp_driver
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.drivers.net_utils import get_ssl_context
from nvflare.fuel.f3.drivers.socket_conn import ConnectionHandler

#: Seconds for a handshake, and the number of them that may be under way at a time.
DEADLINE, MOST = 10.0, 256

ENDED = "the coordinator ends the connection before it sends anything: it does not accept this kit's certificate"


class HandshakeServer(ThreadingTCPServer):
    """Replaces NVIDIA FLARE's own: an unknown connection costs a thread, for `DEADLINE` seconds at most.

    Where more than `MOST` are under way, the oldest one of the address that has the most of them is dropped. An honest
    handshake takes a fraction of a second.
    """

    request_queue_size = 128
    allow_reuse_address = True

    def __init__(self, driver: Any, connector: Any) -> None:
        self.driver, self.connector = driver, connector  # `ConnectionHandler` reads them
        params = connector.params
        self.ssl_context = get_ssl_context(params, ssl_server=True)
        self._lock = threading.Lock()
        self._pending: dict[Any, str] = {}  # the address of each connection in its handshake, oldest first
        super().__init__((params[DriverParams.HOST.value], int(params[DriverParams.PORT.value])), ConnectionHandler)

    def get_request(self) -> Any:
        """Accept a connection without waiting for anything that it sends."""
        link, address = super().get_request()
        if self.ssl_context is not None:
            link.settimeout(DEADLINE)
            link = self.ssl_context.wrap_socket(link, server_side=True, do_handshake_on_connect=False)
            self._register(link, str(address[0]))
        return link, address

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Shake hands in the connection's own thread, then serve it. The caller closes one that fails."""
        if self.ssl_context is not None:
            try:
                request.do_handshake()
                request.settimeout(None)
            except OSError:
                return
            finally:
                with self._lock:
                    self._pending.pop(request, None)
        super().finish_request(request, client_address)

    def _register(self, link: Any, address: str) -> None:
        with self._lock:
            self._pending[link] = address
            if len(self._pending) > MOST:
                busiest = Counter(self._pending.values()).most_common(1)[0][0]
                oldest = next(other for other, where in self._pending.items() if where == busiest)
                del self._pending[oldest]
                _cut(oldest)


class HandshakeSocket(ssl.SSLSocket):
    """A client's socket that connects within `DEADLINE` seconds or not at all, and reports why not."""

    report: ClassVar[Callable[[str], None]] = staticmethod(lambda line: None)
    heard = False

    def connect(self, address: Any) -> None:
        """Connect and shake hands; later reads have no deadline."""
        self.settimeout(DEADLINE)
        try:
            super().connect(address)
        except OSError as error:
            type(self).report(in_words(error))
            raise
        self.settimeout(None)

    def recv_into(self, *arguments: Any) -> int:
        """Read. The server's verdict on our own certificate comes only now, or it closes the connection."""
        try:
            size = super().recv_into(*arguments)
        except OSError as error:
            if not self.heard:
                type(self).report(in_words(error) if isinstance(error, ssl.SSLError) else ENDED)
            raise
        if not size and not self.heard:
            type(self).report(ENDED)
        self.heard = True
        return size


def in_words(error: OSError) -> str:
    """Return why there is no connection with the coordinator.

    >>> in_words(ConnectionRefusedError(111, "Connection refused"))
    'the coordinator cannot be reached: Connection refused'
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the coordinator does not belong to this kit's federation: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        reason = getattr(error, "reason", None) or "no reason given"
        return f"the coordinator refuses this kit: {reason.lower().replace('_', ' ')}"
    why = "it accepts the connection and stays silent" if isinstance(error, TimeoutError) else error.strerror or error
    return f"the coordinator cannot be reached: {why}"


def _cut(link: Any) -> None:
    """End a connection from which another thread reads."""
    with suppress(OSError):
        socket.socket.shutdown(link, socket.SHUT_RDWR)


def _context(params: dict[str, Any], ssl_server: bool) -> ssl.SSLContext | None:
    context: ssl.SSLContext | None = get_ssl_context(params, ssl_server)
    if context is not None and not ssl_server:
        context.sslsocket_class = HandshakeSocket
    return context


def install(report: Callable[[str], None] = lambda line: None) -> None:
    """Use these classes for NVIDIA FLARE's connections of this process; `report` gets the reason why one fails."""
    HandshakeSocket.report = staticmethod(report)
    tcp_driver.TcpStreamServer = HandshakeServer
    tcp_driver.get_ssl_context = _context
