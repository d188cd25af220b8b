"""The owner's word on every call, and the line that is written about it."""

from __future__ import annotations

from contextlib import suppress

from fedspan.engines.owner.audit_log import AuditLog, AuditLogError
from fedspan.engines.owner.rules import Rules
from fedspan.engines.remote.ask import Ask
from fedspan.errors import LedgerError, PolicyError
from fedspan.federation import Site
from fedspan.privacy import Ledger

#: How the sentences begin with which a site, its ledger or its vault refuse. Whatever else stops a call has failed.
_REFUSALS = ("this site refuses", "the strict ledger of site", "this site takes part in secure sums only")


class OwnerGuard:
    """Enforces rules at one site, and logs (`fedspan.engines.remote.ask.Guard`).

    A call is refused before its step touches data where the rules forbid it, where the log cannot be written, or where
    the site's data are others than those that its run began with. Nothing leaves before its line is written.
    """

    def __init__(self, rules: Rules, site: Site, log: AuditLog, ledger: Ledger | None = None) -> None:
        self.rules = rules
        self.log = log
        self._site = site
        self._ledger = ledger
        self._digest = ""
        self._own_refusals: dict[tuple[str, int, int], str] = {}

    def use(self, site: Site) -> None:
        """Go on with other data of the same site."""
        self._site, self._digest = site, ""

    def admit(self, ask: Ask) -> None:
        """Refuse with a `PolicyError` before the step touches data."""
        try:
            self.log.check()
            self.rules.check_ask(ask, len(self._site))
            self.rules.check_rounds(self.log.rounds(ask.who).after(ask.run, ask.number, ask.part))
            if self.log.data(ask.run) not in (None, self._data()):
                raise PolicyError("this site's data have changed since this run began: begin a new run")
        except PolicyError as error:
            self._remember(ask, error)
            raise

    def release(self, ask: Ask, size: int) -> None:
        """Refuse with a `PolicyError` before a reply of `size` bytes leaves; write down that it does."""
        try:
            self.rules.check_size(size)
            self._write(ask, size, "answered", "")
        except PolicyError as error:
            self._remember(ask, error)
            raise

    def refused(self, ask: Ask, why: str) -> None:
        """Take note of a call that was refused or failed, whoever refused it. Nothing leaves, log or no log."""
        own = self._own_refusals.pop((ask.run, ask.number, ask.part), None)
        refusal = (own is not None and own in why) or any(start in why for start in _REFUSALS)
        with suppress(AuditLogError):
            self._write(ask, 0, "refused" if refusal else "failed", why)

    def budget_left(self) -> float | None:
        """Return the epsilon that is left of the site's budget, or ``None`` where it has none."""
        if self._ledger is not None:
            with suppress(LedgerError):  # the charge itself will say so
                return max(0.0, self._ledger.epsilon - self._ledger.spent)
        return None

    def _remember(self, ask: Ask, error: PolicyError) -> None:
        self._own_refusals = {(ask.run, ask.number, ask.part): str(error)}

    def _data(self) -> str:
        if not self._digest:
            self._digest = self._site.digest().hex()[:32]
        return self._digest

    def _write(self, ask: Ask, size: int, outcome: str, why: str) -> None:
        left = self.budget_left()
        entry = {
            "who": ask.who,
            "role": ask.role,
            "run": ask.run,
            "call": ask.number,
            "part": ask.part,
            "step": ask.step,
            "lenses": [lens[:200] for lens in ask.lenses[:20]],
            "how": ask.how,
            "bytes": size,
            "budget_left": left if left is None else round(left, 6),
            "outcome": outcome,
            "why": " ".join(why.split()),
        }
        if outcome == "answered" and self.log.data(ask.run) is None:
            entry["data"] = self._data()
        self.log.append(entry)
