"""No request without a token shows or changes anything, whatever else it holds."""

from __future__ import annotations

import http.client
import re
import socket
from contextlib import suppress
from urllib.parse import urlencode, urlsplit

import pytest

from fedspan.console import page_server
from fedspan.console.page_server import address_of, token_in
from fedspan.errors import InputError

from .owned_example import Clinic

PATHS = ("/", "/data", "/log", "/log.jsonl", "/budget")
FORMS = ("/decide", "/stop", "/pause", "/resume", "/logout")


@pytest.fixture(scope="module")
def clinic(tmp_path_factory):
    made = Clinic(tmp_path_factory.mktemp("clinic") / "site")
    made.propose()
    yield made
    made.close()


@pytest.fixture
def server(clinic, monkeypatch):
    monkeypatch.setattr(page_server, "WRONG", 0.0)
    with clinic.served() as made:
        yield made


def send(server, method, path, values=None, **headers):
    """Return status, headers and text of an answer; names of headers are written with underscores."""
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    sent = {"Host": f"127.0.0.1:{server.port}", **{name.replace("_", "-"): text for name, text in headers.items()}}
    body = urlencode(values or {}) if method == "POST" else None
    if method == "POST":
        sent |= {"Content-Type": "application/x-www-form-urlencoded"}
        sent.setdefault("Origin", f"http://127.0.0.1:{server.port}")
    link.request(method, path, body, {name: text for name, text in sent.items() if text is not None})
    answer = link.getresponse()
    text = answer.read().decode()
    link.close()
    return answer.status, dict(answer.getheaders()), text


def logged_in(server):
    parts = urlsplit(server.link())
    status, headers, _ = send(server, "GET", f"{parts.path}?{parts.query}")
    assert status == 303
    cookie = headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    cookie = cookie.partition(";")[0]
    page = send(server, "GET", "/", Cookie=cookie)[2]
    return cookie, re.search('name="form_token" value="([^"]+)"', page)[1]


@pytest.mark.parametrize("cookie", [None, "{}=", "{}=guess", "other=1", "\x7f", "{}=a; {}=b"])
def test_without_a_session_nothing_is_shown(server, clinic, cookie):
    cookie = cookie and cookie.replace("{}", server.cookie)
    answers = [send(server, "GET", path, Cookie=cookie) for path in (*PATHS, "/nothing", "/../kit/console.token")]
    assert {status for status, _, _ in answers} <= {400, 401}
    text = "".join(text for _, _, text in answers)
    for secret in ("clinics", "alice", "dose", "FedPCA", "audit", "Site a"):
        assert secret not in text


@pytest.mark.parametrize("path", FORMS)
def test_without_a_session_nothing_is_changed(server, clinic, path):
    before = clinic.decisions.path.read_bytes()
    values = {"ticket": "ticket-1", "decision": "always", "run": "r", "why": "x", "form_token": ""}
    assert send(server, "POST", path, values)[0] == 401
    assert clinic.decisions.path.read_bytes() == before


@pytest.mark.parametrize(
    ("values", "headers"),
    [
        ({}, {}),
        ({"form_token": ""}, {}),
        ({"form_token": "guess"}, {}),
        ("right", {"Origin": "http://evil.example"}),
        ("right", {"Origin": "null"}),
        ("right", {"Origin": None}),
        ("right", {"Host": "evil.example", "Origin": "http://evil.example"}),
    ],
)
def test_a_form_of_another_page_changes_nothing(server, clinic, values, headers):
    before = clinic.decisions.path.read_bytes()
    cookie, token = logged_in(server)
    values = {"form_token": token} if values == "right" else values
    status, _, _ = send(server, "POST", "/pause", {"why": "x", **values}, Cookie=cookie, **headers)
    assert status == 403
    assert clinic.decisions.path.read_bytes() == before


def test_reading_never_changes_anything(server, clinic):
    before = clinic.decisions.path.read_bytes()
    cookie, token = logged_in(server)
    for path in FORMS:
        query = urlencode({"form_token": token, "ticket": "ticket-1", "decision": "always", "run": "r"})
        assert send(server, "GET", f"{path}?{query}", Cookie=cookie)[0] == 404
    assert clinic.decisions.path.read_bytes() == before


def test_another_name_of_the_machine_is_refused(server):
    cookie, _ = logged_in(server)
    assert send(server, "GET", "/", Cookie=cookie, Host="evil.example")[0] == 421
    assert send(server, "GET", "/", Cookie=cookie, Host=f"localhost:{server.port}")[0] == 200


def test_the_token_logs_in_and_a_wrong_one_does_not(server, clinic):
    token = (clinic.kit / "console.token").read_text().strip()
    assert send(server, "POST", "/login", {"token": "wrong"})[0] == 401
    assert send(server, "POST", "/login", {"token": ""})[0] == 401
    assert send(server, "POST", "/login", {"token": token}, Origin="http://evil.example")[0] == 403
    status, headers, _ = send(server, "POST", "/login", {"token": token})
    assert (status, headers["Location"]) == (303, "/")


