"""The site's side of a call: the same code next to the data on every engine.

A call's reply and what it did to the site's state are one record. Each call names the last call that the
coordinator accepted from this site: if the site went further, because a reply came too late or was refused, it
takes the state back to that call. A repeated call gets the reply that was given before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fedspan.errors import BudgetError, FedspanError, LedgerError, LostSumError, PolicyError, UnknownStepError
from fedspan.federation.calls.call import Call, Delivery
from fedspan.federation.site.call_context import Asked
from fedspan.federation.site.noise_query import SiteLedger
from fedspan.federation.site.pending_call import Kept, Records
from fedspan.federation.site.reply_size import ChargedIfItFits, ReplySizes
from fedspan.federation.site.site import Site
from fedspan.federation.site.state import Changes
from fedspan.federation.site.steps import find_step
from fedspan.secure_sum.sum_vault import Vault
from fedspan.wire import Message, canonical

#: Their sentences are about calls and accounts, and pass a strict ledger.
_WITHOUT_ROWS = (BudgetError, LedgerError, LostSumError, PolicyError, UnknownStepError)


class SiteHost:
    """Runs calls at one site.

    Parameters
    ----------
    vault : Vault, optional
        With the site's own key, where the engine has one for it.
    simulated : callable, optional
        Makes the ledger of a site that has none from its name and the run's seed: for embedded sites alone. Others
        without a ledger refuse what needs one.
    records : Records, optional
        Where the site writes down what it keeps, if that is to outlive this process.

    Attributes
    ----------
    largest : int or None
        Bytes that a reply may have: for one that has more, no ledger is charged.
    """

    def __init__(
        self,
        site: Site,
        vault: Vault | None = None,
        simulated: Callable[[str, int], SiteLedger] | None = None,
        records: Records | None = None,
    ) -> None:
        self.site = site
        self._records = records
        self._simulated = simulated
        self._pretended: tuple[int, SiteLedger] | None = None
        self.vault = Vault() if vault is None else vault
        self._runs: dict[str, Kept] = {}
        self._seen_through: tuple[bytes, Site] = (b"", site)
        self._sizes = ReplySizes()
        self.largest: int | None = None

    def perform(self, call: Call, payload: Message, after: int) -> Delivery:
        """Run one call and return its reply. Whatever a step raises is raised here."""
        given = self.said_before(call)
        if given is not None:
            return given
        kept = self._kept(call.run)
        if self.vault.sums_only and not call.step.public:
            raise PolicyError("this site takes part in secure sums only, and gives no reply of its own to this step")
        if not kept.goes_on(call):
            kept.settle(after)
            kept.pending_number = call.number
        ledger = self._ledger(call.seed)
        asked = Asked(call.run, call.step.name, payload, call.lens_digests)
        gate = partial(self._refuse_without_noise, call) if ledger is not None and ledger.strict else None
        if ledger is not None and self.largest is not None:
            check = partial(self._sizes.check, self.site, call, kept, self.vault, self.largest)
            ledger = ChargedIfItFits(ledger, check)
        work = (kept.state, call.seed, call.number, self.vault, ledger, asked, gate)
        site = self.site if gate is None else self.site.at_work(*work)
        try:
            site = self._view(call, ledger).at_work(*work)
            reply = canonical(call.step.function(site, **payload), "reply")
        except Exception as error:
            if self._records is not None:
                self._records.failed(call, after)
            if gate is None or isinstance(error, _WITHOUT_ROWS):
                raise
            gate(site)  # a step that may not answer is refused in the same words whether it failed or not
            raise FedspanError(
                f"step {site.asked!r} failed at site {site.name!r}, whose strict ledger keeps the reason at the site"
            ) from None
        if gate is not None:
            gate(site)
        delivery = Delivery(call.number, reply, len(self.site), site.changes())
        kept.pending.append((call, delivery))
        if self._records is not None:
            self._records.answered(call, after, delivery)
        return delivery

    def said_before(self, call: Call) -> Delivery | None:
        """Return what was replied to the very same question, where a call is repeated."""
        kept = self._kept(call.run)
        if call.number == kept.pending_number:
            question = call.question(self.site.name)
            for before, given in kept.pending:
                if before.question(self.site.name) == question:
                    return given
        return None

    def _kept(self, run: str) -> Kept:
        kept = self._runs.get(run) if self._records is None else self._records.load(run)
        if kept is None:
            kept = self._runs[run] = Kept()
        return kept

    def restore(self, run: str, number: int, changes: Changes) -> None:
        """Do to the state what call `number` of a journal did."""
        kept = self._runs.setdefault(run, Kept())
        kept.number, kept.state, kept.pending = number, changes.applied_to(kept.state), []

    def forget(self, run: str) -> None:
        """Drop a run's state."""
        self._runs.pop(run, None)
        self.vault.forget(run)

    def _ledger(self, seed: int) -> SiteLedger | None:
        """Return the site's own ledger, or a simulated one."""
        own = self.site.ledger
        if own is not None or self._simulated is None:
            return own
        if self._pretended is None or self._pretended[0] != seed:  # one to a run: it depends on nothing else
            self._pretended = (seed, self._simulated(self.site.name, seed))
        return self._pretended[1]

    def _refuse_without_noise(self, call: Call, site: Site) -> None:
        """Refuse what a strict ledger does not let leave: replies that are not public and carry no noise.

        Asked whenever a step is about to read data, and before its reply leaves.
        """
        covered = site.said_with_noise or any(lens.private for lens in call.lenses)
        if not covered and not find_step(site.asked).public:
            raise PolicyError(
                f"the strict ledger of site {site.name!r} lets no reply leave that carries no noise, and that of step "
                f"{site.asked!r} carries none"
            )

    def _view(self, call: Call, ledger: SiteLedger | None) -> Site:
        """Return the site through the call's lenses; the last such view is kept, with what it has computed."""
        if not call.lenses:
            return self.site
        digests = call.lens_digests
        # Noise that is simulated depends on the run's seed; and what was never charged is charged by looking.
        private = any(lens.private for lens in call.lenses)
        key = b"".join(digests) + (repr(call.seed).encode() if private else b"")
        if self._seen_through[0] != key:
            site = self.site
            for number, lens in enumerate(call.lenses):
                site = lens.applied_to(site, ledger, call.run, digests[:number])
            self._seen_through = (key, site)
        return self._seen_through[1]
