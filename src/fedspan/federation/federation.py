"""The federation: all that a protocol can do is ask sites to run a step, and look at what comes back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import takewhile
from typing import Any, Self

import numpy as np

from fedspan.errors import DeadlineError, FedspanError, InputError, MessageError, PolicyError, QuorumError
from fedspan.federation.calls.call import Call, Failure, Outcome
from fedspan.federation.calls.corruption import Attack, Corruption
from fedspan.federation.calls.faults import FaultPlan
from fedspan.federation.calls.reply_checks import Judged, judge
from fedspan.federation.journal import Entry
from fedspan.federation.policy import Policy
from fedspan.federation.privacy_spent import PrivacySpent
from fedspan.federation.record import CallRecord, RunRecord
from fedspan.federation.replies import Replies, Total, averaged, total
from fedspan.federation.run import Observer, Run
from fedspan.federation.site.noise_query import question_digest
from fedspan.federation.site.state import NO_CHANGES, Changes
from fedspan.federation.site.steps import dotted_name, find_step
from fedspan.federation.site.transforms import Lens
from fedspan.federation.view import Root, View, as_text
from fedspan.secure_sum.sum_coordinator import check_possible, secure_total
from fedspan.secure_sum.sum_settings import SecureSum
from fedspan.wire import Message, canonical, non_finite_key

StepLike = Callable[..., Any] | str


class Federation:
    """What a protocol is given.

    Protocols use `sites`, `rng`, `ask` (or `gather`), `sum`, `mean`, `sample`, `subset`, `rounds`, `log` and `stop`.
    Whoever runs them uses `begin`, `run`, `apply`, `corrupt` and `with_faults`. All views of a federation that these
    return share its engine, and within a run its counter, generator and journal.
    """

    def __init__(self, root: Root, view: View) -> None:
        self._root = root
        self._view = view

    def __repr__(self) -> str:
        some = ", ".join(self.sites[:5]) + (", ..." if len(self.sites) > 5 else "")
        return f"{type(self).__name__}({len(self.sites)} sites: {some})"

    # What a protocol uses.

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, sorted as text."""
        return self._view.sites

    @property
    def rng(self) -> np.random.Generator:
        """The coordinator's generator in this run."""
        return self._run.rng

    @property
    def plain_lenses(self) -> tuple[str, ...]:
        """Names of the transforms that see the rows as they are, without noise."""
        return tuple(lens.name for lens in takewhile(lambda lens: not lens.private, self._view.lenses))

    @property
    def policy(self) -> Policy:
        """The rules for this federation's calls."""
        return self._root.policy

    @property
    def record(self) -> RunRecord:
        """The record of the current run."""
        return self._run.record

    def ask(self, step: StepLike, to: Iterable[str] | None = None, /, **payload: object) -> Replies:
        """Run `step` at the sites `to` (default: all) and return every reply.

        Parameters
        ----------
        step : function or str
            A step, or its dotted name.
        to : names of sites, optional
        **payload
            Arrays, numbers, strings and ``None``, the same for all sites.

        Raises
        ------
        QuorumError
            If fewer sites answered than the policy's quorum.
        """
        if self.policy.secure_sum and not find_step(step).public:
            self.need_single_replies(f"asking for the replies of step {find_step(step).name!r}")
        entry = self._call(step, self._recipients(to), payload, None)
        return Replies(entry.replies, entry.failed)

    gather = ask

    def sum(self, step: StepLike, /, **payload: object) -> Total:
        """Run `step` at all sites and return, key by key, the sum of the replies: all that the coordinator keeps."""
        return self._combined(step, payload, "sum")

    def mean(self, step: StepLike, /, **payload: object) -> Total:
        """Run `step` at all sites and return, key by key, the plain mean of the replies."""
        return self._combined(step, payload, "mean")

    def need_single_replies(self, what: str) -> None:
        """Refuse `what` where sums are secure: a protocol that needs single replies says so before its first call.

        Raises
        ------
        PolicyError
            Under ``Policy(secure_sum=True)``.
        """
        if self.policy.secure_sum:
            raise PolicyError(
                f"{what} needs the replies of single sites, which secure_sum=True hides from the coordinator: "
                "use what needs sums alone, or a policy without secure_sum"
            )

    def accept(self, replies: Replies, check: Callable[[Message], Message]) -> Replies:
        """Return the replies of the last call as `check` makes them; where it raises, the site has failed.

        For what a protocol knows of its replies and a policy cannot: that a basis has full rank, say. The failures are
        in the record, and the quorum counts.
        """
        ok: dict[str, Message] = {}
        failures: dict[str, Failure] = {}
        for site, reply in replies.ok.items():
            try:
                ok[site] = check(reply)
            except FedspanError as error:
                failures[site] = Failure(f"refused: {error}", error)
        if not failures:
            return Replies(ok, replies.failed)
        reasons = {site: failure.reason for site, failure in failures.items()}
        self._run.refused(reasons)
        checked = Replies(ok, {**replies.failed, **reasons})
        call = self._run.record.calls[-1]
        if len(ok) < self.policy.needed(len(call.asked)):
            raise self._quorum_error(call, checked.failed, failures)
        return checked

    def sample(self, fraction: float) -> Federation:
        """Return a view of a random share of the sites, drawn from this run's generator.

        At least one, or as many as a secure sum must have.
        """
        if not 0 < fraction <= 1:
            raise InputError(f"sample({fraction!r}): the fraction must be above 0 and at most 1")
        secure = self.policy.secure_sum
        least = min(secure.least, len(self.sites)) if isinstance(secure, SecureSum) else 1
        count = max(least, round(fraction * len(self.sites)))
        chosen = self.rng.choice(len(self.sites), size=count, replace=False)
        return self.subset([self.sites[i] for i in chosen])

    def subset(self, names: Iterable[str]) -> Federation:
        """Return a view of the sites `names`."""
        return self._with(sites=self._recipients(names))

    def rounds(self, n: int) -> Iterator[int]:
        """Count rounds 0, 1, ... up to `n` of them, until `stop` is called; they show in progress and record."""
        return self._run.rounds(n)

    def log(self, **metrics: object) -> None:
        """Keep named numbers or words in the record, with the current round."""
        self._run.log(metrics)

    def stop(self, reason: str) -> None:
        """Say in words why the run stops, and end the loop over `rounds` with its current turn."""
        self._run.stop(reason)

    def spent(self, privacy: PrivacySpent, *, again: bool = False) -> None:
        """Put into the record what the run spends of the sites' privacy, beside what it has spent before.

        With `again` it takes the place of all that was there.
        """
        self._run.spent(privacy, again)

    # What whoever runs a protocol uses.

    @contextmanager
    def begin(
        self,
        what: str,
        settings: Mapping[str, Any] | None = None,
        seed: int | None = None,
        observers: Iterable[Observer] = (),
    ) -> Iterator[Federation]:
        """Begin a run of its own, with a number, a journal and a record, and end it with the block.

        Inside another run it is a part of that one.
        """
        if self._view.run is not None:
            yield self
            return
        run = self._root.new_run(what, as_text(settings or {}), seed, tuple(observers), self._view)
        try:
            yield self._with(run=run)
        except BaseException as error:
            run.end(error)
            raise
        run.end()

    def run(self, protocol: Callable[..., Any], /, *, random_state: int | None = None, **settings: Any) -> Any:
        """Run ``protocol(federation, **settings)`` as a run of its own and return its result."""
        with self.begin(dotted_name(protocol), settings, random_state) as federation:
            return protocol(federation, **settings)

    def apply(
        self, lens: Callable[..., Any], /, *, columns: Iterable[str] | None = None, **parameters: object
    ) -> Federation:
        """Return a federation whose sites see their data through an installed lens (see `fedspan.federation.site.transforms`).

        `columns` are the names that the lens is for: a site that has others fails.
        """
        return self._with(lenses=(*self._view.lenses, Lens.of(lens, parameters, columns)))

    def corrupt(self, attack: Attack, sites: Iterable[str]) -> Federation:
        """Return a federation in which an attack writes the replies of `sites`.

        An attack is any callable ``attack(replies, bad, rng, call) -> {site: reply}``. It sees all honest replies, so
        that there is none where sums are secure.
        """
        self.need_single_replies("an attack")
        corruption = Corruption(attack, frozenset(self._recipients(sites)))
        return self._with(corruptions=(*self._view.corruptions, corruption))

    def with_faults(self, plan: FaultPlan) -> Federation:
        """Return a federation whose messages suffer the faults of `plan`."""
        return self._with(faults=(*self._view.faults, plan))

    def observe(self, observer: Observer) -> None:
        """Tell `observer` about all runs that begin from now on."""
        self._root.observers += (observer,)

    def close(self) -> None:
        """Let go of the files and site states of protocols that were called on the federation itself."""
        self._root.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # Inside.

    @property
    def _run(self) -> Run:
        """The current run; protocols called on the federation itself share one, begun by the first of them."""
        if self._view.run is not None:
            return self._view.run
        if self._root.open_run is None:
            self._root.open_run = self._root.new_run("protocol", {}, None, (), self._view)
        return self._root.open_run

    def _with(self, **changes: Any) -> Federation:
        return Federation(self._root, View(**{**vars(self._view), **changes}))

    def _recipients(self, names: Iterable[str] | None) -> tuple[str, ...]:
        if names is None:
            return self.sites
        wanted = (names,) if isinstance(names, str) else tuple(names)
        unknown = sorted(set(wanted) - set(self.sites))
        if unknown or not wanted:
            what = f"no site named {unknown[0]!r} is" if unknown else "no site was named, and one must be"
            raise InputError(f"{what} in this federation of {', '.join(self.sites[:10])}")
        return tuple(sorted(set(wanted)))

    def _combined(self, step: StepLike, payload: Mapping[str, object], how: str) -> Total:
        entry = self._call(step, self.sites, payload, how)
        return Total(entry.replies[""], entry.answered, entry.failed)

    def _call(self, step: StepLike, to: tuple[str, ...], payload: Mapping[str, object], how: str | None) -> Entry:
        """Make one call, or take it from the journal; `how` is ``None`` where single replies are wanted."""
        found = find_step(step)
        found.check(payload)
        message = canonical(payload, "payload")
        secure = self.policy.secure_sum if how is not None else False
        if isinstance(secure, SecureSum):
            check_possible(secure, f"the sum of step {found.name!r}", len(to))
        run, view = self._run, self._view
        called = "ask" if how is None else f"secure {how} {secure}" if secure else how
        call = Call(
            run.id, run.next_number(), run.record.seed, found, message, to, view.lenses, called, view.conditions()
        )
        size = max(call.bytes_down.values())
        if size > self.policy.max_bytes:
            raise MessageError(
                f"the payload of step {found.name!r} has {size} bytes, more than the {self.policy.max_bytes} allowed"
            )
        if run is self._root.open_run:  # it has no end of its own: each of its calls is a run as far as time goes
            run.began = time.monotonic()
        if time.monotonic() - run.began > self.policy.run_deadline:
            raise DeadlineError(
                f"the run has taken more than run_deadline={self.policy.run_deadline:g} s and stops before call "
                f"{call.number}: give its Policy more time (with a run_dir it goes on from here)"
            )
        if isinstance(secure, SecureSum):
            question = question_digest(found.name, message, call.lens_digests, b"")
            run.summed.add(question, found.name, to, secure.least)
        failures: dict[str, Failure] = {}
        recorded = None if run.journal is None else run.journal.replay(call.number, call.digest, found.name)
        if recorded is not None:
            entry = recorded
        else:
            make = self._make_secure if isinstance(secure, SecureSum) else self._make
            entry, failures = make(call, how)
            if run.journal is not None:
                run.journal.append(entry)
        record = _recorded(call, entry, run.round, replayed=recorded is not None)
        run.called(record)
        if not entry.quorum:  # nobody's reply is taken: the sites go back to where they were
            raise self._quorum_error(record, entry.failed, failures, adding=how is not None)
        if entry.error is not None:
            raise InputError(entry.error)
        if recorded is not None:
            run.replay_state(call.number, entry.changes, entry.answered)
        run.accepted.update(dict.fromkeys(entry.answered, call.number))
        return entry

    def _make(self, call: Call, how: str | None) -> tuple[Entry, dict[str, Failure]]:
        start = time.perf_counter()
        judged, changes = self._exchange(call, self.policy.needed(len(call.to)))
        replies = ok = judged.ok
        quorum = len(ok) >= self.policy.needed(len(call.to))
        error = None
        if how is not None:
            replies, error = self._total(ok, call, how) if quorum else ({"": {}}, None)
        entry = Entry(
            number=call.number,
            digest="" if self._run.journal is None else call.digest,
            answered=tuple(ok),
            failed={site: failure.reason for site, failure in judged.failed.items()},
            replies=replies,
            changes=changes,
            bytes_up=judged.sizes,
            seconds=time.perf_counter() - start,
            quorum=quorum,
            error=error,
        )
        return entry, judged.failed

    def _make_secure(self, call: Call, how: str | None) -> tuple[Entry, dict[str, Failure]]:
        assert isinstance(self.policy.secure_sum, SecureSum)
        start = time.perf_counter()
        needed = self.policy.needed_for_sum(len(call.to))
        while True:
            found = secure_total(call, self.policy.secure_sum, self._exchange, needed)
            quorum = found.error is not None or len(found.answered) >= needed
            if quorum or not self._returned(call, found.failed, needed):
                break
        replies: Message = {}
        if found.total is not None and quorum:
            replies = canonical(averaged(found.total, len(found.answered)) if how == "mean" else found.total)
        entry = Entry(
            number=call.number,
            digest="" if self._run.journal is None else call.digest,
            answered=found.answered,
            failed={site: failure.reason for site, failure in found.failed.items()},
            replies={"": replies},
            changes=found.changes,
            bytes_up=found.bytes_up,
            seconds=time.perf_counter() - start,
            quorum=quorum,
            error=found.error,
            bytes_down=found.bytes_down,
        )
        return entry, found.failed

    def _exchange(self, call: Call, needed: int = 0) -> tuple[Judged, dict[str, Changes]]:
        """Send a call out; return the replies that keep to the policy, and what they did to the sites' states.

        Where fewer are in order than `needed`, sites that are away are asked again when they return.
        """
        sent = self._deliver(call, call.to)
        while True:
            outcomes = sent
            for corruption in self._view.corruptions:
                outcomes = corruption.applied(call, outcomes)
            for plan in self._view.faults:
                outcomes = plan.applied(call, outcomes, lambda site: self._deliver(call, (site,))[site])
            judged = judge(call, outcomes, self.policy)
            if len(judged.ok) >= needed or not self._returned(call, judged.failed, needed):
                break
            away = tuple(site for site, failure in judged.failed.items() if failure.away)
            sent = {**sent, **self._deliver(call, away)}
        changes = {site: outcomes[site].changes for site in judged.ok if outcomes[site].changes is not NO_CHANGES}  # type: ignore[union-attr]
        return judged, changes

    def _returned(self, call: Call, failed: Mapping[str, Failure], needed: int) -> bool:
        """Wait for sites that are away, if the quorum can be had with them; say whether to ask again."""
        away = tuple(site for site, failure in failed.items() if failure.away)
        possible = len(call.to) - len(failed) + len(away)
        return bool(away) and possible >= needed and self._run.wait(away, self.policy.run_deadline)

    def _total(self, ok: dict[str, Message], call: Call, how: str) -> tuple[dict[str, Message], str | None]:
        """Return the total under the name ``""``, or why the replies cannot be added up."""
        try:
            found = total(ok, call.step.name, mean=how == "mean")
        except FedspanError as error:
            return {"": {}}, str(error)
        key = non_finite_key(found) if self.policy.finite else None
        if key is not None:
            return {"": {}}, f"the sum of {key!r} over the replies of step {call.step.name!r} overflows"
        return {"": found}, None

    def _deliver(self, call: Call, to: tuple[str, ...]) -> dict[str, Outcome]:
        run = self._run
        return run.engine.call(call, to, run.accepted, self.policy)

    def _quorum_error(
        self, call: CallRecord, failed: Mapping[str, str], failures: Mapping[str, Failure], adding: bool = False
    ) -> QuorumError:
        """Return the error that says who failed and why; its cause is what a site of this process raised."""
        reasons = [f"{site}: {why}" for site, why in failed.items()]
        shown = "; ".join(reasons[:5]) + (f"; and {len(reasons) - 5} more" if len(reasons) > 5 else "")
        asked = len(call.asked)
        needed = self.policy.needed_for_sum(asked) if adding else self.policy.needed(asked)
        what = "secure sum" if adding and self.policy.secure_sum else "quorum"
        error = QuorumError(
            f"{asked - len(failed)} of {asked} sites answered step {call.step!r} "
            f"(call {call.number}), and the {what} needs {needed}. Failed: {shown}",
            failed,
        )
        error.__cause__ = next((failure.error for failure in failures.values() if failure.error is not None), None)
        return error


def _recorded(call: Call, entry: Entry, round_: int | None, *, replayed: bool) -> CallRecord:
    return CallRecord(
        number=call.number,
        step=call.step.name,
        round=round_,
        asked=call.to,
        answered=entry.answered,
        failed=entry.failed,
        bytes_down=call.bytes_down if entry.bytes_down is None else entry.bytes_down,
        bytes_up=entry.bytes_up,
        seconds=entry.seconds,
        replayed=replayed,
        how=call.how.partition(" SecureSum(")[0],
    )
