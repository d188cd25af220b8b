"""The engine of a real federation: carries calls to sites of other owners, over any transport."""

from __future__ import annotations

import json
import secrets
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedspan import errors
from fedspan.engines.remote.about import differences, fedspan_version
from fedspan.engines.remote.call import call_head
from fedspan.engines.remote.envelope import Opened, Sealed, open_sealed, texts
from fedspan.engines.remote.identity import Authority, Identity, Who
from fedspan.engines.remote.presence import Presence
from fedspan.engines.remote.transport import Lost, Transport
from fedspan.engines.threads import PinnedThreads, blas_threads
from fedspan.errors import InputError, MessageError
from fedspan.federation import Policy, SecureSum
from fedspan.federation.call import Call, Delivery, Failure, Outcome
from fedspan.federation.state import Changes
from fedspan.wire import Message, decode

#: Seconds for messages that run nothing.
_CONTROL = 10.0
_LARGEST_CONTROL = 2**20
#: Errors of a site's that are raised here under their own name.
_KNOWN = ("BudgetError", "FedspanError", "InputError", "LedgerError", "MessageError", "PolicyError", "UnknownStepError")


@dataclass(frozen=True)
class About:
    """What a site has said of itself."""

    version: str
    environment: dict[str, str]
    fingerprint: str
    steps: tuple[str, ...]
    busy: str
    introduction: bytes
    instance: str


