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
from fedspan.federation.site.transforms import Transform
from fedspan.wire import Message, decode, encode

_TRANSFORM = "transform "


@dataclass(frozen=True)
class SiteCall(Call):
    """A call as one site is told it; `told` identifies it."""

    told: bytes = b""

    def query(self, site: str) -> bytes:
        """Return what identifies this call at this site: all that it was told."""
        return self.told


def call_head(
    call: Call, to: Sequence[str], accepted: Mapping[str, int], policy: Policy, threads: int
) -> tuple[Message, dict[str, bytes]]:
    """Return what a request's head says of a call, and the parts that go with it."""
    parts = {"payload": encode(call.payload)}
    parts |= {APART + site: encode(call.apart[site]) for site in to if site in call.apart}
    parts |= {f"{_TRANSFORM}{i}": encode(transform.parameters) for i, transform in enumerate(call.transforms)}
    head: Message = {
        "number": call.number,
        "part": call.part,
        "step": call.step.id,
        "how": call.how,
        "seed": str(call.seed),
        "transforms": texts([[transform.id, transform.columns] for transform in call.transforms]),
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
    transforms = [
        Transform(name, _decoded(parts, f"{_TRANSFORM}{i}"), columns)
        for i, (name, columns) in enumerate(head.transforms)
    ]
    step = find_step(head.step)
    payload, apart = step.validated(payload | apart), {}
    told = [head.step, head.how, str(head.seed), opened.head["transforms"], sorted(opened.digests.items())]
    return SiteCall(
        run=head.run,
        number=head.number,
        seed=head.seed,
        step=step,
        payload=payload | apart,
        to=(site,),
        transforms=tuple(transforms),
        how=head.how,
        part=head.part,
        told=sha256(texts(told).encode()).digest(),
    )


def _decoded(parts: Mapping[str, memoryview], name: str) -> Message:
    return decode(parts[name], len(parts[name]))
