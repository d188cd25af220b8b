"""Handshakes have a deadline at both ends, and those who are not known yet keep nobody out."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install fedspan[nvflare]")
from fedspan.engines.nvflare import handshake
from fedspan.engines.nvflare.kit import read_kit
from fedspan.engines.nvflare.plan import parse_plan
from fedspan.engines.nvflare.provision import provision
from fedspan.engines.nvflare.screen import News
from fedspan.engines.nvflare.session import AwayError, Session

PLAN = {"name": "lab", "server": "127.0.0.1:8002", "sites": ["north"], "users": {"alice": "analyst"}}


class Connections:
    """A driver that keeps what it is given."""

    def __init__(self):
        self.there = []
        self.add_connection, self.close_connection = self.there.append, lambda connection: None


def test_the_oldest_of_too_many_handshakes_makes_room(tmp_path, monkeypatch):
    monkeypatch.setattr(handshake, "MOST", 3)
    provision(parse_plan(PLAN, "fed.toml"), tmp_path / "kits")
    ours, theirs = (tmp_path / "kits" / name / "startup" for name in ("coordinator", "north"))
    params = {"scheme": "stcp", "host": "127.0.0.1", "port": 0, "secure": True}
    params |= {"ca_cert": str(ours / "rootCA.pem"), "server_cert": str(ours / "server.crt")}
    params |= {"server_key": str(ours / "server.key")}
    driver = Connections()
    server = handshake.HandshakeServer(driver, SimpleNamespace(params=params))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    silent = [socket.create_connection(server.server_address, timeout=20.0) for _ in range(5)]
    try:
        assert [link.recv(1) for link in silent[:2]] == [b"", b""]
        context = ssl.create_default_context(cafile=str(theirs / "rootCA.pem"))
        context.check_hostname = False
        context.load_cert_chain(str(theirs / "client.crt"), str(theirs / "client.key"))
        with socket.create_connection(server.server_address, timeout=20.0) as plain, context.wrap_socket(plain):
            until = time.monotonic() + 20.0
            while not driver.there:
                assert time.monotonic() < until, "a true participant is kept out"
                time.sleep(0.01)
        assert driver.there[0].get_conn_properties()["peer_cn"] == "north"
    finally:
        for link in silent:
            link.close()
        server.shutdown()
        server.server_close()


def test_a_server_that_takes_connections_and_says_nothing_is_away(tmp_path, monkeypatch):
    monkeypatch.setattr(handshake, "DEADLINE", 1.0)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(50)
        plan = parse_plan(PLAN | {"server": f"127.0.0.1:{server.getsockname()[1]}"}, "fed.toml")
        provision(plan, tmp_path / "kits")
        with pytest.raises(AwayError, match="the federation's server does not answer"):
            Session(read_kit(tmp_path / "kits" / "alice"), login=3.0)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TimeoutError("timed out"), "cannot be reached: it takes the connection and says nothing"),
        (ssl.SSLError(1, "[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert"), "refuses this kit"),
        (OSError(113, "No route to host"), "cannot be reached: No route to host"),
    ],
)
def test_a_failed_handshake_is_told_in_words(error, said):
    assert said in handshake.in_words(error)


def test_what_is_said_again_and_again_is_said_once(capsys):
    news = News()
    for line in ("one", "one", "two", "one"):
        news.say(line)
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["one", "two", "one"]
