"""Requests as the site's owner sees them: of a secure sum, the step whose replies are added up."""

from __future__ import annotations

import json

from fedspan.engines.remote.ask import Ask
from fedspan.engines.remote.call import checked_run
from fedspan.engines.remote.envelope import Opened
from fedspan.federation.secure.steps import __name__ as secure_steps
from fedspan.wire import decode

#: What is known of a message that nobody has signed.
NOBODY = Ask("", "", "", -1, 0, "", (), "", False)
_MOST_SUMS = 64


class Asks:
    """Says of each request what an owner's rules look at; remembers what the last secure sums are about."""

    def __init__(self) -> None:
        self._sums: dict[str, str] = {}

    def of(self, opened: Opened, first: bool = False) -> Ask:
        """Return a call as the owner sees it."""
        head, who = opened.head, opened.who
        step, how = head["step"], head["how"]
        if step.startswith(f"{secure_steps}."):
            how = f"secure {step.rpartition('.')[2]}"
            step = self._summed(opened, step)
        lenses = tuple(name for name, _ in json.loads(head["lenses"]))
        return Ask(who.name, who.role, checked_run(head), head["number"], head["part"], step, lenses, how, first)

    def of_refused(self, opened: Opened) -> Ask:
        """Return a request as the owner sees it, as far as it can be read."""
        try:
            return self.of(opened)
        except Exception:
            head, who = opened.head, opened.who
            run, kind = (str(head.get(name, ""))[:200] for name in ("run", "kind"))
            return Ask(who.name, who.role, run, -1, 0, "", (), kind, False)

    def _summed(self, opened: Opened, step: str) -> str:
        payload = decode(opened.parts["payload"], len(opened.parts["payload"]))
        session = str(payload.get("session"))
        if "what" in payload:
            while len(self._sums) >= _MOST_SUMS:
                del self._sums[next(iter(self._sums))]
            self._sums[session] = str(payload["what"])
        return self._sums.get(session, step)
