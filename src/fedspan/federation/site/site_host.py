"""The site's side of a call: the same code next to the data on every engine.

A call's reply and what it did to the site's state are one record. Each call names the last call that the coordinator
accepted from this site. If a reply came too late or was refused, the site takes the state back to that call. A repeated
call gets the reply that was given before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from fedspan.errors import BudgetError, FedspanError, LedgerError, LostSumError, PolicyError, UnknownStepError
from fedspan.federation.calls.call import Call, Delivery
from fedspan.federation.site.call_context import CallContext
from fedspan.federation.site.noise_query import SiteLedger
from fedspan.federation.site.site import Site
from fedspan.federation.site.state import NO_CHANGES, Changes
from fedspan.federation.site.step_runner import Runner, StepRunner, refuse_without_noise
from fedspan.wire import Message, canonical

_log = logging.getLogger("fedspan.site")

#: Errors whose sentences are about calls and accounts, never about rows: a strict ledger lets them leave.
WITHOUT_ROWS = (BudgetError, LedgerError, LostSumError, PolicyError, UnknownStepError)


class Identified(Protocol):
    """A call that can be recognised."""

    def query(self, site: str) -> bytes:
        """Return what identifies the call as one site receives it."""

    @property
    def session(self) -> str:
        """The secure sum that it is a part of."""


@dataclass(slots=True)
class RunState:
    """A site's state in one run: as of the last accepted call, and the later call that may yet be accepted."""

    number: int = -1
    state: Message = field(default_factory=dict)
    pending: list[tuple[Identified, Delivery]] = field(default_factory=list)  # several for the parts of a secure sum
    pending_number: int | None = None  # the call that `pending` answers: it counts even if the step failed

    def continues(self, call: Call) -> bool:
        """Return whether a call is a later part of the pending one."""
        if call.number != self.pending_number or call.part == 0:
            return False
        return any(before.session == call.session for before, _ in self.pending)

    def settle(self, after: int) -> None:
        """Bring the state to the one after call `after`: keep the pending call's changes, or take them back."""
        if after == self.number:
            self.pending = []
            return
        if after != self.pending_number:
            raise FedspanError(
                f"this site has its state as of call {self.number}, not of call {after}, as where the end of a journal "
                "was lost: begin a new run"
            )
        pending, self.pending, self.number = self.pending, [], after
        for _, delivery in pending:
            if delivery.changes is not NO_CHANGES:
                self.state = delivery.changes.applied_to(self.state)


class Records(Protocol):
    """Where a site writes its run states, if they are to outlive its process."""

    def load(self, run: str) -> RunState:
        """Return the state of a run, or a new one; the host changes it and then reports the change."""

    def answered(self, call: Call, after: int, delivery: Delivery) -> None:
        """Write a reply and what it did to the state, before the reply leaves."""

    def failed(self, call: Call, after: int) -> None:
        """Write that a step failed, so that the state is the one after call `after`."""


