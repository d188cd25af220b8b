"""The authority of a federation: its folder has the root's key, and every command here signs a new list."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fedspan.checks import json_value
from fedspan.durable.whole_file import write_whole
from fedspan.engines.members.certificates import DAYS, issue, key_digest, make_root, read_certificate
from fedspan.engines.members.enrolment import COORDINATOR, ROLES, RUNNER, EnrolmentRequest
from fedspan.engines.members.member_list import MEMBERS, Member, MemberList, read_list, sign_list
from fedspan.engines.members.oidc import OidcSettings, check_token
from fedspan.errors import InputError
from fedspan.federation.policy import SecureSum

#: Days before its end in which a certificate is renewed, unless all are named.
RENEW_DAYS = 60
#: In place of the person whose name it is, where a user was removed.
_REMOVED = ""


class AuthorityFolder:
    """The folder of a federation's authority, and the newest list (`members`) that it has signed.

    `invited` has, by name, kind and role of those that ``fed.toml`` names.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self.root, self._key = ((folder / name).read_bytes() for name in ("root.crt", "root.key"))
            self.members = read_list((folder / MEMBERS).read_bytes(), self.root)
            raw = json_value((folder / "invited.json").read_bytes())
            oidc, logins = folder / "oidc.json", folder / "logins.json"
            self._logins: dict[str, str] = dict(json_value(logins.read_bytes())) if logins.exists() else {}
            self.oidc = OidcSettings(**json_value(oidc.read_bytes())) if oidc.exists() else None
            self.invited: dict[str, tuple[str, str]] = {str(name): (str(k), str(r)) for name, (k, r) in raw.items()}
        except (OSError, TypeError, ValueError):
            raise InputError(
                f"{folder} is not the folder of an authority: 'fedspan federation init fed.toml' makes one"
            ) from None

    @classmethod
    def create(cls, folder: Path, federation: str, server: str) -> AuthorityFolder:
        """Make the authority of a new federation, without participants."""
        folder.mkdir(parents=True, mode=0o700)
        root, key = make_root(federation)
        write_whole(folder / "root.key", key)
        write_whole(folder / "root.crt", root)
        write_whole(folder / "invited.json", b"{}")
        write_whole(folder / MEMBERS, sign_list(MemberList(federation, server), root, key))
        return cls(folder)

    @property
    def digest(self) -> str:
        """The digest of the root's key, to be compared by telephone or in person."""
        return key_digest(read_certificate(self.root).public_key())

    @property
    def list_bytes(self) -> bytes:
        """The signed list as it travels."""
        return (self.folder / MEMBERS).read_bytes()

    def invite(self, invited: Mapping[str, tuple[str, str]]) -> None:
        """Note who may be approved without further settings."""
        self.invited = dict(invited)
        write_whole(self.folder / "invited.json", json.dumps(self.invited).encode())

    def trust(self, provider: OidcSettings | None) -> None:
        """Note the identity provider of users."""
        self.oidc = provider
        if provider is None:
            (self.folder / "oidc.json").unlink(missing_ok=True)
        else:
            write_whole(self.folder / "oidc.json", json.dumps(asdict(provider)).encode())

    def approve_login(self, request: EnrolmentRequest, *, add: bool = False) -> None:
        """Approve a user that the identity provider names, in the role of the user's group there.

        The provider may still know a user that was removed here: such a name is refused, unless it is to `add` it.
        """
        if self.oidc is None or request.kind != "user":
            raise InputError(f"the request of {request.name} has a login, and fed.toml has no [oidc]")
        name, role, subject = check_token(self.oidc, request.token, key_digest(request.keys[request.name][1]))
        if name != request.name:
            raise InputError(f"the identity provider names {name!r}, and the request {request.name!r}")
        known, before = self._as_kind(name, "user"), self._logins.get(name)
        if before == _REMOVED and not add:
            raise InputError(
                f"{name!r} was removed from this federation: --add lets the person of this login take part"
            )
        if (before or known is not None) and before != subject:
            raise InputError(
                f"{name!r} takes part already, and not by this person's login: 'fedspan federation remove {name}' and "
                "'approve --add' let another person have the name"
            )
        self.invite({**self.invited, name: ("user", role)})
        self._note_logins({**self._logins, name: subject})
        self.approve(request, role=role, replace=True, days=self.oidc.days)

    def _note_logins(self, logins: Mapping[str, str]) -> None:
        """Note which person of the identity provider has which name."""
        if logins != self._logins:
            self._logins = dict(logins)
            write_whole(self.folder / "logins.json", json.dumps(self._logins).encode())

    def settle(self, schema: Mapping[str, str] | None, secure_sum: SecureSum, transport: str) -> None:
        """Sign a list with these settings, if they differ; the order of a schema's columns counts."""
        old = self.members
        before = (old.schema, list(old.schema or {}), old.secure_sum, old.transport)
        if before != (schema, list(schema or {}), secure_sum, transport):
            self._sign(old.changed(schema=schema, secure_sum=secure_sum, transport=transport))

    def approve(
        self, request: EnrolmentRequest, *, role: str = "", add: bool = False, replace: bool = False, days: float = DAYS
    ) -> None:
        """Issue the certificates of a request, and sign a list with them.

        A name has one identity: one that takes part already is refused, unless it is to `replace` the previous one. A
        name that ``fed.toml`` does not have is refused, unless it is to `add` one.
        """
        kind, name = request.kind, request.name
        role = self._role(request, role, add)
        known = self._as_kind(name, kind)
        asked = request.keys[name][1]
        if known is not None and not replace:
            same = any(read_certificate(one.encode()).public_key() == asked for one in known.certificates)
            how = (
                f"'fedspan federation renew {name}' gives its key a new certificate"
                if same
                else f"--replace revokes the current key and approves this one ({request.digest})"
            )
            raise InputError(f"{name!r} takes part already: {how}")
        if not 0 < days <= 10 * DAYS:
            raise InputError(f"days={days:g} of a certificate must be above 0 and at most {10 * DAYS}")
        members = self.members
        for whose, (_, public) in request.keys.items():
            others = RUNNER if whose == RUNNER else role
            certificate = self._issue(whose, others, public, days)
            why = f"replaced on {datetime.now(UTC):%Y-%m-%d}"
            one = Member("user" if whose == RUNNER else kind, others, (certificate,))
            members = members.with_member(whose, one, why)
        self._sign(members)

    def remove(self, name: str) -> None:
        """Revoke all certificates of a participant."""
        kind = self._known(name).kind
        if name in (COORDINATOR, RUNNER):
            raise InputError("a federation has a coordinator: 'approve --replace' gives it another key")
        self.invite({other: about for other, about in self.invited.items() if other != name})
        if kind == "user":
            self._note_logins({**self._logins, name: _REMOVED})
        self._sign(self.members.without(name, f"removed on {datetime.now(UTC):%Y-%m-%d}"))

    def renew(self, names: Iterable[str] = (), days: float = DAYS) -> list[str]:
        """Give keys new certificates: those of `names`, or all that end soon; return their names.

        The previous certificate stays valid to its end, so that nothing stops meanwhile.
        """
        soon = datetime.now(UTC) + timedelta(days=RENEW_DAYS)
        chosen = list(names) or [name for name, member in self.members.members.items() if member.ends < soon]
        chosen += [RUNNER] * (COORDINATOR in chosen and RUNNER not in chosen)
        members = dict(self.members.members)
        for name in chosen:
            old = self._known(name)
            public = read_certificate(old.certificates[0].encode()).public_key()
            valid = [one for one in old.certificates if not _ended(one)]
            kept = (self._issue(name, old.role, public, days), *valid)
            members[name] = Member(old.kind, old.role, kept)
        if chosen:
            self._sign(self.members.changed(members=members))
        return chosen

    def move(self, server: str) -> None:
        """Change the coordinator's address, and give it a certificate for it."""
        self._sign(self.members.changed(server=server))
        if COORDINATOR in self.members.members:
            self.renew([COORDINATOR])

    def _role(self, request: EnrolmentRequest, role: str, add: bool) -> str:
        """Return the role of a request's sender, where it may be approved."""
        kind, name = request.kind, request.name
        invited = self.invited.get(name) or (self._as_known(name))
        if invited is None and not add:
            raise InputError(f"fed.toml does not name the {kind} {name!r}: --add approves it all the same")
        if invited is not None and invited[0] != kind:
            raise InputError(f"{name!r} is a {invited[0]} by fed.toml, not a {kind}")
        role = role or (invited[1] if invited is not None else request.keys[name][0])
        if kind != "user":
            return ""
        if role not in ROLES:
            raise InputError(f"the role {role!r} of {name} must be one of {', '.join(ROLES)}")
        return role

    def _as_kind(self, name: str, kind: str) -> Member | None:
        """Return the participant of this name, if any; refuse one of another kind, and a name that looks like it.

        Owners read names, and disks of some systems take "Alice" and "alice" for one folder.
        """
        alike = [one for one in self.members.members if one != name and one.lower() == name.lower()]
        if alike:
            raise InputError(
                f"{name!r} differs from the participant {alike[0]!r} in capital letters alone: choose another"
            )
        known = self.members.members.get(name)
        if known is not None and known.kind != kind:
            raise InputError(f"{name!r} is a {known.kind} of this federation, not a {kind}")
        return known

    def _as_known(self, name: str) -> tuple[str, str] | None:
        member = self.members.members.get(name)
        return None if member is None else (member.kind, member.role)

    def _known(self, name: str) -> Member:
        if name not in self.members.members:
            raise InputError(f"there is no participant {name!r}; 'fedspan federation members' lists them")
        return self.members.members[name]

    def _issue(self, name: str, role: str, public: Any, days: float) -> str:
        hosts = [self.members.server.rpartition(":")[0]] if name == COORDINATOR else []
        return issue(self.root, self._key, public, name, role, hosts, days).decode()

    def _sign(self, members: MemberList) -> None:
        write_whole(self.folder / MEMBERS, sign_list(members, self.root, self._key))
        self.members = members


def _ended(certificate: str) -> bool:
    return bool(read_certificate(certificate.encode()).not_valid_after_utc < datetime.now(UTC))
