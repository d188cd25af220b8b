"""One way through a call: a step is requested at sites, and what comes back is checked, recorded and added up."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from fedspan.errors import DeadlineError, FedspanError, InputError, JournalError, MessageError, PolicyError, QuorumError
from fedspan.federation.calls.call import Call, Collected, Engine, Outcome, Summation
from fedspan.federation.calls.corruption import Corruption
from fedspan.federation.calls.faults import FaultPlan
from fedspan.federation.calls.reply_checks import check_replies
from fedspan.federation.calls.running_total import Check, RunningTotal, added
from fedspan.federation.journal import JournalEntry
from fedspan.federation.message_sizes import SameSize
from fedspan.federation.outcomes import Failure, FailureKind, by_reason
from fedspan.federation.policy import Policy
from fedspan.federation.record import CallRecord, RunRecord, plain
from fedspan.federation.replies import Replies, Total, averaged
from fedspan.federation.run import Observer, Run
from fedspan.federation.site.state import NO_CHANGES
from fedspan.federation.site.steps import dotted_name, find_step
from fedspan.federation.site.transforms import Transform
from fedspan.wire import Message, canonical, non_finite_key

StepLike = Callable[..., Any] | str


@dataclass
class Root:
    """What all views of one federation share in all runs."""

    engine: Engine
    seed: int
    policy: Policy
    run_dir: Path | None = None
    summation: Summation | None = None  # for a policy with secure sums
    observers: tuple[Observer, ...] = ()
    simulated: bool = False  # whether all sites are in this process
    runs: int = 0
    open_run: Run | None = None  # of protocols that are called on the federation itself
    closing: weakref.finalize[..., Root] | None = None  # closes that run, at the latest when the interpreter exits

    def __post_init__(self) -> None:
        self.rules: dict[str, Any] = plain(self.policy)["fields"]

    def close(self) -> None:
        """Close the run of protocols that were called on the federation itself."""
        self.open_run = None
        if self.closing is not None:
            self.closing()


@dataclass(frozen=True)
class View:
    """What one view of a federation does to calls on their way."""

    sites: tuple[str, ...]
    transforms: tuple[Transform, ...] = ()
    corruptions: tuple[Corruption, ...] = ()
    faults: tuple[FaultPlan, ...] = ()
    run: Run | None = None
    largest: float = np.inf  # number of a single reply
    names: tuple[str, ...] | None = None  # of the columns that the last transform shows

    @property
    def conditions(self) -> str:
        """The attacks and faults that calls of this view suffer: a journal with other ones does not fit."""
        if not self.corruptions and not self.faults:
            return ""
        attacks = [f"{_stable_text(one.attack)} at {sorted(one.sites)}" for one in self.corruptions]
        return "; ".join([*attacks, *map(repr, self.faults)])


class Calling:
    """What makes calls: the base of `Federation`, whose views share the engine and within a run its journal."""

    def __init__(self, root: Root, view: View) -> None:
        self._root = root
        self._view = view

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, sorted as text."""
        return self._view.sites

    @property
    def rng(self) -> np.random.Generator:
        """The coordinator's generator in this run."""
        return self._run.rng

    @property
    def policy(self) -> Policy:
        """The rules for this federation's calls."""
        return self._root.policy

    def ask(self, step: StepLike, to: Iterable[str] | None = None, /, **payload: object) -> Replies:
        """Run `step` at the sites `to` (default: all) and return every reply.

        Parameters
        ----------
        step : function or str
            A step, or its id.
        to : names of sites, optional
        **payload
            Arrays, numbers, strings and ``None``, the same for all sites.

        Raises
        ------
        QuorumError
            If fewer sites answered than the policy's quorum.
        """
        if self.policy.secure_sum and not find_step(step).public:
            self.need_single_replies(f"fed.ask of step {find_step(step).id!r}")
        found = self._call(step, self._recipients(to), payload, "ask")
        replies = Replies(found.replies, found.failed)
        return replies if np.isinf(self._view.largest) else self.accept(replies, self._refuse_large)

    gather = ask

    def sum(self, step: StepLike, /, **payload: object) -> Total:
        """Run `step` at all sites and return, key by key, the sum of the replies: all that the coordinator keeps."""
        return _total(self._call(step, self.sites, payload, "sum"))

    def mean(self, step: StepLike, /, **payload: object) -> Total:
        """Run `step` at all sites and return, key by key, the plain mean of the replies."""
        return _total(self._call(step, self.sites, payload, "mean"))

    def merge(self, step: StepLike, check: Check | None = None, /, **payload: object) -> Total:
        """Run `step` at all sites and return what its ``merge`` makes of the replies: all that the coordinator keeps.

        For summaries of rows that are more than sums, such as means with centred products. `check` receives the replies
        by site, and returns the failures of those that it refuses. A secure sum can't carry it.
        """
        found = find_step(step)
        if found.merge is None:
            raise InputError(f"step {found.id!r} has no merge: declare it with @step(merge=...), or use sum or ask")
        self.need_single_replies(f"fed.merge of step {found.id!r}")
        return _total(self._call(step, self.sites, payload, "merge", check))

    def need_single_replies(self, what: str, *, or_totals: bool = False) -> None:
        """Refuse `what` under secure sums: a protocol that needs single replies calls this before its first call.

        With `or_totals` the totals of groups of sites will do (`totals`).
        """
        if self.policy.secure_sum and not (or_totals and self.policy.groups):
            more = ", or groups of sites (Policy(secure_sum=True, groups=...))" if or_totals else ""
            raise PolicyError(
                f"{what} needs the replies of single sites, which secure_sum=True hides from the coordinator: "
                f"use what needs sums alone, or a policy without secure_sum{more}"
            )

    def accept(self, replies: Replies, check: Callable[[Message], Message]) -> Replies:
        """Return the replies of the last call as `check` returns them; where it raises, the site has failed.

        For what a protocol alone knows of its replies, such as that a basis has full rank. The failures are in the
        record, and the quorum counts.
        """
        ok: dict[str, Message] = {}
        failures: dict[str, Failure] = {}
        for site, reply in replies.ok.items():
            try:
                ok[site] = check(reply)
            except FedspanError as error:
                failures[site] = Failure(FailureKind.REJECTED, str(error), error)
        if not failures:
            return Replies(ok, replies.failed)
        self._run.rejected(failures)
        checked = Replies(ok, {**replies.failed, **failures})
        call = self._run.record.calls[-1]
        if len(ok) < self.policy.needed(len(call.asked)):
            raise self._quorum_error(call, checked.failed)
        return checked

    @property
    def _run(self) -> Run:
        """The current run; protocols called on the federation itself share one, begun by the first of them."""
        if self._view.run is not None:
            return self._view.run
        if self._root.open_run is None:
            run = self._root.open_run = self._new_run("protocol", {}, None, ())
            self._root.closing = weakref.finalize(self._root, run.close, resumable=True)
        return self._root.open_run

    def _new_run(self, what: str, settings: dict[str, Any], seed: int | None, observers: tuple[Observer, ...]) -> Run:
        """Begin a run with the next number."""
        root, view = self._root, self._view
        seed = root.seed if seed is None else seed
        record = RunRecord(what, settings, root.runs, seed, tuple(root.engine.sites))
        record.policy, record.conditions = dict(root.rules), view.conditions
        record.simulated = root.simulated
        record.transforms = tuple(transform.id for transform in view.transforms)
        folder = None if root.run_dir is None else root.run_dir / f"run-{root.runs:03d}"
        run = Run(root.engine, record, folder, root.observers + observers)
        root.runs += 1
        return run

    def _refuse_large(self, reply: Message) -> Message:
        """Refuse a reply with a number beyond the bound of this view."""
        largest = self._view.largest
        for key, value in reply.items():
            numbers = isinstance(value, np.ndarray | float) and np.asarray(value).dtype.kind in "fc"
            if numbers and not (np.abs(value) < largest).all():
                raise InputError(f"{key!r} holds numbers of {largest:g} or more: scale the data, or the reply is false")
        return reply

    def _recipients(self, names: Iterable[str] | None) -> tuple[str, ...]:
        if names is None:
            return self.sites
        wanted = (names,) if isinstance(names, str) else tuple(names)
        unknown = sorted(set(wanted) - set(self.sites))
        if unknown or not wanted:
            what = f"no site named {unknown[0]!r} is" if unknown else "no site was named, and one must be"
            raise InputError(f"{what} in this federation of {', '.join(self.sites[:10])}")
        return tuple(sorted(set(wanted)))

    def _call(
        self, step: StepLike, to: tuple[str, ...], payload: Mapping[str, object], how: str, check: Check | None = None
    ) -> Collected:
        """Make one call, or take it from the journal."""
        found = find_step(step)
        message = found.validated(canonical(payload, "payload"))
        run, view = self._run, self._view
        summation = self._root.summation if how != "ask" and not view.corruptions else None
        if summation is not None:
            summation.check_possible(f"the sum of step {found.id!r}", len(to))
        called = how if summation is None else f"secure {how} {self.policy.secure_sum}"
        call = Call(run.id, run.calls, run.record.seed, found, message, to, view.transforms, called, view.conditions)
        if summation is not None:
            summation.check_set(call)
        run.calls += 1
        self._check_limits(call, run)
        recorded = None if run.journal is None else run.journal.replay(call.number, call.digest, found.id)
        if recorded is not None:
            entry = recorded
        else:
            entry = self._made(call, how, summation, check)
            if run.journal is not None:
                run.journal.append(entry)
        collected = entry.collected
        record = CallRecord(
            call.number, found.id, run.round, to, collected.answered, collected.failed, collected.bytes_down,
            collected.bytes_up, entry.seconds, recorded is not None, how, summation is not None,
        )  # fmt: skip
        run.record.calls.append(record)
        if run.watched:
            run.called(record)
        if not entry.quorum:  # no reply is accepted: the sites go back to where they were
            raise self._quorum_error(record, collected.failed)
        if collected.error is not None:
            raise InputError(collected.error)
        if summation is not None:
            summation.made(call, collected.answered)
        if recorded is not None:
            changes = {site: collected.changes.get(site, NO_CHANGES) for site in collected.answered}
            run.engine.restore(call, changes, run.accepted, self.policy)
        run.accepted.update(dict.fromkeys(collected.answered, call.number))
        return collected

    def _check_limits(self, call: Call, run: Run) -> None:
        """Refuse a payload that is too large, and a call of a run that takes too long."""
        sizes = call.bytes_down
        size = sizes.size if isinstance(sizes, SameSize) else max(sizes.values(), default=0)
        if size > self.policy.max_bytes:
            raise MessageError(
                f"the payload of step {call.step.id!r} has {size} bytes, more than the {self.policy.max_bytes} allowed"
            )
        now = time.monotonic()
        if run is self._root.open_run:  # it has no end of its own, so each of its calls has all the time
            run.began = now
        if now - run.began > self.policy.run_deadline:
            raise DeadlineError(
                f"the run has taken more than run_deadline={self.policy.run_deadline:g} s and stops before call "
                f"{call.number}: give its Policy more time (with a run_dir it continues from here)"
            )

    def _made(self, call: Call, how: str, summation: Summation | None, check: Check | None = None) -> JournalEntry:
        """Send a call out, and add the replies up where that is wanted."""
        start = time.perf_counter()
        needed = self.policy.needed(len(call.to), adding=summation is not None)
        running = RunningTotal(call, how, self.policy, check) if how != "ask" and summation is None else None
        if summation is None:
            found = self._exchange(call, needed, running)
            if check is not None and not (running is not None and running.whole):
                found.refuse(check(found.replies))
            quorum = len(found.answered) >= needed
        else:
            while True:
                found = summation.collect(call, self._exchange, needed)
                quorum = found.error is not None or len(found.answered) >= needed
                if quorum or not self._returned(call, found.failed, needed):
                    break
        if how != "ask":
            self._add_up(found, call, how, quorum, running)
        digest = "" if self._run.journal is None else call.digest
        return JournalEntry(call.number, digest, found, time.perf_counter() - start, quorum)

    def _exchange(self, call: Call, needed: int = 0, running: RunningTotal | None = None) -> Collected:
        """Send a call out, again to offline sites while fewer than `needed` answer; return the accepted replies.

        Replies are added to the `running` total as they come: groups of sites of this process, or site by site where
        the engine passes each on. An attack or a fault sees all replies.
        """
        view, arriving = self._view, getattr(self._root.engine, "arriving", None)
        if running is None or view.corruptions or view.faults or not (arriving or self._root.simulated):
            sent = self._deliver(call, call.to)
        else:
            if arriving is None:
                sent = running.collect(lambda group: self._deliver(call, group))
            else:
                coming = arriving(call, call.to, self._run.accepted, self.policy)
                sent = running.collect(lambda group: dict(islice(coming, len(group))), together=1)
            if running.whole:
                found = running.collected()
                found.bytes_down = call.bytes_down
                return found
        while True:
            outcomes = sent
            for corruption in self._view.corruptions:
                outcomes = corruption.applied(call, outcomes)
            for plan in self._view.faults:
                outcomes = plan.applied(call, outcomes, lambda site: self._deliver(call, (site,))[site])
            found = check_replies(call, outcomes, self.policy)
            if len(found.replies) >= needed or not self._returned(call, found.failed, needed):
                break
            offline = tuple(site for site, failure in found.failed.items() if failure.offline)
            sent = {**sent, **self._deliver(call, offline)}
        found.bytes_down = call.bytes_down
        return found

    def _returned(self, call: Call, failed: Mapping[str, Failure], needed: int) -> bool:
        """Wait for offline sites, if the quorum can be reached with them; return whether to request again."""
        offline = tuple(site for site, failure in failed.items() if failure.offline)
        possible = len(call.to) - len(failed) + len(offline)
        return bool(offline) and possible >= needed and self._run.wait(offline, self.policy.run_deadline)

    def _add_up(self, found: Collected, call: Call, how: str, quorum: bool, running: RunningTotal | None) -> None:
        """Replace replies, or their secure sum, by the total under the name ``""``, or by why it is missing."""
        replies, found.replies = found.replies, {"": {}}
        if not quorum or found.error is not None:
            return
        try:
            summed = added(call, how, list(replies.values())) if running is None else running.of(replies)
            summed = canonical(averaged(summed, len(found.answered)) if how == "mean" else summed, "total")
        except FedspanError as error:
            found.error = str(error)
            return
        key = non_finite_key(summed) if self.policy.finite else None
        if key is not None:
            found.error = f"the sum of {key!r} over the replies of step {call.step.id!r} overflows"
        else:
            found.replies = {"": summed}

    def _deliver(self, call: Call, to: tuple[str, ...]) -> dict[str, Outcome]:
        run = self._run
        return run.engine.call(call, to, run.accepted, self.policy)

    def _quorum_error(self, call: CallRecord, failed: Mapping[str, Failure]) -> QuorumError:
        """Return the error that names the failed sites; its cause is what a step raised in this process."""
        asked, shown = len(call.asked), by_reason(failed)
        text = (
            f"{asked - len(failed)} of {asked} sites answered step {call.step!r} "
            f"(call {call.number}), and the {'secure sum' if call.secure else 'quorum'} needs "
            f"{self.policy.needed(asked, adding=call.secure)}. Failed: {shown}"
        )
        if len(failed) == asked and all(why.kind is FailureKind.NON_FINITE for why in failed.values()):
            text = (
                f"the numbers overflow in step {call.step!r} (call {call.number}) at every site: the values in the "
                f"tables are too large, divide the columns first, or the step averages no rows. {shown}"
            )
        error = QuorumError(text, failed)
        error.__cause__ = next((failure.error for failure in failed.values() if failure.error is not None), None)
        return error


def _total(found: Collected) -> Total:
    if "" not in found.replies:
        raise JournalError("the journal has no total of this call: begin the run again, in a new folder")
    return Total(found.replies[""], found.answered, found.failed)


def _stable_text(value: Any) -> str:
    """Return text of an attack that is the same in every process: its own repr, or the name of function or class."""
    if hasattr(value, "__qualname__"):
        return dotted_name(value)
    own: Any = type(value).__repr__
    return repr(value) if own is not object.__repr__ else dotted_name(type(value))
