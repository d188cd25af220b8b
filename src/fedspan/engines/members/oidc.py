"""Users from an identity provider: OpenID Connect states who asks for a certificate (extra ``oidc``).

A user logs in with the code flow and PKCE, in a browser on the same machine. The nonce of the login is a digest of the
user's own key. So the token that the provider signs is about this key, and of no use with another one. The authority
checks the token and issues a certificate for it. The coordinator has no part in this, and gains no power by it.
"""

from __future__ import annotations

import base64
import secrets
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from fedspan.checks import json_value
from fedspan.engines.members.enrolment import ROLES
from fedspan.errors import FedspanError, InputError, MissingPackageError

#: Seconds for an answer of the provider, and for the person to log in.
_ANSWER, _LOGIN = 20.0, 300.0
_LARGEST = 2**20
_ALGORITHMS = ["RS256", "PS256", "ES256"]
_DONE = b"<!doctype html><title>fedspan</title><p>Done: return to the terminal."


class LoginError(FedspanError):
    """The identity provider does not answer, or the login failed."""


@dataclass(frozen=True)
class OidcSettings:
    """The ``[oidc]`` of a ``fed.toml``.

    Parameters
    ----------
    issuer, client_id : str
        The provider, and fedspan's name at it.
    roles : dict
        The role of each group of the provider; a user in several has the first of them.
    name, groups : str
        The claims with the user's name and groups.
    days : float
        Days that a certificate is valid: after that, the user logs in again.
    """

    issuer: str
    client_id: str
    roles: dict[str, str] = field(default_factory=dict)
    name: str = "preferred_username"
    groups: str = "groups"
    days: float = 30.0

    def __post_init__(self) -> None:
        check_address(self.issuer)
        if not self.roles or not set(self.roles.values()) <= set(ROLES):
            raise InputError(f"[oidc.roles] must give groups one of the roles {', '.join(ROLES)}")
        if not isinstance(self.days, int | float) or not 0 < self.days <= 360:
            raise InputError(f"[oidc] days = {self.days!r} must be above 0 and at most 360")


def check_address(issuer: str) -> None:
    """Refuse a provider that is not reached by https; on this machine http will do."""
    parts = urllib.parse.urlsplit(str(issuer))
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost")):
        raise InputError(f"issuer = {issuer!r} must begin with https://")


def log_in(issuer: str, client_id: str, nonce: str, show: Callable[[str], None], limit: float = _LOGIN) -> str:
    """Let a person log in, and return the token that the provider has signed; `show` gets the address to open."""
    check_address(issuer)
    provider, state, verifier = _discovered(issuer), secrets.token_urlsafe(24), secrets.token_urlsafe(48)
    challenge = base64.urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    with _Redirect(("127.0.0.1", 0), _RedirectHandler) as server:
        back = f"http://127.0.0.1:{server.server_address[1]}/"
        query = {
            "response_type": "code",
            "client_id": client_id,
            "redirect_uri": back,
            "scope": "openid profile",
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        show(f"{provider['authorization_endpoint']}?{urllib.parse.urlencode(query)}")
        code = server.code(state, limit)
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": back, "client_id": client_id}
    answer = _json(provider["token_endpoint"], urllib.parse.urlencode(form | {"code_verifier": verifier}).encode())
    if not isinstance(answer.get("id_token"), str):
        raise LoginError(f"the identity provider {issuer} sent no token")
    return str(answer["id_token"])


def check_token(settings: OidcSettings, token: str, nonce: str) -> tuple[str, str, str]:
    """Return name, role and subject of the user that a token is about, if the provider has signed it for this key.

    Users may change their names at many providers. The subject is what stays, and belongs to one person.
    """
    try:
        import jwt
    except ImportError:
        raise MissingPackageError(
            'users from an identity provider need PyJWT, which is not installed: pip install ".[oidc]" in a checkout'
        ) from None
    provider = _discovered(settings.issuer)
    try:
        key = jwt.PyJWKClient(provider["jwks_uri"], timeout=int(_ANSWER)).get_signing_key_from_jwt(token)
        claims: Mapping[str, Any] = jwt.decode(
            token,
            key,
            algorithms=_ALGORITHMS,
            audience=settings.client_id,
            issuer=settings.issuer,
            options={"require": ["exp", "iat", "aud", "iss", "nonce", "sub"]},
        )
    except (jwt.PyJWTError, UnicodeError) as error:
        raise InputError(f"the token of the identity provider is refused: {error}") from None
    if str(claims["nonce"]) != nonce:  # both are known to the sender
        raise InputError("the token of the identity provider is about another key")
    name, groups = claims.get(settings.name), claims.get(settings.groups, ())
    mine = [groups] if isinstance(groups, str) else list(groups) if isinstance(groups, list | tuple) else []
    role = next((role for group, role in settings.roles.items() if group in mine), "")
    if not isinstance(name, str) or not role:
        raise InputError(f"{name!r} is in no group of [oidc.roles]: {', '.join(settings.roles)}")
    return name, role, str(claims["sub"])


class _Redirect(HTTPServer):
    """Receives the browser of the person that has logged in."""

    seen: dict[str, list[str]] | None = None

    def code(self, state: str, limit: float) -> str:
        until = time.monotonic() + limit
        while self.seen is None:
            self.timeout = until - time.monotonic()
            if self.timeout <= 0:
                raise LoginError(f"no login within {limit:g} seconds")
            self.handle_request()
        if self.seen.get("state") != [state] or "code" not in self.seen:
            why = self.seen.get("error", ["the answer is to another login"])[0]
            raise LoginError(f"the login failed: {why[:200]}")
        return self.seen["code"][0]


class _RedirectHandler(BaseHTTPRequestHandler):
    server: _Redirect
    timeout = 1.0  # browsers open connections beforehand, and may send nothing

    def do_GET(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        if parts.path == "/" and parts.query:  # browsers also look for an icon
            self.server.seen = urllib.parse.parse_qs(parts.query)
        self.send_response(200 if parts.path == "/" else 404)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(_DONE if parts.path == "/" else b"")

    def log_message(self, *arguments: Any) -> None:
        """Print nothing: the address has the code."""


def _discovered(issuer: str) -> dict[str, Any]:
    found = _json(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
    if found.get("issuer") != issuer:
        raise LoginError(f"{issuer} is not the issuer {found.get('issuer')!r} of its own settings")
    for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
        check_address(str(found.get(name)))
    return found


def _json(address: str, form: bytes | None = None) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(address, data=form, timeout=_ANSWER) as answer:
            found = json_value(answer.read(_LARGEST), _LARGEST)
    except (OSError, ValueError, urllib.error.URLError) as error:
        raise LoginError(f"the identity provider does not answer at {address}: {error}") from None
    if not isinstance(found, dict):
        raise LoginError(f"the identity provider sends no settings at {address}")
    return found
