"""A small web server for local pages: nothing is shown, and nothing is changed, without a token.

A visitor logs in with the token of a file, or with a link that works once. The session is a cookie that scripts and
other sites can't use. A request that changes something must also carry the form's own token, and come from this page.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fedspan.console.page_layout import POLICY, login_page, message_page
from fedspan.durable.whole_file import write_whole
from fedspan.errors import FedspanError, InputError

#: Seconds that a session lasts; bytes of the largest form; seconds that a wrong token costs; letters of the shortest.
SESSION, LARGEST_FORM, WRONG, SHORTEST = 12 * 3600.0, 2**16, 1.0, 12
#: Connections that are open at a time.
MOST_CONNECTIONS = 64


@dataclass(frozen=True)
class Visit:
    """A request of a visitor who is logged in: its path, its parameters or form, and the token for forms."""

    path: str
    values: Mapping[str, str]
    form_token: str = ""


@dataclass(frozen=True)
class Answer:
    """What is sent back: a page, a file to keep (`name`), or where to go on; `policy` is what the browser may do."""

    body: bytes = b""
    kind: str = "text/html; charset=utf-8"
    status: int = 200
    to: str = ""
    name: str = ""
    policy: str = POLICY


#: Shows a page, or changes something and returns the page that follows.
Handler = Callable[[Visit], Answer]


@dataclass
class Pages:
    """The pages of one server: by path, those that show and those that change something, and figures for monitors."""

    shows: Mapping[str, Handler]
    changes: Mapping[str, Handler] = field(default_factory=dict)
    metrics: Callable[[], str] | None = None


class PageServer:
    """Serves pages until `close`.

    Parameters
    ----------
    pages : Pages
    token : str
        Logs a visitor in.
    metrics_token : str
        Reads the figures for monitors, and nothing else.
    host, port
        Where it listens; port 0 takes a free one.
    """

    def __init__(self, pages: Pages, token: str, metrics_token: str, host: str = "127.0.0.1", port: int = 0) -> None:
        self.pages = pages
        self._token = token
        self._metrics_token = metrics_token
        self._codes: set[str] = set()
        self._sessions: dict[str, tuple[float, str]] = {}  # by cookie: until when, and the token of its forms
        self._lock = threading.Lock()
        self._wrong = threading.Lock()
        server = self

        class _Request(_Handler):
            pages_server = server

        try:
            self._http = _Threads((host, port), _Request)
        except OSError as error:
            raise InputError(f"the page can't listen at {host}:{port}: {error.strerror}; name another port") from None
        self.host, self.port = host, int(self._http.server_address[1])

    def serve(self) -> None:
        """Answer requests until `close`."""
        self._http.serve_forever(poll_interval=0.2)

    def close(self) -> None:
        """Stop."""
        self._http.shutdown()
        self._http.server_close()

    @property
    def address(self) -> str:
        """The address of the page for a browser on this machine."""
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::", "") else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    @property
    def cookie(self) -> str:
        """The name of the cookie: browsers send those of one machine to all of its ports."""
        return f"fedspan-{self.port}"

    def link(self) -> str:
        """Return a link that logs in, once."""
        code = secrets.token_urlsafe(16)
        with self._lock:
            self._codes.add(code)
        return f"{self.address}login?code={code}"

    def log_in(self, *, token: str = "", code: str = "") -> str | None:
        """Return the cookie of a new session, or ``None`` after a pause: guesses are answered one after the other."""
        with self._lock:
            known = code in self._codes and bool(code)
            self._codes.discard(code)
        if not known and not (token and hmac.compare_digest(token.encode(), self._token.encode())):
            with self._wrong:
                time.sleep(WRONG)
            return None
        cookie = secrets.token_urlsafe(32)
        with self._lock:
            now = time.monotonic()
            self._sessions = {key: one for key, one in self._sessions.items() if one[0] > now}
            self._sessions[cookie] = now + SESSION, secrets.token_urlsafe(32)
        return cookie

    def session(self, cookie: str) -> str | None:
        """Return the token of the forms of a session, or ``None`` without a session."""
        with self._lock:
            until, form_token = self._sessions.get(cookie, (0.0, ""))
            return form_token if until > time.monotonic() else None

    def log_out(self, cookie: str) -> None:
        """End a session."""
        with self._lock:
            self._sessions.pop(cookie, None)

    def may_read_metrics(self, authorization: str) -> bool:
        """Return whether a monitor has the token for figures."""
        kind, _, token = authorization.partition(" ")
        return kind == "Bearer" and hmac.compare_digest(token.encode(), self._metrics_token.encode())

    def knows_host(self, host: str) -> bool:
        """Return whether a request is meant for this server: by number, as ``localhost``, or by its own name.

        A page of another site whose name was pointed here (DNS rebinding) has another one.
        """
        name = urlsplit(f"//{host}").hostname or ""
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name == "localhost" or (bool(name) and name == self.host.lower())
        return True


class _Threads(ThreadingHTTPServer):
    """A thread for each connection; of too many the oldest ends. A visitor who sends slowly keeps no other one out."""

    daemon_threads = True
    request_queue_size = 32

    def __init__(self, *arguments: Any) -> None:
        self._connections: dict[Any, None] = {}  # the oldest first
        self._changing = threading.Lock()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread of its own."""
        with self._changing:
            if len(self._connections) >= MOST_CONNECTIONS:
                oldest = next(iter(self._connections))
                del self._connections[oldest]
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread then reads the end, and closes it
            self._connections[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._changing:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error, but no visitor who has left or is too slow."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers one request of each connection: what follows it is not taken for another request."""

    pages_server: PageServer
    server_version = "fedspan"
    sys_version = ""
    timeout = 10

    def do_GET(self) -> None:
        """Show a page."""
        self._answer(self._shown)

    def do_POST(self) -> None:
        """Change something."""
        self._answer(self._changed)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Write no line for each request."""

    def _answer(self, make: Callable[[], tuple[Answer, str | None]]) -> None:
        try:
            answer, cookie = make()
        except FedspanError as error:
            answer, cookie = self._message(400, str(error)), None
        except (ValueError, UnicodeError, CookieError):
            answer, cookie = self._message(400, "The request can't be read."), None
        self._send(answer, cookie)

    def _shown(self) -> tuple[Answer, str | None]:
        server, parts = self.pages_server, urlsplit(self.path)
        values = _values(parts.query)
        if not server.knows_host(self.headers.get("Host", "")):
            return self._message(421, "This page is for its own machine."), None
        if parts.path == "/metrics" and server.pages.metrics is not None:
            if not server.may_read_metrics(self.headers.get("Authorization", "")):
                return Answer(b"a token is needed\n", "text/plain; charset=utf-8", 401), None
            return Answer(server.pages.metrics().encode(), "text/plain; version=0.0.4; charset=utf-8"), None
        form_token = server.session(self._cookie())
        if parts.path == "/login" and "code" in values:
            cookie = server.log_in(code=values["code"])
            return (Answer(status=303, to="/"), cookie) if cookie else (self._login("The link was used before."), None)
        if form_token is None:
            return self._login(""), None
        if parts.path not in server.pages.shows:
            return self._message(404, "There is no such page."), None
        return server.pages.shows[parts.path](Visit(parts.path, values, form_token)), None

    def _changed(self) -> tuple[Answer, str | None]:
        server, path = self.pages_server, urlsplit(self.path).path
        host = self.headers.get("Host", "")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > LARGEST_FORM:
            return self._message(413, "The form is too long."), None
        values = _values(self.rfile.read(int(length)).decode("utf-8"))
        if not server.knows_host(host) or self.headers.get("Origin") != f"http://{host}":
            return self._message(403, "The form was sent by another page."), None
        if path == "/login":
            cookie = server.log_in(token=values.get("token", ""))
            return (Answer(status=303, to="/"), cookie) if cookie else (self._login("This is not the token."), None)
        form_token = server.session(self._cookie())
        if form_token is None:
            return self._login(""), None
        if not hmac.compare_digest(values.get("form_token", "").encode(), form_token.encode()):
            return self._message(403, "The form is an old one. Go back, load the page again, and repeat it."), None
        if path == "/logout":
            server.log_out(self._cookie())
            return Answer(status=303, to="/"), None
        if path not in server.pages.changes:
            return self._message(404, "There is no such form."), None
        return server.pages.changes[path](Visit(path, values, form_token)), None

    def _cookie(self) -> str:
        found = SimpleCookie(self.headers.get("Cookie", "")).get(self.pages_server.cookie)
        return "" if found is None else found.value

    def _login(self, problem: str) -> Answer:
        return Answer(login_page(problem).encode(), status=401)

    def _message(self, status: int, words: str) -> Answer:
        return Answer(message_page(words).encode(), status=status)

    def _send(self, answer: Answer, cookie: str | None) -> None:
        self.send_response(answer.status)
        if answer.to:
            self.send_header("Location", answer.to)
        if cookie is not None:
            self.send_header("Set-Cookie", f"{self.pages_server.cookie}={cookie}; HttpOnly; SameSite=Strict; Path=/")
        if answer.name:
            self.send_header("Content-Disposition", f'attachment; filename="{answer.name}"')
        for name, value in (
            ("Content-Type", answer.kind),
            ("Content-Length", str(len(answer.body))),
            ("Content-Security-Policy", answer.policy),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Referrer-Policy", "same-origin"),
            ("Cache-Control", "no-store"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)


def _values(text: str) -> dict[str, str]:
    return {name: found[-1] for name, found in parse_qs(text, keep_blank_values=True, max_num_fields=100).items()}


def token_in(path: Path) -> str:
    """Return the token of a file of mode 0600, made where it does not exist. An owner may write another one into it."""
    if not path.exists():
        write_whole(path, f"{secrets.token_urlsafe(24)}\n".encode())
    if path.stat().st_mode & 0o077:
        raise InputError(f"{path} holds a token, and others can read it: restrict it with chmod 600")
    token = path.read_text(encoding="utf-8").strip()
    if len(token) < SHORTEST:
        raise InputError(f"{path} must hold a token of at least {SHORTEST} letters: write a longer one, or delete it")
    return token


def address_of(text: str) -> tuple[str, int]:
    """Return host and port of an address such as ``127.0.0.1:8765``, or of a port alone.

    >>> address_of("8765"), address_of("[::1]:8765")
    (('127.0.0.1', 8765), ('::1', 8765))
    """
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise InputError(f"{text!r} is not the address of a page, such as 8765 or 127.0.0.1:8765")
    return host.strip("[]") or "127.0.0.1", int(port)
