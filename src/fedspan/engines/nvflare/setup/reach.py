"""Why a participant has no connection with the coordinator, in a sentence, found by a handshake with its own kit."""

from __future__ import annotations

import socket
import ssl
import time
from datetime import UTC, datetime
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from fedspan.engines.members.certificates import read_certificate
from fedspan.engines.nvflare.setup.kit import Kit

#: Seconds for a handshake, and for the coordinator's verdict after it.
DEADLINE, VERDICT = 10.0, 2.0

#: OpenSSL's codes of certificates that are not valid yet, or no longer.
_BY_CLOCK = (9, 10)

ENDED = (
    "the coordinator ends the connection before it sends anything: it does not accept this kit's certificate, or has "
    "another transport"
)
OTHER = (
    "the coordinator is there, and its messages do not travel by {}: 'join' with the authority's newest list, which "
    "has the federation's transport"
)


def trouble(kit: Kit, seconds: float = DEADLINE) -> str | None:
    """Return why the kit's holder can't connect to the coordinator; ``None`` if it can."""
    context = ssl.create_default_context(cafile=str(kit.path / "startup" / "rootCA.pem"))
    context.check_hostname = False  # gRPC checks it
    context.load_cert_chain(kit.path / "startup" / "client.crt", kit.path / "startup" / "client.key")
    context.set_alpn_protocols(["h2"] if kit.transport == "grpc" else ["http/1.1"])
    try:
        with _connected(kit, seconds) as plain, context.wrap_socket(plain) as link:
            if kit.transport == "grpc" and link.selected_alpn_protocol() != "h2":
                return OTHER.format(kit.transport)
            try:
                link.settimeout(VERDICT)
                if kit.transport == "http":  # it speaks second
                    link.sendall(b"GET / HTTP/1.1\r\nHost: coordinator\r\nConnection: close\r\n\r\n")
                return None if link.recv(1) else _ended(kit, ENDED)
            except TimeoutError:
                return None
            except ConnectionError:
                return _ended(kit, ENDED)
    except ssl.SSLCertVerificationError as error:
        return in_words(error)
    except ssl.SSLError as error:
        return _ended(kit, in_words(error))
    except OSError as error:
        return in_words(error)


def _ended(kit: Kit, otherwise: str) -> str:
    """Return why the coordinator may have ended the connection: the kit's own certificate is not valid, for one."""
    own, now = read_certificate((kit.path / "startup" / "client.crt").read_bytes()), datetime.now(UTC)
    if own.not_valid_before_utc <= now <= own.not_valid_after_utc:
        return otherwise
    return (
        f"the certificate of {kit.name} is valid from {own.not_valid_before_utc:%Y-%m-%d %H:%M} to "
        f"{own.not_valid_after_utc:%Y-%m-%d %H:%M}, and the clock here says {now:%Y-%m-%d %H:%M} (UTC): let the "
        "authority renew it and 'join' with its newest list, or set this machine's clock"
    )


def in_words(error: OSError) -> str:
    """Return why there is no connection with the coordinator.

    >>> in_words(ConnectionRefusedError(111, "Connection refused"))
    'the coordinator cannot be reached: Connection refused'
    """
    if isinstance(error, ssl.SSLCertVerificationError) and error.verify_code in _BY_CLOCK:
        now = time.strftime("%Y-%m-%d %H:%M")
        return (
            f"the coordinator's certificate is not valid by the clock here, which says {now}: set this machine's "
            "clock, or let the authority renew the certificate"
        )
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the coordinator does not belong to this kit's federation: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        reason = getattr(error, "reason", None) or "no reason given"
        return f"the coordinator refuses this kit: {reason.lower().replace('_', ' ')}"
    why = "it accepts the connection and stays silent" if isinstance(error, TimeoutError) else error.strerror or error
    return f"the coordinator cannot be reached: {why}"


def proxy_of(kit: Kit) -> str | None:
    """Return the proxy, ``host:port``, through which the environment lets this kit connect, if any."""
    host = kit.server.rpartition(":")[0]
    if kit.transport == "tcp" or proxy_bypass(host):
        return None
    named, kinds = getproxies(), ("grpc", "https", "http") if kit.transport == "grpc" else ("https",)
    found = next((named[kind] for kind in kinds if kind in named), None)
    return urlsplit(found if "//" in found else f"//{found}").netloc.rpartition("@")[2] if found else None


def _connected(kit: Kit, seconds: float) -> socket.socket:
    """Return a connection to the coordinator's port, through a proxy where the environment names one."""
    proxy = proxy_of(kit)
    host, _, port = (proxy or kit.server).rpartition(":")
    link = socket.create_connection((host, int(port)), timeout=seconds)
    if proxy is not None:
        link.sendall(f"CONNECT {kit.server} HTTP/1.1\r\nHost: {kit.server}\r\n\r\n".encode())
        answer = b""
        while b"\r\n\r\n" not in answer and (piece := link.recv(1024)):
            answer += piece
        if b" 200" not in answer.partition(b"\r\n")[0]:
            link.close()
            said = answer.partition(b"\r\n")[0].decode(errors="replace")[:100]
            raise OSError(f"the proxy {proxy} answers {said!r}")
    return link
