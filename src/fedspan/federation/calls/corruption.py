"""Where an attack changes replies: it sees every honest one and writes those of its own sites."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedspan.federation.calls.call import Call, Delivery, Outcome
from fedspan.federation.site.site import generator
from fedspan.wire import Message


@dataclass(frozen=True)
class AttackedCall:
    """What an attack knows of a call."""

    step: str
    number: int


#: ``attack(replies, bad, rng, call) -> {site: reply}``: all honest replies by site, the names of the malicious sites in
#: this call, a generator, and the call. A malicious site without an entry stays honest; ``None`` sends nothing.
Attack = Callable[[Mapping[str, Message], tuple[str, ...], np.random.Generator, AttackedCall], Mapping[str, Any]]


@dataclass(frozen=True)
class Corruption:
    """An attack, the sites that it controls, and the largest number that their sums can carry."""

    attack: Attack
    sites: frozenset[str]
    largest: float = np.inf

    def applied(self, call: Call, outcomes: dict[str, Outcome]) -> dict[str, Outcome]:
        """Return `outcomes` with the replies of the malicious sites as the attack writes them."""
        bad = tuple(site for site in call.to if site in self.sites)
        if not bad:
            return outcomes
        honest = {site: o.reply for site, o in outcomes.items() if isinstance(o, Delivery) and o.canonical}
        rng = generator(call.seed, "attack", call.number)
        written = self.attack(honest, bad, rng, AttackedCall(call.step.id, call.number))
        result = dict(outcomes)
        for site in bad:
            if site in written:
                own = outcomes.get(site)
                delivery = own if isinstance(own, Delivery) else Delivery(call.number, None)
                result[site] = delivery.written_by_attack(self._carried(written[site]))
        return result

    def _carried(self, reply: Any) -> Any:
        """Return a reply as a secure sum carries it: a masked number is finite, and within the range."""
        if self.largest == np.inf or not isinstance(reply, Mapping):
            return reply
        return {key: self._within(value) for key, value in reply.items()}

    def _within(self, value: Any) -> Any:
        numbers = np.asarray(value)
        if numbers.dtype.kind != "f":
            return value
        largest = min(self.largest, float(np.finfo(numbers.dtype).max))
        kept = np.clip(np.nan_to_num(numbers, nan=largest), -largest, largest).astype(numbers.dtype)
        return kept if isinstance(value, np.ndarray) else float(kept)
