"""Calls as they travel: what the coordinator says in a request's head, and what a site makes of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

from fedspan.engines.remote.envelope import APART, Opened, texts
from fedspan.errors import MessageError
from fedspan.federation.call import Call
from fedspan.federation.lens import Lens
from fedspan.federation.policy import Policy
from fedspan.federation.step import find_step
from fedspan.wire import Message, decode, encode

_LONGEST_RUN = 500
_LENS = "lens "


@dataclass(frozen=True)
class SiteCall(Call):
    """A call as one site is told it; `told` identifies it."""

    told: str = ""

    @cached_property
    def digest(self) -> str:
        """What identifies this call at this site: all that it was told."""
        return self.told


def call_head(
    call: Call, to: Sequence[str], accepted: Mapping[str, int], policy: Policy, threads: int
) -> tuple[Message, dict[str, bytes]]:
    """Return what a request's head says of a call, and the parts that go with it."""
    parts = {"payload": encode(call.payload)}
    parts |= {APART + site: encode(call.apart[site]) for site in to if site in call.apart}
    parts |= {f"{_LENS}{i}": encode(lens.parameters) for i, lens in enumerate(call.lenses)}
    head: Message = {
        "number": call.number,
        "part": call.part,
        "step": call.step.name,
        "how": call.how,
        "seed": str(call.seed),
        "lenses": texts([[lens.name, lens.columns] for lens in call.lenses]),
        "sites": texts({site: accepted.get(site, -1) for site in to}),
        "threads": threads,
        "max_bytes": policy.max_bytes,
        "deadline": float(policy.deadline),
    }
    return head, parts


def site_call(opened: Opened, site: str) -> tuple[SiteCall, Message, int]:
    """Return the call that a request asks for, its payload, and the call after which it is to be made."""
    head, parts = opened.head, opened.parts
    payload = decode(parts["payload"], len(parts["payload"]))
    if APART + site in parts:
        payload |= decode(parts[APART + site], len(parts[APART + site]))
    names = json.loads(head["lenses"])
    lenses = []
    for i, (name, columns) in enumerate(names):
        part = parts[f"{_LENS}{i}"]
        lenses.append(Lens(name, decode(part, len(part)), None if columns is None else tuple(columns)))
    step = find_step(head["step"])
    step.check(payload)
    told = [head["step"], head["how"], head["seed"], head["part"], head["lenses"], sorted(opened.digests.items())]
    call = SiteCall(
        run=checked_run(head),
        number=head["number"],
        seed=int(head["seed"]),
        step=step,
        payload=payload,
        to=(site,),
        lenses=tuple(lenses),
        how=head["how"],
        part=head["part"],
        told=sha256(texts(told).encode()).hexdigest(),
    )
    return call, payload, after_call(opened, site)


def after_call(opened: Opened, site: str) -> int:
    """Return the last call that the coordinator has accepted from this site, which must be one it writes to."""
    sites = json.loads(opened.head["sites"])
    if site not in sites:
        raise MessageError(f"the message is for {', '.join(sorted(sites))[:200]}, not for {site}")
    return int(sites[site])


def checked_run(head: Message) -> str:
    """Return the run that a message is of."""
    run = head["run"]
    if not isinstance(run, str) or not 0 < len(run) <= _LONGEST_RUN:
        raise MessageError(f"a run's name must be text of 1 to {_LONGEST_RUN} characters")
    return run