class RemoteEngine:
    """Carries calls to the sites that a transport reaches.

    Parameters
    ----------
    transport : Transport
    identity : Identity
        The user's.
    authority : Authority
        The federation's root.
    secure : SecureSum, optional
        Make all runs ones of secure sums: sites come to know each other's keys, and give no reply of their own.
    any_version : bool, default=False
        Work also with sites of another version of fedspan, if they do too.
    """

    def __init__(
        self,
        transport: Transport,
        identity: Identity,
        authority: Authority,
        *,
        secure: SecureSum | None = None,
        any_version: bool = False,
    ) -> None:
        if not identity.role:
            raise InputError(f"{identity.name!r} is no user: the certificate of a kit for users has a role")
        self.transport = transport
        self.sites = tuple(sorted(transport.sites))
        self.identity = identity
        self.authority = authority
        self.secure = secure
        self.any_version = any_version
        self._presence = Presence(transport, self._there)
        self._about: dict[str, About] = {}
        self._unknown: dict[str, str] = {}  # by site: why it does not know the others
        self._warned: set[str] = set()
        self._pinned: dict[str, tuple[int, PinnedThreads]] = {}
        self._serial = 0

    # What a run does.

    @property
    def advice(self) -> tuple[str, ...]:
        """A resumed run goes on under its own name, with its own threads; the sites know their data themselves."""
        return ("threads", "sites", "token")

    def describe(self) -> dict[str, Any]:
        """Return the shapes of the data of the sites that are there, and a name for a run that nobody else has."""
        about = self.about()
        return {
            "federation": self.authority.federation,
            "members": self.sites,
            "sites": {site: about[site].fingerprint if site in about else "away" for site in self.sites},
            "threads": blas_threads(),
            "token": secrets.token_hex(16),
        }

    def begin(self, name: str, head: Mapping[str, Any] | None) -> str:
        """Name the run, fix the number of BLAS threads here and at the sites, and let sites know each other."""
        if head is None:
            self.about()
        threads = blas_threads() if head is None else int(head["threads"])
        run = f"{name[:200]} {secrets.token_hex(16) if head is None else head['token']}"
        self._pinned[run] = (threads, PinnedThreads(threads))
        if self.secure is not None:
            self._introduce(run)
        return run

    def call(self, call: Call, to: Sequence[str], accepted: Mapping[str, int], policy: Policy) -> dict[str, Outcome]:
        """Run `call` at the sites `to`. Who did not answer the last time is asked only when it is there again."""
        outcomes: dict[str, Outcome] = {}
        for site, reason in self._presence.away(to).items():
            outcomes[site] = Failure(f"away: {reason}", away=True)
        for site in to:
            if site not in outcomes and (why := self._skew(site) or self._unknown.get(site)):
                outcomes[site] = Failure(f"refused: {why}")
        ready = [site for site in to if site not in outcomes]
        if ready:
            head, parts = call_head(call, ready, accepted, policy, self._pinned[call.run][0])
            limit = int(policy.max_bytes)
            answers = self._send("call", call.run, head, parts, ready, policy.deadline, limit)
            for site, answer in answers.items():
                outcomes[site] = self._outcome(call, site, answer, limit)
            self._meet_again(call.run, answers)
        return outcomes

    def wait(self, sites: Sequence[str], seconds: float) -> bool:
        """Wait for sites that are away."""
        return self._presence.wait(sites, seconds)

    def restore(self, run: str, site: str, number: int, changes: Changes) -> None:
        """Do nothing: a site has its state on its own disk, and each call says after which one it comes."""

    def end(self, run: str, sites: Sequence[str], resumable: bool) -> None:
        """Tell the sites to forget a run that is over, and let the number of BLAS threads be what it was."""
        pinned = self._pinned.pop(run, None)
        if pinned is not None:
            pinned[1].release()
        there = [site for site in sites if site not in self._presence.away(sites)]
        if there and not resumable:
            self._control("end", run, {}, {}, there, _CONTROL / 2)

    # What a federation's status is made of.

    def about(self, afresh: bool = False) -> dict[str, About]:
        """Return what each site that is there says of itself; `afresh` asks also those that have said it before."""
        new = [site for site in self.sites if afresh or site not in self._about]
        away = {} if afresh else self._presence.away(new)
        self._greet([site for site in new if site not in away], _CONTROL)
        return {site: self._about[site] for site in self.sites if site in self._about}

    def close(self) -> None:
        """Let go of the transport."""
        self.transport.close()

    # Inside.

    def _send(
        self,
        kind: str,
        run: str,
        head: Message,
        parts: Mapping[str, bytes],
        to: Sequence[str],
        deadline: float,
        max_bytes: int,
    ) -> dict[str, Opened | Lost | MessageError]:
        """Send a signed request; return what came back from each site, signed and bound to this very request."""
        result: dict[str, Opened | Lost | MessageError] = {}
        left = list(to)
        for _ in range(2):
            self._serial = max(self._serial + 1, time.time_ns())
            bound = {
                "kind": kind,
                "federation": self.authority.federation,
                "version": fedspan_version(),
                "run": run,
                "serial": self._serial,
                "deadline": float(deadline),
                "sites": texts(dict.fromkeys(left, -1)),
            }
            sealed = Sealed(self.identity, "request", bound | head, parts)
            answers = self.transport.send({site: sealed.to(site) for site in left}, deadline)
            for site in left:
                result[site] = self._read(site, answers.get(site), sealed, bound | head, max_bytes)
            # A site that has seen later requests says so: the clock here was set back since.
            seen = {site: o.head["seen"] for site in left if isinstance(o := result[site], Opened) and "seen" in o.head}
            left = [site for site, serial in seen.items() if isinstance(serial, int) and serial < 2**62]
            if not left:
                break
            self._serial = max(self._serial, *(seen[site] for site in left))
        for site, answer in result.items():
            if isinstance(answer, Lost):
                self._presence.lost(site, answer.reason)
        return result

    def _read(
        self, site: str, answer: bytes | Lost | None, sealed: Sealed, asked: Message, max_bytes: int
    ) -> Opened | Lost | MessageError:
        if answer is None or isinstance(answer, Lost):
            return answer or Lost("no answer came")
        try:
            opened = open_sealed(answer, self.authority, "response", site, max_bytes)
            if opened.who != Who(site) or opened.head["site"] != site:
                raise MessageError(f"the answer is signed by {opened.who.name!r}, not by {site!r}")
            if opened.head["request"] != sealed.digest:
                raise MessageError("stale: the answer is to another request")
            if opened.head["kind"] not in ("refused", "failed"):
                for name in ("run", "number", "part"):
                    if opened.head.get(name) != asked.get(name):
                        raise MessageError(f"stale: the answer has the {name} {opened.head.get(name)!r}")
        except MessageError as error:
            return error
        except (KeyError, TypeError, ValueError):
            return MessageError("the answer does not say all that it must")
        return opened

    def _outcome(self, call: Call, site: str, answer: Opened | Lost | MessageError, max_bytes: int) -> Outcome:
        if isinstance(answer, Lost):
            return Failure(f"away: {answer.reason}", away=True)
        if isinstance(answer, MessageError):
            return Failure(f"refused: {answer}", answer)
        head = answer.head
        try:
            if head["kind"] == "reply":
                part = answer.parts["reply"]
                return Delivery(call.number, decode(part, max_bytes), int(head["rows"]))
            why, again = str(head["why"])[:1000], head.get("again") is True
            if again and head.get("error") == "BusyError":
                self._presence.lost(site, why)
            name = str(head.get("error"))
            error = getattr(errors, name)(why) if name in _KNOWN else None
            if head["kind"] == "refused":
                return Failure(f"refused: {why}", error, away=again)
            text = why if name in ("StepError", "BusyError") else f"step {call.step.name!r} raised {name[:60]}: {why}"
            return Failure(text, error, away=again)
        except MessageError as error:
            return Failure(str(error), error)
        except (KeyError, TypeError, ValueError):
            return Failure("the answer does not say all that it must")

    def _control(
        self,
        kind: str,
        run: str,
        head: Message,
        parts: Mapping[str, bytes],
        to: Sequence[str],
        deadline: float,
        max_bytes: int = _LARGEST_CONTROL,
    ) -> dict[str, Opened | Lost | MessageError]:
        return self._send(kind, run, head, parts, to, deadline, max_bytes) if to else {}

    def _greet(self, sites: Sequence[str], deadline: float) -> None:
        """Ask sites what they are; say in a warning what may change the last bits of a result."""
        for site, answer in self._control("hello", "", {}, {}, sites, deadline).items():
            self._about.pop(site, None)
            if not isinstance(answer, Opened) or answer.head["kind"] != "about":
                continue
            try:
                told = json.loads(bytes(answer.parts["about"]))
                about = About(
                    version=str(told["version"]),
                    environment={str(key): str(value) for key, value in told["environment"].items()},
                    fingerprint=str(told["fingerprint"])[:1000],
                    steps=tuple(map(str, told["steps"])),
                    busy=str(told["busy"])[:200],
                    introduction=bytes(answer.parts["introduction"]),
                    instance=str(answer.head["instance"]),
                )
            except (KeyError, TypeError, ValueError, AttributeError):
                continue
            self._about[site] = about
            others = differences(about.environment)
            text = f"site {site!r} has {', '.join(others)}: the last bits of results may differ"
            if others and text not in self._warned:
                self._warned.add(text)
                warnings.warn(text, stacklevel=4)

    def _there(self, sites: Sequence[str], seconds: float) -> Iterable[str]:
        """Return which of the sites answer and have nothing else to do."""
        self._greet(sites, seconds)
        there = [site for site in sites if site in self._about and not self._about[site].busy]
        if there and self.secure is not None:
            for run in self._pinned:
                self._introduce(run)
        return there

    def _meet_again(self, run: str, answers: Mapping[str, Opened | Lost | MessageError]) -> None:
        """Let sites know each other's new keys where one has been restarted since."""
        opened = {site: answer for site, answer in answers.items() if isinstance(answer, Opened)}
        known = {site: about.instance for site, about in self._about.items()}
        renewed = [site for site, answer in opened.items() if answer.head.get("instance") != known.get(site)]
        if renewed:
            self._greet(renewed, _CONTROL)
            if self.secure is not None:
                self._introduce(run)

    def _introduce(self, run: str) -> None:
        """Hand the sites' keys round; each checks them itself."""
        assert self.secure is not None
        parts = {site: about.introduction for site, about in self._about.items()}
        head = {"least": self.secure.least}
        self._unknown = {}
        for site, answer in self._control("introduce", run, head, parts, list(self._about), _CONTROL).items():
            if isinstance(answer, Opened) and answer.head["kind"] != "done":
                self._unknown[site] = str(answer.head.get("why"))[:1000]

    def _skew(self, site: str) -> str:
        """Say that a site has another version of fedspan."""
        about = self._about.get(site)
        if about is None or about.version == fedspan_version() or self.any_version:
            return ""
        return f"site {site!r} runs fedspan {about.version}, and this is fedspan {fedspan_version()}: use one version"
