"""Calls as they travel: what the coordinator says in a request's head, and what a site makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from fedspan.engines.remote.messages.envelope import APART, Opened, texts
from fedspan.engines.remote.messages.request_head import Head
from fedspan.errors import MessageError
from fedspan.federation.calls.call import Call
from fedspan.federation.policy import Policy
from fedspan.federation.site.steps import find_step
from fedspan.federation.site.transforms import Lens
from fedspan.wire import Message, decode, encode

_LENS = "lens "


@dataclass(frozen=True)
class SiteCall(Call):
    """A call as one site is told it; `told` identifies it."""

    told: bytes = b""

    def question(self, site: str) -> bytes:
        """Return what identifies this call at this site: all that it was told."""
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


def site_call(opened: Opened, head: Head, site: str) -> SiteCall:
    """Return the call that a request asks for: what is judged, written down, and run."""
    parts = opened.parts
    payload, apart = (_decoded(parts, name) if name in parts else {} for name in ("payload", APART + site))
    for name in payload.keys() & apart.keys():
        raise MessageError(f"the request says {name!r} twice: to all sites, and to this one")
    lenses = [Lens(name, _decoded(parts, f"{_LENS}{i}"), columns) for i, (name, columns) in enumerate(head.lenses)]
    step = find_step(head.step)
    step.check(payload | apart)
    told = [head.step, head.how, str(head.seed), opened.head["lenses"], sorted(opened.digests.items())]
    return SiteCall(
        run=head.run,
        number=head.number,
        seed=head.seed,
        step=step,
        payload=payload | apart,
        to=(site,),
        lenses=tuple(lenses),
        how=head.how,
        part=head.part,
        told=sha256(texts(told).encode()).digest(),
    )


def _decoded(parts: Mapping[str, memoryview], name: str) -> Message:
    return decode(parts[name], len(parts[name]))