def test_a_link_logs_in_once(server):
    parts = urlsplit(server.link())
    path = f"{parts.path}?{parts.query}"
    assert send(server, "GET", path)[0] == 303
    assert send(server, "GET", path)[0] == 401


def test_after_logging_out_the_cookie_is_worth_nothing(server):
    cookie, token = logged_in(server)
    assert send(server, "POST", "/logout", {"form_token": token}, Cookie=cookie)[0] == 303
    assert send(server, "GET", "/", Cookie=cookie)[0] == 401


def test_a_session_ends(server, monkeypatch):
    monkeypatch.setattr(page_server, "SESSION", -1.0)
    cookie = server.log_in(token=(server._token))
    assert send(server, "GET", "/", Cookie=f"{server.cookie}={cookie}")[0] == 401


def test_pages_allow_no_script_and_no_frame(server):
    cookie, _ = logged_in(server)
    for path in PATHS:
        _, headers, text = send(server, "GET", path, Cookie=cookie)
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["Cache-Control"] == "no-store"
        assert "<script" not in text


def test_figures_need_their_own_token(server, clinic):
    metrics, console = ((clinic.kit / f"{name}.token").read_text().strip() for name in ("metrics", "console"))
    assert send(server, "GET", "/metrics")[0] == 401
    assert send(server, "GET", "/metrics", Authorization=f"Bearer {console}")[0] == 401
    status, _, text = send(server, "GET", "/metrics", Authorization=f"Bearer {metrics}")
    assert status == 200
    assert 'fedspan_site_studies{state="waiting"} 1' in text
    assert "alice" not in text
    assert send(server, "GET", "/", Cookie=f"{server.cookie}={metrics}")[0] == 401


def test_two_pages_of_one_machine_keep_their_sessions(clinic):
    with clinic.served() as one, clinic.served() as other:
        both = "; ".join(logged_in(server)[0] for server in (one, other))
        assert [send(server, "GET", "/", Cookie=both)[0] for server in (one, other)] == [200, 200]


@pytest.mark.parametrize(
    "head",
    [
        "GET / HTTP/1.1\r\nContent-Length: 99\r\nHost: {}\r\n",
        "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nHost: {}\r\n",
        "GET / HTTP/1.1\r\nConnection: keep-alive\r\nHost: {}\r\n",
        "POST /login HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 99\r\nHost: {}\r\n",
        "POST /login HTTP/1.1\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\nHost: {}\r\n",
    ],
)
def test_a_request_within_another_is_not_answered(server, head):
    """As one that another party hides in a request of its own, where a proxy shares a connection."""
    host = f"127.0.0.1:{server.port}"
    hidden = f"GET /data HTTP/1.1\r\nHost: {host}\r\nCookie: {logged_in(server)[0]}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=120) as link:
        link.sendall((head.format(host) + "\r\n" + hidden).encode())
        answers = b""
        with suppress(ConnectionResetError):  # what was not read
            while part := link.recv(2**16):
                answers += part
    assert answers.count(b"HTTP/1.") <= 1
    assert b"dose" not in answers


@pytest.mark.parametrize("length", ["-1", "x", str(10**9)])
def test_a_form_that_is_too_long_is_not_read(server, length):
    assert send(server, "POST", "/pause", Content_Length=length)[0] == 413


def test_visitors_who_send_slowly_keep_no_other_one_out(server, monkeypatch, capfd):
    """Each of them had a thread for as long as it sent a letter now and then."""
    monkeypatch.setattr(page_server, "MOST_CONNECTIONS", 5)
    slow = [socket.create_connection(("127.0.0.1", server.port), timeout=120) for _ in range(20)]
    for link in slow:
        with suppress(OSError):  # it has ended already
            link.sendall(b"POST /login HTTP/1.1\r\nContent-Length: 1000\r\n\r\na")
    assert send(server, "GET", "/")[0] == 401
    for link in slow[:-5]:
        with suppress(ConnectionResetError):
            link.recv(1)  # the server has ended it
    for link in slow:
        link.close()
    assert "Traceback" not in capfd.readouterr().err


def test_a_file_with_a_token_must_be_private_and_long(tmp_path):
    file = tmp_path / "token"
    token = token_in(file)
    assert token_in(file) == token
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o644)
    with pytest.raises(InputError, match="chmod 600"):
        token_in(file)
    file.chmod(0o600)
    file.write_text("short")
    with pytest.raises(InputError, match="at least 12"):
        token_in(file)


@pytest.mark.parametrize("text", ["", "x", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:-1"])
def test_an_address_that_is_none(text):
    with pytest.raises(InputError, match="not the address"):
        address_of(text)
