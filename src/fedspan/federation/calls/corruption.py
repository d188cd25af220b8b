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
    """An attack and the sites that it controls."""

    attack: Attack
    sites: frozenset[str]

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
                result[site] = delivery.written_by_attack(written[site])
        return result
