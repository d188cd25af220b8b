"""Users from an identity provider: a small one on loopback, a login, and what the authority refuses."""

from __future__ import annotations

import base64
import json
import re
import socket
import threading
import time
import urllib.parse
import urllib.request
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fedspan.cli import main
from fedspan.cli.federation import members_command
from fedspan.engines.members.oidc import LoginError, OidcSettings, check_token, log_in
from fedspan.engines.nvflare.setup.kit import parse_plan
from fedspan.engines.remote.messages.identity import Authority, Identity
from fedspan.errors import InputError
from tests.engines.remote.people import key

jwt = pytest.importorskip("jwt", reason='PyJWT is not installed: pip install ".[oidc]"')


class Provider(ThreadingHTTPServer):
    """An identity provider: everyone that comes is logged in as the person of `claims`."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self.server_address[1]}"
        self.claims = {"sub": "17", "preferred_username": "dora", "groups": ["staff", "researchers"]}
        self.codes, self.error, self.signs_with = {}, "", key(8)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def token(self, nonce, /, **changes):
        now = time.time()
        about = {"iss": self.issuer, "aud": "fedspan", "iat": now, "exp": now + 60, "nonce": nonce, **self.claims}
        claims = {name: value for name, value in (about | changes).items() if value is not None}
        return jwt.encode(claims, self.signs_with, algorithm="RS256", headers={"kid": "1"})


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        parts, provider = urllib.parse.urlsplit(self.path), self.server
        if parts.path == "/.well-known/openid-configuration":
            names = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
            self.answer({"issuer": provider.issuer} | {name: f"{provider.issuer}/{end}" for name, end in names.items()})
        elif parts.path == "/keys":
            public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key(8).public_key()))
            self.answer({"keys": [public | {"kid": "1", "use": "sig"}]})
        elif parts.path == "/authorize":
            asked = {name: value[0] for name, value in urllib.parse.parse_qs(parts.query).items()}
            provider.codes["code 1"] = asked
            back = {"error": provider.error} if provider.error else {"code": "code 1", "state": asked["state"]}
            self.send_response(302)
            self.send_header("Location", f"{asked['redirect_uri']}?{urllib.parse.urlencode(back)}")
            self.end_headers()

    def do_POST(self):
        form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        asked = self.server.codes.pop(form["code"][0])
        digest = sha256(form["code_verifier"][0].encode()).digest()
        assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == asked["code_challenge"]
        self.answer({"id_token": self.server.token(asked["nonce"])})

    def answer(self, content):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, *arguments):
        pass


@pytest.fixture
def provider():
    made = Provider()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def settings(provider):
    return OidcSettings(provider.issuer, "fedspan", {"admins": "operator", "researchers": "analyst"})


def browser(address):
    """Follow the provider's redirects, as the person's browser does, beside the waiting process."""
    threading.Thread(target=lambda: urllib.request.urlopen(address, timeout=120).read(), daemon=True).start()


def test_a_login_gives_name_and_role_of_this_key_alone(provider, settings):
    token = log_in(provider.issuer, "fedspan", "digest of a key", browser)
    assert check_token(settings, token, "digest of a key") == ("dora", "analyst", "17")
    with pytest.raises(InputError, match="is about another key"):
        check_token(settings, token, "digest of another key")


def test_a_connection_that_sends_nothing_does_not_hold_up_a_login(provider):
    """Browsers open one beforehand."""
    silent = []

    def opened(address):
        back = urllib.parse.parse_qs(urllib.parse.urlsplit(address).query)["redirect_uri"][0]
        silent.append(socket.create_connection(("127.0.0.1", urllib.parse.urlsplit(back).port)))
        browser(address)

    try:
        assert log_in(provider.issuer, "fedspan", "digest of a key", opened)
    finally:
        silent[0].close()


def test_a_token_that_is_no_text_is_refused(provider, settings):
    with pytest.raises(InputError, match="is refused"):
        check_token(settings, "\ud800", "n")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"aud": "another"}, "Audience"),
        ({"iss": "https://elsewhere.example.org"}, "[Ii]ssuer"),
        ({"exp": 1.0}, "expired"),
        ({"exp": None}, "exp"),
        ({"nonce": None}, "nonce"),
        ({"nonce": "\u00e9"}, "about another key"),
        ({"groups": ["staff"]}, "'dora' is in no group of"),
        ({"groups": None}, "'dora' is in no group of"),
        ({"preferred_username": None}, "None is in no group of"),
    ],
)
def test_a_token_of_another_kind_is_refused(provider, settings, changes, why):
    with pytest.raises(InputError, match=why):
        check_token(settings, provider.token("n", **changes), "n")


def test_a_forged_token_is_refused(provider, settings):
    provider.signs_with = key(6)
    for forged in (provider.token("n"), "no token", jwt.encode({"nonce": "n"}, None, algorithm="none")):
        with pytest.raises(InputError, match="the token of the identity provider is refused"):
            check_token(settings, forged, "n")


def test_a_failed_login_and_a_silent_provider_are_sentences(provider):
    provider.error = "access_denied"
    with pytest.raises(LoginError, match="the login failed: access_denied"):
        log_in(provider.issuer, "fedspan", "n", browser)
    with pytest.raises(LoginError, match=r"no login within 0\.1 seconds"):
        log_in(provider.issuer, "fedspan", "n", lambda address: None, 0.1)
    with pytest.raises(InputError, match="must begin with https://"):
        log_in("http://login.example.org", "fedspan", "n", browser)


def test_users_of_the_provider_enroll_by_commands(provider, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(members_command.webbrowser, "open", browser)
    plan, hq, file = tmp_path / "fed.toml", tmp_path / "hq", str(tmp_path / "dora.request")
    text = f'name = "lab"\nserver = "h:1"\nsites = ["a"]\n[oidc]\nissuer = "{provider.issuer}"\nclient_id = "fedspan"\n'
    plan.write_text(f'{text}roles = {{ researchers = "analyst", admins = "operator" }}\n')
    assert main(["federation", "init", str(plan), "--out", str(hq)]) == 0
    enroll = ["user", "enroll", "dora", "--kit", str(hq / "dora"), "--request", file, "--oidc", provider.issuer]
    approve = ["federation", "approve", file, "--authority", str(hq / "authority")]
    assert main(enroll) == 0
    assert "log in at: http://127.0.0.1" in capsys.readouterr().out
    assert main(approve) == 0
    assert re.search(r"approved: user dora, analyst, key [0-9a-f]{4} ", capsys.readouterr().out)
    first = Identity.from_kit(hq / "dora")
    assert first.role == "analyst"
    provider.claims["groups"] = ["admins"]
    assert main(enroll) == 0  # once more, with a new key
    assert main(approve) == 0
    second, authority = Identity.from_kit(hq / "dora"), Authority.from_kit(hq / "dora")
    assert second.role == "operator"
    assert authority.members.members["dora"].certificates == (second.certificate.decode(),)
    provider.claims["sub"] = "18"  # another person, who has taken dora's name at the provider
    assert main(enroll) == 0
    assert main(approve) == 2
    assert "not by this person's login" in capsys.readouterr().err
    assert main(["federation", "remove", "dora", "--authority", str(hq / "authority")]) == 0
    assert main(approve) == 2  # the provider knows users that were removed here, and its word made them come back
    assert "'dora' was removed from this federation: --add" in capsys.readouterr().err
    assert main([*approve, "--add"]) == 0
    assert main(approve) == 0  # who is back needs it no more
    provider.claims["preferred_username"] = "emil"
    assert main(enroll) == 0
    assert main(approve) == 2
    assert "names 'emil', and the request 'dora'" in capsys.readouterr().err
    assert main(["federation", "init", str(plan), "--out", str(hq)]) == 2  # the users of the provider stay
    assert "nothing has changed" in capsys.readouterr().err


def test_a_login_does_not_replace_a_user_that_enrolled_otherwise(provider, tmp_path, capsys, monkeypatch):
    """Any person that took the name at the provider had the certificate, runs and approvals of that user."""
    monkeypatch.setattr(members_command.webbrowser, "open", browser)
    plan, hq, file = tmp_path / "fed.toml", tmp_path / "hq", str(tmp_path / "dora.request")
    text = f'name = "lab"\nserver = "h:1"\nsites = ["a"]\n[oidc]\nissuer = "{provider.issuer}"\nclient_id = "fedspan"\n'
    plan.write_text(f'{text}roles = {{ researchers = "analyst" }}\n[users]\ndora = "operator"\n')
    assert main(["federation", "init", str(plan), "--out", str(hq)]) == 0
    enroll = ["user", "enroll", "dora", "--request", file]
    approve = ["federation", "approve", file, "--authority", str(hq / "authority")]
    assert main([*enroll, "--kit", str(tmp_path / "own")]) == 0
    assert main(approve) == 0
    capsys.readouterr()
    assert main([*enroll, "--kit", str(tmp_path / "other"), "--oidc", provider.issuer]) == 0
    assert main(approve) == 2
    assert "takes part already, and not by this person's login" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("oidc", "why"),
    [
        ({"issuer": "ftp://x", "client_id": "f", "roles": {"g": "analyst"}}, "must begin with https"),
        ({"issuer": "https://x", "client_id": "f", "roles": {"g": "boss"}}, "one of the roles"),
        ({"issuer": "https://x", "client_id": "f"}, "one of the roles"),
        ({"issuer": "https://x", "client_id": "f", "roles": {"g": "viewer"}, "days": 0}, "days = 0"),
        ({"issuer": "https://x", "secret": "f"}, "oidc must be a table"),
    ],
)
def test_bad_settings_are_refused(oidc, why):
    with pytest.raises(InputError, match=why):
        parse_plan({"name": "lab", "server": "h:1", "sites": ["a"], "oidc": oidc})
