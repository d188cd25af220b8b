"""The engine of a real federation: carries calls to sites of other owners, over any transport."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedspan.engines.local.blas_threads import PinnedThreads, blas_threads
from fedspan.engines.remote.coordinator.presence import Presence
from fedspan.engines.remote.coordinator.signed_requests import Answer, Post
from fedspan.engines.remote.coordinator.site_directory import CONTROL_BYTES, CONTROL_SECONDS, About, Meeting
from fedspan.engines.remote.messages.delegation import Sender
from fedspan.engines.remote.messages.envelope import MISREAD
from fedspan.engines.remote.messages.identity import Authority
from fedspan.engines.remote.messages.site_call import call_head
from fedspan.engines.remote.messages.transport import Lost, Transport
from fedspan.engines.remote.site.refusals import read_facts
from fedspan.errors import InputError, MessageError
from fedspan.federation import Policy, SecureSum
from fedspan.federation.calls.call import Call, Delivery, Outcome
from fedspan.federation.outcomes import Failure, FailureKind
from fedspan.federation.site.state import Changes
from fedspan.wire import Message, decode

#: No table has so many rows: a site that says so is not believed.
_MOST_ROWS = 2**48


class RemoteEngine:
    """Carries calls to the sites that a transport reaches.

    Parameters
    ----------
    transport : Transport
    identity : Identity or Delegate
        The user's, or one that speaks for the user.
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
        identity: Sender,
        authority: Authority,
        *,
        secure: SecureSum | None = None,
        any_version: bool = False,
    ) -> None:
        if not identity.who.role:
            raise InputError(f"{identity.who.name!r} is no user: the certificate of a kit for users has a role")
        self.transport = transport
        self.sites = tuple(sorted(transport.sites))
        self.identity = identity
        self.authority = authority
        self._presence = Presence(transport, self._there)
        self._post = Post(transport, identity, authority, self._presence.lost)
        self._meeting = Meeting(self._post, secure, any_version)
        self._pinned: dict[str, tuple[int, PinnedThreads]] = {}  # by run that is under way

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
        self._meeting.introduce([run])
        return run

    def call(self, call: Call, to: Sequence[str], accepted: Mapping[str, int], policy: Policy) -> dict[str, Outcome]:
        """Run `call` at the sites `to`. Who did not answer the last time is asked only when it is there again."""
        outcomes: dict[str, Outcome] = {}
        for site, reason in self._presence.away(to).items():
            outcomes[site] = Failure(FailureKind.OFFLINE, reason)
        for site in to:
            if site not in outcomes and (why := self._meeting.objection(site)):
                outcomes[site] = Failure(FailureKind.REFUSED, why)
        ready = [site for site in to if site not in outcomes]
        if ready:
            head, parts = call_head(call, ready, accepted, policy, self._pinned[call.run][0])
            limit = int(policy.max_bytes)
            answers = self._post.send("call", call.run, head, parts, ready, policy.deadline, limit)
            for site, answer in answers.items():
                outcomes[site] = self._outcome(call, site, answer, limit)
            self._meeting.meet_again(call.run, answers)
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
        away = self._presence.away(sites)
        there = [site for site in sites if site not in away and not self._meeting.objection(site)]
        if there and not resumable:
            self._post.send("end", run, {}, {}, there, CONTROL_SECONDS / 2, CONTROL_BYTES)

    # What a federation's status is made of.

    def about(self, afresh: bool = False) -> dict[str, About]:
        """Return what each site that is there says of itself; `afresh` asks also those that have said it before."""
        new = [site for site in self.sites if afresh or site not in self._meeting.about]
        away = {} if afresh else self._presence.away(new)
        self._meeting.greet([site for site in new if site not in away])
        return {site: self._meeting.about[site] for site in self.sites if site in self._meeting.about}

    @property
    def silent(self) -> dict[str, str]:
        """Why the other sites have not said what they are."""
        return dict(self._meeting.silent)

    def close(self) -> None:
        """Let go of the transport."""
        self.transport.close()

    # Inside.

    def _outcome(self, call: Call, site: str, answer: Answer, max_bytes: int) -> Outcome:
        if isinstance(answer, Lost):
            return Failure(FailureKind.OFFLINE, answer.reason)
        if isinstance(answer, MessageError):
            return Failure(FailureKind.REFUSED, str(answer), answer)
        head = answer.head
        try:
            if head["kind"] == "reply":
                return Delivery(call.number, decode(answer.parts["reply"], max_bytes), _rows(head["rows"]))
            return self._failure(call, site, head)
        except MessageError as error:
            return Failure(FailureKind.MALFORMED, str(error), error)
        except MISREAD:
            return Failure(FailureKind.MALFORMED, "the answer lacks something that it must have")

    def _failure(self, call: Call, site: str, head: Message) -> Failure:
        """Return why a site has refused or failed, by its own report."""
        why, kind, again = str(head["why"])[:1000], FailureKind(head["failure"]), head["again"] is True
        if kind is FailureKind.LATE:
            self._presence.lost(site, why)  # until it reports that it is done
        if again:
            return Failure(FailureKind.OFFLINE, why)
        return Failure(kind, why, None, read_facts(head.get("facts")))

    def _there(self, sites: Sequence[str], seconds: float) -> Iterable[str]:
        """Return which of the sites answer and have nothing else to do."""
        self._meeting.greet(sites, seconds)
        there = [site for site in sites if (about := self._meeting.about.get(site)) and not about.busy]
        if there:
            self._meeting.introduce(self._pinned)
        return there


def _rows(told: Any) -> int:
    """Return how many rows a site says that it has used, if a table can have so many."""
    if isinstance(told, bool) or not isinstance(told, int) or not 0 <= told < _MOST_ROWS:
        raise MessageError(f"misshapen: the answer names {str(told)[:40]} as its number of rows")
    return told