class SiteHost:
    """Runs calls at one site.

    Parameters
    ----------
    vault : fedspan.secure_sum.sum_vault.Vault, optional
        The site's keys for secure sums.
    simulated : callable, optional
        Makes the ledger of a site without one from its name and the run's seed: for embedded sites alone. Others
        without a ledger refuse what needs one.
    records : Records, optional
        Where the site writes its run states, if they are to outlive this process.
    runner : Runner, optional
        Runs the steps. Default: in this process.

    Attributes
    ----------
    largest : int or None
        Bytes that a reply with noise may have. A larger one is refused, and its noise is not charged.
    """

    def __init__(
        self,
        site: Site,
        vault: Any = None,
        simulated: Callable[[str, int], SiteLedger] | None = None,
        records: Records | None = None,
        runner: Runner | None = None,
    ) -> None:
        self.site = site
        self.vault = vault
        self.largest: int | None = None
        self._records = records
        self._simulated = simulated
        self._ledger = site.ledger
        self._runs: dict[str, RunState] = {}
        self._runner = runner or StepRunner(site)
        #: Nothing is written, charged or refused here: a call is its step alone.
        self._plain = records is None and runner is None and site.ledger is None and not site.weighted
        self._rows = len(site)
        self._make_context = self._context_of

    def perform(self, call: Call, payload: Message, after: int, silent: bool = False) -> Delivery:
        """Run one call and return its reply. What a step raises is raised here.

        A `silent` call is run for what it does to the state. Its reply is empty, also where the step fails, so that it
        may be one of secure sums.
        """
        run = self._runs.get(call.run) or self._run(call.run)
        number = call.number
        if number == run.pending_number:
            given = self.given_before(call, run)
            if given is not None:
                return given
        step = call.step
        if not self._plain or call.transforms or silent or self.vault is not None or step.reveals == "nothing":
            return self._perform_in_full(call, payload, after, silent, run)
        run.settle(after)
        run.pending_number = number
        site, changes = self.site.in_call(None, (self._make_context, run, call, payload)), NO_CHANGES
        try:
            reply = canonical(step.function(site, **payload), "reply")
        except BaseException:
            if site.used is not None:
                site.used.commit_charges()
            raise
        context = site.used
        if context is not None:
            changes = _charged_changes(context, reply)
        delivery = Delivery(number, reply, self._rows if step.reveals == "rows" else -1, changes)
        run.pending.append((call, delivery))
        return delivery

    def _perform_in_full(self, call: Call, payload: Message, after: int, silent: bool, run: RunState) -> Delivery:
        """Run a call that ledger, vault, record, weights or transforms have a part in, or one that may read no row."""
        if self.vault is not None and self.vault.sums_only and not (call.step.public or silent):
            raise PolicyError("this site takes part in secure sums only, and gives no reply of its own to this step")
        if call.part == 0 or not run.continues(call):
            run.settle(after)
            run.pending_number = call.number
        ledger = self._ledger
        context = self._make_context(run, call, payload)
        try:
            try:
                reply = self._runner.run(call, payload, context)
            finally:
                if context.charged:  # before anything leaves: a reply, or that the step failed
                    context.commit_charges()
        except Exception as error:
            if self._records is not None:
                self._records.failed(call, after)
            strict = ledger is not None and ledger.strict
            if isinstance(error, WITHOUT_ROWS) or not (strict or silent):
                raise
            if strict:  # the same words whether the step failed or not
                refuse_without_noise(call, self.site.in_call(context), replied=True)
            if silent:  # as in a secure sum, whether the step fails for the rows is not revealed
                _log.warning("step %r, done again at site %r, fails: %s", context.step, self.site.name, error)
                return Delivery(call.number, {}, -1, NO_CHANGES)
            raise FedspanError(
                f"step {context.step!r} failed at site {self.site.name!r}, whose strict ledger keeps the reason at the "
                "site"
            ) from None
        # How many rows there are is known of replies with one entry per row alone: a private step may hide it.
        rows = self._rows_seen(call) if call.step.reveals == "rows" else -1
        delivery = Delivery(call.number, {} if silent else reply, rows, context.state_changes())
        run.pending.append((call, delivery))
        if self._records is not None:
            self._records.answered(call, after, delivery)
        return delivery

    def _context_of(self, run: RunState, call: Call, payload: Message) -> CallContext:
        digests = call.transform_digests if call.transforms else ()
        return CallContext(
            run.state, call.run, call.number, call.seed, call.step.id, payload, digests, self.vault, self._ledger,
            self._simulated, largest=self.largest,
        )  # fmt: skip

    def _rows_seen(self, call: Call) -> int:
        """Return the number of rows that the call sees."""
        site = self.site
        for transform in call.transforms:
            site = transform.applied_to(site) if transform.selects else site
        return len(site)

    def given_before(self, call: Call, run: RunState | None = None) -> Delivery | None:
        """Return the reply that the very same call got before, if it is repeated.

        A reply that the coordinator added up at once, in this process, is made again.
        """
        run = run or self._run(call.run)
        if call.number == run.pending_number:
            query = call.query(self.site.name)
            for before, given in run.pending:
                if given.reply is not None and before.query(self.site.name) == query:
                    return given
        return None

    def restore(self, run: str, number: int, changes: Changes) -> None:
        """Apply to the state what call `number` of a journal did."""
        state = self._runs.setdefault(run, RunState())
        state.number, state.state, state.pending = number, changes.applied_to(state.state), []

    def forget(self, run: str) -> None:
        """Drop a run's state."""
        self._runs.pop(run, None)
        if self.vault is not None:
            self.vault.forget(run)

    def _run(self, run: str) -> RunState:
        if self._records is not None:
            return self._records.load(run)
        state = self._runs.get(run)
        if state is None:
            state = self._runs[run] = RunState()
        return state


def _charged_changes(context: CallContext, reply: Message) -> Changes:
    """Return what a call did to the site's state, after its noise is charged, before its reply leaves."""
    try:
        if context.charged:
            context.check_size(reply)
    finally:
        context.commit_charges()
    return context.state_changes()
