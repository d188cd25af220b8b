"""The owner's word on every call, and the line that is written about it."""

from __future__ import annotations

from contextlib import suppress

from fedspan.errors import LedgerError
from fedspan.federation import Site
from fedspan.owner.audit_log import AuditLog, AuditLogError
from fedspan.owner.owner_request import Ask
from fedspan.owner.rules import Rules
from fedspan.privacy import Ledger


class OwnerGuard:
    """Enforces rules at one site, and logs (`fedspan.owner.owner_request.Guard`).

    A call is refused before its step touches data where the rules forbid it or the log cannot be used. Nothing leaves
    before its line is written.
    """

    def __init__(self, rules: Rules, site: Site, log: AuditLog, ledger: Ledger | None = None) -> None:
        self.rules = rules
        self.log = log
        self._site = site
        self._ledger = ledger

    def use(self, site: Site) -> None:
        """Go on with other data of the same site."""
        self._site = site

    @property
    def largest_reply(self) -> int | None:
        """Bytes that a reply may have."""
        return self.rules.largest_reply

    def welcome(self, ask: Ask) -> None:
        """Refuse with a `PolicyError` whoever is to learn nothing of this site."""
        self.log.check()
        self.rules.check_user(ask.who)
        self.rules.check_rows(len(self._site))

    def admit(self, ask: Ask) -> None:
        """Refuse with a `PolicyError` before the step touches data."""
        self.welcome(ask)
        self.rules.check_call(ask)
        if not ask.repeated:  # what was said once tells nothing new
            self.rules.check_rounds(self.log.rounds(ask.who).after(ask.run, ask.number, ask.how))

    def look(self, ask: Ask) -> None:
        """Refuse with a `PolicyError` what is about too few rows: data have been looked at then."""
        self.rules.check_sets(ask, self._site)

    def release(self, ask: Ask, size: int) -> None:
        """Refuse with a `PolicyError` before an answer of `size` bytes leaves; write down that it does."""
        if ask.is_call:
            self.rules.check_size(size)
        self._write(ask, size, "answered", "", ask.is_call and not ask.repeated)

    def refused(self, ask: Ask, why: str, outcome: str, ran: bool = False) -> None:
        """Take note of what was refused, whoever refused it, or has failed. Nothing leaves, log or no log."""
        with suppress(AuditLogError):
            self._write(ask, 0, outcome, why, ran)

    def budget_left(self) -> float | None:
        """Return the epsilon that is left of the site's budget, or ``None`` where it has none."""
        if self._ledger is not None:
            with suppress(LedgerError):  # the charge itself will say so
                return max(0.0, self._ledger.epsilon - self._ledger.spent)
        return None

    def _write(self, ask: Ask, size: int, outcome: str, why: str, ran: bool) -> None:
        left = self.budget_left()
        entry = {
            "who": ask.who,
            "role": ask.role,
            "run": ask.run,
            "call": ask.number,
            "part": ask.part,
            "step": ask.step,
            "transforms": [transform[:200] for transform in ask.transforms[:20]],
            "how": ask.how,
            "bytes": size,
            "budget_left": left if left is None else round(left, 6),
            "outcome": outcome,
            "ran": ran,
            "why": " ".join(why.split()),
        }
        self.log.append(entry)
