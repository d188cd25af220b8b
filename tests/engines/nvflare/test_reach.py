"""Why there is no connection, in a sentence: found at once, whatever the coordinator's port does."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import threading
from dataclasses import replace

import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install '.[nvflare]' in a checkout")
from fedspan.engines.members.certificates import issue, read_certificate
from fedspan.engines.nvflare.client.user_session import ServerOfflineError, UserSession
from fedspan.engines.nvflare.setup import reach
from fedspan.engines.nvflare.setup.kit import parse_plan, read_kit
from fedspan.engines.nvflare.setup.processes import listening_address
from fedspan.engines.nvflare.setup.provision import provision
from fedspan.errors import InputError

PLAN = {"name": "lab", "server": "127.0.0.1:8002", "sites": ["north"], "users": {"alice": "analyst"}}


@pytest.fixture(scope="module")
def kits(tmp_path_factory):
    """The kits of a federation, and those of another authority."""
    folder = tmp_path_factory.mktemp("kits")
    for name in ("ours", "theirs"):
        provision(parse_plan(PLAN), folder / name)
    return folder


@pytest.fixture
def listening(kits, request):
    """A server with the coordinator's certificate: it greets those whose certificate it accepts, by gRPC or HTTP."""
    startup = kits / "ours" / "coordinator" / "startup"
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(startup / "rootCA.pem"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(startup / "server.crt", startup / "server.key")
    context.set_alpn_protocols([getattr(request, "param", "h2")])
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                plain = server.accept()[0]
            except OSError:
                return
            with contextlib.suppress(OSError), plain, context.wrap_socket(plain, server_side=True) as link:
                link.sendall(b"hello")
                link.recv(1)

    threading.Thread(target=serve, daemon=True).start()
    yield server.getsockname()
    server.close()


def kit_at(path, address):
    return replace(read_kit(path), server=f"{address[0]}:{address[1]}")


@pytest.mark.parametrize(("code", "clock"), [(9, True), (10, True), (18, False)])
def test_a_clock_that_is_wrong_is_named(code, clock):
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, "as OpenSSL says"
    words = reach.in_words(error)
    assert ("set this machine's clock" in words) == clock
    assert ("does not belong to this kit's federation" in words) != clock


def test_each_reason_has_its_sentence(kits, listening):
    assert reach.trouble(kit_at(kits / "ours" / "alice", listening)) is None
    foreign = reach.trouble(kit_at(kits / "theirs" / "alice", listening))
    assert foreign.startswith("the coordinator does not belong to this kit's federation: self-signed certificate")
    copied = kits / "copied"
    copied.mkdir()
    (copied / "startup").mkdir()
    for name in ("client.crt", "client.key"):
        (copied / "startup" / name).write_bytes((kits / "theirs" / "alice" / "startup" / name).read_bytes())
    root = (kits / "ours" / "alice" / "startup" / "rootCA.pem").read_bytes()
    (copied / "startup" / "rootCA.pem").write_bytes(root)
    refused = reach.trouble(replace(kit_at(kits / "theirs" / "alice", listening), path=copied))
    assert refused in ("the coordinator refuses this kit: tlsv1 alert unknown ca", reach.ENDED)


def test_a_certificate_of_ones_own_that_has_ended_is_named(kits, listening):
    expired, authority = kits / "expired", kits / "ours" / "authority"
    shutil.copytree(kits / "ours" / "alice", expired)
    root, key = (expired / "startup" / "rootCA.pem").read_bytes(), (authority / "root.key").read_bytes()
    public = read_certificate((expired / "startup" / "client.crt").read_bytes()).public_key()
    (expired / "startup" / "client.crt").write_bytes(issue(root, key, public, "alice", "analyst", days=-0.5))
    why = reach.trouble(kit_at(expired, listening))
    assert "the certificate of alice is valid from" in why
    assert "let the authority renew it" in why


@pytest.mark.parametrize("listening", ["http/1.1"], indirect=True)
def test_another_transport_is_named(kits, listening):
    assert reach.trouble(kit_at(kits / "ours" / "alice", listening)) == reach.OTHER.format("grpc")
    assert reach.trouble(replace(kit_at(kits / "ours" / "alice", listening), transport="http")) is None


def test_a_server_that_accepts_connections_and_stays_silent_is_offline(kits):
    with socket.create_server(("127.0.0.1", 0)) as server:
        kit = kit_at(kits / "ours" / "alice", server.getsockname())
        with pytest.raises(ServerOfflineError, match="it accepts the connection and stays silent"):
            UserSession(kit, login=1.0)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TimeoutError("timed out"), "cannot be reached: it accepts the connection and stays silent"),
        (ssl.SSLError(1, "[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert"), "refuses this kit"),
        (OSError(113, "No route to host"), "cannot be reached: No route to host"),
    ],
)
def test_a_failed_handshake_is_reported_in_words(error, words):
    assert words in reach.in_words(error)


def test_a_proxy_is_the_one_that_the_environment_names(kits, monkeypatch):
    for name in ("http_proxy", "https_proxy", "grpc_proxy", "no_proxy", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    kit = replace(read_kit(kits / "ours" / "alice"), server="fl.example.org:8002")
    assert reach.proxy_of(kit) is None
    monkeypatch.setenv("https_proxy", "http://user:secret@proxy.example.org:3128")
    assert reach.proxy_of(kit) == "proxy.example.org:3128"
    assert reach.proxy_of(replace(kit, transport="http")) == "proxy.example.org:3128"
    assert reach.proxy_of(replace(kit, transport="tcp")) is None
    monkeypatch.setenv("no_proxy", "example.org")
    assert reach.proxy_of(kit) is None


def test_a_coordinator_listens_on_the_address_of_its_server(kits):
    assert listening_address("127.0.0.2:0") == "127.0.0.2"
    assert listening_address("203.0.113.7:0") is None  # behind a router, say: on all that it has
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(InputError, match="Address already in use"):
        listening_address(f"127.0.0.1:{taken.getsockname()[1]}")
