"""TLS handshakes that keep nobody waiting: each in a thread of its own, with a deadline, at both ends.

NVIDIA FLARE's server shakes hands in the very loop that takes connections, so that an outsider who connects and says
nothing would lock everybody out; and its client waits for the server's half of a handshake for ever.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable
from socketserver import ThreadingTCPServer
from typing import Any, ClassVar

from nvflare.fuel.f3.drivers import tcp_driver
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.drivers.net_utils import get_ssl_context
from nvflare.fuel.f3.drivers.socket_conn import ConnectionHandler

#: Seconds for a handshake, and how many may be under way at a time.
DEADLINE, MOST = 10.0, 256

ENDED = "the coordinator ends the connection before it says anything: it does not take this kit's certificate"


def _nobody(line: str) -> None:
    """Tell nobody."""


class HandshakeServer(ThreadingTCPServer):
    """Listens in the place of NVIDIA FLARE's own: who is not known yet costs a thread, for `DEADLINE` seconds at most.

    Where more than `MOST` are under way, the oldest one of the address that has the most of them is dropped: a true one
    takes a fraction of a second.
    """

    request_queue_size = 128
    allow_reuse_address = True

    def __init__(self, driver: Any, connector: Any) -> None:
        self.driver, self.connector = driver, connector  # `ConnectionHandler` looks at them
        params = connector.params
        self.ssl_context = get_ssl_context(params, ssl_server=True)
        self._lock = threading.Lock()
        self._unknown: dict[Any, str] = {}  # the address of each connection that is in its handshake, oldest first
        super().__init__((params[DriverParams.HOST.value], int(params[DriverParams.PORT.value])), ConnectionHandler)

    def get_request(self) -> Any:
        """Take a connection, and wait for nothing that it says."""
        link, address = super().get_request()
        if self.ssl_context is not None:
            link.settimeout(DEADLINE)
            link = self.ssl_context.wrap_socket(link, server_side=True, do_handshake_on_connect=False)
            self._admit(link, str(address[0]))
        return link, address

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Shake hands, in the connection's own thread, then serve it; who cannot do it is cut off by the caller."""
        if self.ssl_context is not None:
            try:
                request.do_handshake()
                request.settimeout(None)
            except OSError:
                return
            finally:
                with self._lock:
                    self._unknown.pop(request, None)
        super().finish_request(request, client_address)

    def _admit(self, link: Any, address: str) -> None:
        with self._lock:
            self._unknown[link] = address
            if len(self._unknown) > MOST:
                crowd = Counter(self._unknown.values()).most_common(1)[0][0]
                oldest = next(other for other, where in self._unknown.items() if where == crowd)
                del self._unknown[oldest]
                _cut(oldest)


class HandshakeSocket(ssl.SSLSocket):
    """A client's socket that connects within `DEADLINE` seconds or not at all, and tells why not."""

    tell: ClassVar[Callable[[str], None]] = staticmethod(_nobody)
    heard = False

    def connect(self, address: Any) -> None:
        """Connect and shake hands; from then on wait as long as it takes."""
        self.settimeout(DEADLINE)
        try:
            super().connect(address)
        except OSError as error:
            type(self).tell(in_words(error))
            raise
        self.settimeout(None)

    def recv_into(self, *arguments: Any) -> int:
        """Read; the server's verdict on our own certificate comes only now, or it hangs up without a word."""
        try:
            size = super().recv_into(*arguments)
        except OSError as error:
            if not self.heard:
                type(self).tell(in_words(error) if isinstance(error, ssl.SSLError) else ENDED)
            raise
        if not size and not self.heard:
            type(self).tell(ENDED)
        self.heard = True
        return size


def in_words(error: OSError) -> str:
    """Say why there is no connection with the coordinator.

    >>> in_words(ConnectionRefusedError(111, "Connection refused"))
    'the coordinator cannot be reached: Connection refused'
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the coordinator is not one of this kit's federation: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        reason = getattr(error, "reason", None) or "no reason given"
        return f"the coordinator refuses this kit: {reason.lower().replace('_', ' ')}"
    why = "it takes the connection and says nothing" if isinstance(error, TimeoutError) else error.strerror or error
    return f"the coordinator cannot be reached: {why}"


def _cut(link: Any) -> None:
    """End a connection under the thread that reads from it."""
    try:
        socket.socket.shutdown(link, socket.SHUT_RDWR)
    except OSError:
        return


def _context(params: dict[str, Any], ssl_server: bool) -> ssl.SSLContext | None:
    context: ssl.SSLContext | None = get_ssl_context(params, ssl_server)
    if context is not None and not ssl_server:
        context.sslsocket_class = HandshakeSocket
    return context


def install(tell: Callable[[str], None] = _nobody) -> None:
    """Let NVIDIA FLARE's connections of this process, taken and made, be of this kind; `tell` is told why one fails."""
    HandshakeSocket.tell = staticmethod(tell)
    tcp_driver.TcpStreamServer = HandshakeServer
    tcp_driver.get_ssl_context = _context
