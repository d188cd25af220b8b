"""Handshakes have a deadline at both ends, and unknown connections block no one."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install fedspan[nvflare]")
from fedspan.engines.nvflare.client.user_session import ServerOfflineError, UserSession
from fedspan.engines.nvflare.setup import handshake
from fedspan.engines.nvflare.setup.kit import parse_plan, read_kit
from fedspan.engines.nvflare.setup.provision import provision

PLAN = {"name": "lab", "server": "127.0.0.1:8002", "sites": ["north"], "users": {"alice": "analyst"}}


class Connections:
    """A driver that keeps its connections."""

    def __init__(self):
        self.there = []
        self.add_connection, self.close_connection = self.there.append, lambda connection: None


def paths(kits, name):
    """Return the files of a kit, as NVIDIA FLARE names them."""
    folder, side = kits / name / "startup", "server" if name == "coordinator" else "client"
    found = {"ca_cert": "rootCA.pem", f"{side}_cert": f"{side}.crt", f"{side}_key": f"{side}.key"}
    return {"scheme": "stcp"} | {key: str(folder / file) for key, file in found.items()}


@pytest.fixture
def listening(tmp_path):
    """A server that accepts the kits in ``kits``, and its connections."""
    provision(parse_plan(PLAN), tmp_path / "kits")
    params = paths(tmp_path / "kits", "coordinator") | {"host": "127.0.0.1", "port": 0}
    driver = Connections()
    server = handshake.HandshakeServer(driver, SimpleNamespace(params=params))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address, driver.there
    server.shutdown()
    server.server_close()


def linked(address, params):
    """Connect as a participant does."""
    link = handshake._context(params, ssl_server=False).wrap_socket(socket.socket())
    link.connect(address)
    return link


def test_the_oldest_of_too_many_handshakes_makes_room(listening, tmp_path, monkeypatch):
    monkeypatch.setattr(handshake, "MOST", 3)
    address, there = listening
    silent = [socket.create_connection(address, timeout=20.0) for _ in range(5)]
    try:
        assert [link.recv(1) for link in silent[:2]] == [b"", b""]
        with linked(address, paths(tmp_path / "kits", "north")):
            until = time.monotonic() + 20.0
            while not there:
                assert time.monotonic() < until, "a valid participant is blocked"
                time.sleep(0.01)
        assert there[0].get_conn_properties()["peer_cn"] == "north"
    finally:
        for link in silent:
            link.close()


def test_a_refused_participant_learns_why(listening, tmp_path, monkeypatch):
    reported = []
    monkeypatch.setattr(handshake.HandshakeSocket, "report", staticmethod(reported.append))
    provision(parse_plan(PLAN), tmp_path / "others")
    ours, theirs = paths(tmp_path / "kits", "north"), paths(tmp_path / "others", "north")
    with pytest.raises(ssl.SSLError):
        linked(listening[0], theirs)
    with (
        linked(listening[0], theirs | {"ca_cert": ours["ca_cert"]}) as link,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        link.recv_into(bytearray(16))
    assert reported[0].startswith("the coordinator does not belong to this kit's federation: self-signed certificate")
    assert reported[1] in ("the coordinator refuses this kit: tlsv1 alert unknown ca", handshake.ENDED)
    assert listening[1] == []


def test_a_server_that_accepts_connections_and_stays_silent_is_offline(tmp_path, monkeypatch):
    monkeypatch.setattr(handshake, "DEADLINE", 1.0)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(50)
        plan = parse_plan(PLAN | {"server": f"127.0.0.1:{server.getsockname()[1]}"})
        provision(plan, tmp_path / "kits")
        with pytest.raises(ServerOfflineError, match="the federation's server does not answer"):
            UserSession(read_kit(tmp_path / "kits" / "alice"), login=3.0)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TimeoutError("timed out"), "cannot be reached: it accepts the connection and stays silent"),
        (ssl.SSLError(1, "[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert"), "refuses this kit"),
        (OSError(113, "No route to host"), "cannot be reached: No route to host"),
    ],
)
def test_a_failed_handshake_is_reported_in_words(error, words):
    assert words in handshake.in_words(error)
