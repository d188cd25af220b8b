"""A federation of sites on other machines, and the engine that carries its calls over any transport."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedspan.checks import whole_number
from fedspan.engines.local.blas_threads import PinnedThreads, blas_threads
from fedspan.engines.remote.coordinator.proposal import propose
from fedspan.engines.remote.coordinator.signed_requests import Answer, SignedRequests, Transport
from fedspan.engines.remote.coordinator.site_directory import CONTROL_SECONDS, HeldCalls, SiteDirectory, SiteReport
from fedspan.engines.remote.messages.envelope import MISREAD, Opened
from fedspan.engines.remote.messages.identity import Authority, Signer
from fedspan.engines.remote.messages.refusals import read_facts
from fedspan.engines.remote.messages.request_head import call_head
from fedspan.errors import InputError, MessageError
from fedspan.federation import Federation, Policy, SecureSum
from fedspan.federation.calling import Root, View
from fedspan.federation.calls.call import Call, Delivery, Outcome
from fedspan.federation.outcomes import Failure, FailureKind
from fedspan.federation.site.parameters import Whole
from fedspan.federation.site.state import Changes
from fedspan.secure_sum.sum_coordinator import SecureSummation
from fedspan.wire import Message, decode

#: A site's number of rows: no table has more.
_ROWS = Whole(-1, 2**48)


class RemoteFederation(Federation):
    """A federation whose sites are reached over a transport.

    Parameters
    ----------
    transport : Transport
    signer : Identity or Delegate
        The user's certificate and key, or a delegate of the user.
    authority : Authority
        The federation's root.
    seed : int, default=0
        The seed of its runs, unless an estimator has a ``random_state``.
    policy : Policy, optional
        With ``quorum="all"`` a call waits for every site, until the run's own deadline. With a lower quorum the run
        continues without an offline site, and includes it again when it is back.
    run_dir : path, optional
        Keep each run's journal and record here: running the same study again continues where it stopped. The sites'
        states are on their own disks.
    """

    def __init__(
        self,
        transport: Transport,
        signer: Signer,
        authority: Authority,
        seed: int = 0,
        policy: Policy | None = None,
        run_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        policy = policy or Policy()
        secure = None
        if isinstance(policy.secure_sum, SecureSum):
            secure = policy.secure_sum.within(authority.secure_sum)
            policy = replace(policy, secure_sum=secure)
        self.engine = RemoteEngine(transport, signer, authority, secure)
        summation = None if secure is None else SecureSummation(secure)
        if summation is not None:
            summation.check_possible(*policy.smallest_sum(len(self.engine.sites)))
        folder = None if run_dir is None else Path(run_dir)
        root = Root(self.engine, whole_number("seed", seed, 0), policy, folder, summation)
        super().__init__(root, View(self.engine.sites))

    def propose(
        self, work: Callable[[Federation], Any], title: str = "", notify: Callable[[str], None] = print
    ) -> None:
        """Propose a study to the owners that approve studies before they run, and wait for their decisions.

        What `work` requests of the sites is found by a rehearsal on made-up rows of their columns. A site whose owner
        refuses takes no part; the quorum decides about the rest. Where no site needs it, nothing happens.

        Parameters
        ----------
        work : callable
            Takes a federation and fits models on it, as will be done on this one:
            ``lambda fed: FedPCA(3).fit(fed)``.
        title : str, optional
            What it is for, in the user's own words.
        notify : callable, optional
            Receives a sentence when owners have not decided yet, and when one refuses.
        """
        self.engine.reports()
        propose(self.engine.directory, work, title, self.policy, self._root.seed, self._root.run_dir, notify)

    def close(self) -> None:
        """End the run of protocols that were called on the federation itself, and close the transport."""
        super().close()
        self.engine.transport.close()


class RemoteEngine:
    """Carries calls to the sites that a transport reaches; with `secure`, for runs of secure sums alone.

    See `RemoteFederation` for the other parameters, and `Engine` for the methods.
    """

    def __init__(
        self, transport: Transport, signer: Signer, authority: Authority, secure: SecureSum | None = None
    ) -> None:
        user = signer.participant
        if not user.role:
            raise InputError(f"{user.name!r} is not a user: the certificate of a user's kit has a role")
        self.transport = transport
        self.sites = tuple(sorted(transport.sites))
        self._federation = authority.federation
        self.directory = SiteDirectory(SignedRequests(transport, signer, authority), secure)
        self._pinned: dict[str, tuple[int, PinnedThreads]] = {}  # by open run
        self._held: dict[str, dict[str, HeldCalls]] = {}  # by open run, then by site: what a resumed run finds there

    @property
    def advice(self) -> tuple[str, ...]:
        """A resumed run continues under its own name, with its own threads; the sites know their data themselves."""
        return ("threads", "sites", "rows", "token")

    def describe(self) -> dict[str, Any]:
        """Return the shapes of the data of the sites that are online, and a unique token for the run."""
        reports = self.reports()
        return {
            "federation": self._federation,
            "members": list(self.sites),
            "sites": {site: reports[site].fingerprint if site in reports else "offline" for site in self.sites},
            "rows": {site: report.rows for site, report in reports.items() if report.rows is not None},
            "threads": blas_threads(),
            "token": secrets.token_hex(16),
        }

    def begin(self, name: str, head: Mapping[str, Any] | None) -> str:
        """Name the run, fix the number of BLAS threads here and at the sites, and let sites exchange keys."""
        if head is None:
            self.reports()
        threads = blas_threads() if head is None else int(head.get("threads", 1))
        run = f"{name[:200]} {secrets.token_hex(16) if head is None else head['token']}"
        self._pinned[run] = (threads, PinnedThreads(threads))
        self.directory.open_runs.add(run)
        self.directory.exchange_keys([run])
        self._held[run] = {} if head is None else self.directory.held_calls(run, self.sites)
        return run

    def call(self, call: Call, to: Sequence[str], accepted: Mapping[str, int], policy: Policy) -> dict[str, Outcome]:
        """Run `call` at the sites `to`. An offline site gets no request before it is back."""
        return dict(self.arriving(call, to, accepted, policy))

    def arriving(
        self, call: Call, to: Sequence[str], accepted: Mapping[str, int], policy: Policy
    ) -> Iterator[tuple[str, Outcome]]:
        """Do as `call`; yield the outcomes in the order of `to`, each when those before it have come."""
        self.directory.follow_members()
        outcomes: dict[str, Outcome] = {}
        for site, reason in self.directory.removed(to).items():
            outcomes[site] = Failure(FailureKind.REFUSED, reason)
        for site, reason in self.directory.offline(site for site in to if site not in outcomes).items():
            outcomes[site] = Failure(FailureKind.OFFLINE, reason)
        for site in to:
            if site not in outcomes and (why := self.directory.objection(site, _ids(call))):
                outcomes[site] = Failure(FailureKind.REFUSED, why)
        left = list(to)
        if ready := [site for site in to if site not in outcomes]:
            head, parts = call_head(call, ready, accepted, policy, self._pinned[call.run][0])
            large = {site: why for site in ready if (why := self.directory.too_large(site, parts))}
            outcomes |= {site: Failure(FailureKind.OVERSIZE, why) for site, why in large.items()}
            ready = [site for site in ready if site not in large]
            head |= {"study": self.directory.study}
            limit, instances = int(policy.max_bytes), {}
            came = self.directory.arriving("call", call.run, ready, head, parts, policy.deadline, limit)
            del parts  # the request holds them
            for site, answer in came:
                outcomes[site] = self._outcome(call, site, answer, limit)
                if isinstance(answer, Opened):
                    instances[site] = answer.head["instance"]
                del answer
                while len(left) > 1 and left[0] in outcomes:  # the last one comes after what is done below
                    yield left[0], outcomes.pop(left.pop(0))
            self.directory.refresh_restarted(call.run, instances)
        yield from ((site, outcomes[site]) for site in left)

    def wait(self, sites: Sequence[str], seconds: float) -> bool:
        """Wait for offline sites."""
        return self.directory.wait(sites, seconds)

    def restore(self, call: Call, changes: Mapping[str, Changes], accepted: Mapping[str, int], policy: Policy) -> None:
        """Let the sites that have lost the call from their disks run it again. The others have their state."""
        lost = [site for site in changes if (held := self._held[call.run].get(site)) and held.lacks(call.number)]
        if lost:
            head, parts = call_head(replace(call, how="ask"), lost, accepted, policy, self._pinned[call.run][0])
            head |= {"study": self.directory.study}
            self.directory.send("redo", call.run, lost, head, parts, policy.deadline)

    def end(self, run: str, sites: Sequence[str], resumable: bool) -> None:
        """End a run at the sites that are online, and restore the number of BLAS threads."""
        pinned = self._pinned.pop(run, None)
        self._held.pop(run, None)
        self.directory.open_runs.discard(run)
        if pinned is not None:
            pinned[1].release()
        offline = self.directory.offline(sites) | self.directory.removed(sites)
        online = [site for site in sites if site not in offline and not self.directory.objection(site)]
        if online and not resumable:
            self.directory.send("end", run, online, seconds=CONTROL_SECONDS / 2)

    def reports(self, refresh: bool = False) -> dict[str, SiteReport]:
        """Return the reports of the sites that are online; with `refresh`, request all of them again."""
        wanted = [site for site in self.sites if refresh or site not in self.directory.reports]
        offline = {} if refresh else self.directory.offline(wanted)
        self.directory.refresh([site for site in wanted if site not in offline])
        self.directory.warn()
        return {site: self.directory.reports[site] for site in self.sites if site in self.directory.reports}

    def _outcome(self, call: Call, site: str, answer: Answer, max_bytes: int) -> Outcome:
        if isinstance(answer, Failure):
            return answer
        head = answer.head
        try:
            if head["kind"] == "reply":
                rows = _ROWS.check("the answer's number of rows", head["rows"])
                return Delivery(call.number, decode(answer.parts["reply"], max_bytes), rows)
            return self._failure(site, head)
        except MessageError as error:
            return Failure(FailureKind.MALFORMED, str(error), error)
        except MISREAD:
            return Failure(FailureKind.MALFORMED, "the answer lacks a field that it must have")

    def _failure(self, site: str, head: Message) -> Failure:
        """Return why a site has refused or failed, by its own report."""
        why, kind, again = str(head["why"])[:1000], FailureKind(head["failure"]), head["again"] is True
        if kind is FailureKind.LATE or (again and kind is FailureKind.REFUSED):
            self.directory.lost(site, why)  # until a probe finds that it is not busy, and not closed
        if again:
            return Failure(FailureKind.OFFLINE, why)
        return Failure(kind, why, None, read_facts(head.get("facts")))


def _ids(call: Call) -> list[str]:
    """Return the ids of the steps and transforms that a call runs."""
    inner = [] if call.step.runs is None else [call.step.runs(call.payload)[0]]
    return [call.step.id, *inner, *(transform.id for transform in call.transforms)]
