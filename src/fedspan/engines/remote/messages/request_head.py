"""The head of a request: how the coordinator writes a call, and how a site reads and checks it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Annotated, Any

from fedspan.checks import json_value
from fedspan.engines.remote.messages.envelope import APART, Opened
from fedspan.errors import MessageError
from fedspan.federation.calls.call import Call
from fedspan.federation.policy import Policy
from fedspan.federation.site.parameters import Check, OneOf, Real, Text, Whole
from fedspan.federation.site.steps import find_step, parameters_of
from fedspan.federation.site.transforms import Transform
from fedspan.secure_sum.sum_site_steps import STAGES
from fedspan.wire import Message, decode, encode

_LONGEST = 500
_Text = Annotated[str, Text(_LONGEST)]
_Whole = Annotated[int, Whole(0, 2**63 - 1)]
_MOST_TRANSFORMS = 100
_STAGES = tuple(stage.id for stage in STAGES)
_TRANSFORM = "transform "


@dataclass(frozen=True)
class RequestHead:
    """What the head of a request states, in checked types and ranges.

    `sites` are its recipients, each with the last call that was accepted from it. A request to ``"redo"`` is a call
    whose effect the site has lost; it gets no reply. The fields from `number` on are those of calls, but for `least`:
    the fewest sites of a run's secure sums, in a key exchange. `transforms` are ids, each with names of columns.
    `study` is the ticket under which the study was proposed.
    """

    kind: Annotated[str, OneOf(("call", "redo", "hello", "keys", "end", "propose"))]
    version: _Text
    run: _Text
    serial: _Whole
    deadline: Annotated[float, Real(least=0.0)]
    sites: Mapping[str, int]
    number: _Whole = -1
    part: _Whole = 0
    step: _Text = ""
    how: Annotated[str, OneOf(("ask", "sum", "mean", "merge"))] = ""
    seed: _Text = "0"
    threads: Annotated[int, Whole(1, 1024)] = 1
    max_bytes: _Whole = 0
    transforms: tuple[tuple[str, tuple[str, ...] | None], ...] = ()
    least: _Whole = 0
    study: _Text = ""

    @property
    def stage(self) -> str:
        """The stage of a secure sum that a call is, or an empty text."""
        return self.step.rpartition(".")[2] if self.step in _STAGES else ""


@dataclass(frozen=True)
class SiteCall(Call):
    """A call as one site receives it; `received` identifies all of it."""

    received: bytes = b""

    def query(self, site: str) -> bytes:
        """Return the digests that identify this call at this site."""
        return self.received


def call_head(
    call: Call, to: Sequence[str], accepted: Mapping[str, int], policy: Policy, threads: int
) -> tuple[Message, dict[str, bytes]]:
    """Return the fields of a call in a request's head, and the parts that go with it."""
    parts = {"payload": encode(call.payload, checksum=False)}  # parts have digests
    parts |= {APART + site: encode(call.apart[site]) for site in to if site in call.apart}
    parts |= {f"{_TRANSFORM}{i}": encode(transform.parameters) for i, transform in enumerate(call.transforms)}
    head: Message = {
        "number": call.number,
        "part": call.part,
        "step": call.step.id,
        "how": call.how,
        "seed": str(call.seed),
        "transforms": json.dumps([[transform.id, transform.columns] for transform in call.transforms]),
        "sites": json.dumps({site: accepted.get(site, -1) for site in to}),
        "threads": threads,
        "max_bytes": policy.max_bytes,
        "deadline": float(policy.deadline),
    }
    return head, parts


def read_head(head: Message) -> RequestHead:
    """Return the fields of a head, or refuse it with a `MessageError` that repeats nothing of it but small numbers."""
    found = _checked(head, "kind", "version", "run", "serial", "deadline") | {"sites": _sites(head)}
    kind = found["kind"]
    if kind == "keys":
        found |= _checked(head, "least")
    if kind in ("call", "redo"):
        found |= _checked(head, "number", "part", "step", "how", "seed", "threads", "max_bytes")
        found["transforms"] = _transforms(head)
        _check_call(found)
    if "study" in head:
        found |= _checked(head, "study")
    if kind not in ("hello", "propose") and not found["run"]:
        raise MessageError("the request's 'run' must not be empty")
    for name in ("run", "study"):  # the owner stops and approves them by these names, on a page and in a terminal
        if not found.get(name, "").isprintable():
            raise MessageError(f"the request's {name!r} must have no control signs, and none that turn a text")
    return RequestHead(**found)


def site_call(opened: Opened, head: RequestHead, site: str) -> SiteCall:
    """Return the call that a request makes: the one object that is checked, recorded and run."""
    parts = opened.parts
    payload, apart = (_decoded(parts, name) if name in parts else {} for name in ("payload", APART + site))
    for name in payload.keys() & apart.keys():
        raise MessageError(f"the request has {name!r} twice: for all sites, and for this one")
    step = find_step(head.step)
    received = [head.kind, head.step, head.how, head.seed, opened.head["transforms"], sorted(opened.digests.items())]
    return SiteCall(
        run=head.run,
        number=head.number,
        seed=int(head.seed),
        step=step,
        payload=step.validated(payload | apart),
        to=(site,),
        transforms=tuple(
            Transform(name, _decoded(parts, f"{_TRANSFORM}{i}"), columns)
            for i, (name, columns) in enumerate(head.transforms)
        ),
        how=head.how,
        part=head.part,
        received=sha256(json.dumps(received).encode()).digest(),
    )


def _checked(head: Message, *names: str) -> dict[str, Any]:
    declared = _declared()
    return {name: declared[name](f"the request's {name!r}", head.get(name)) for name in names}


@cache
def _declared() -> Mapping[str, Check]:
    return parameters_of(RequestHead, skip=0).declared


def _check_call(found: Mapping[str, Any]) -> None:
    step, part = found["step"], found["part"]
    if not step:
        raise MessageError("the request's 'step' must not be empty")
    if not re.fullmatch("-?[0-9]+", found["seed"]):
        raise MessageError("the request's 'seed' must be the digits of a whole number")
    stage = _STAGES.index(step) if step in _STAGES else 0
    last = 2 * stage + 1 if step in _STAGES else 0  # the stages of a sum come in order, each at most twice
    if not stage <= part <= last:
        raise MessageError(f"a call of this step is part {stage} to {last} of its call, not {part}")
    if stage and found["transforms"]:
        raise MessageError("only the first stage of a secure sum reads data, and may name transforms")


def _sites(head: Message) -> dict[str, int]:
    sites = _parsed(head, "sites")
    if not isinstance(sites, dict) or not all(type(after) is int and after >= -1 for after in sites.values()):
        raise MessageError("the request's 'sites' must be names, each with the number of a call or -1")
    return sites


def _transforms(head: Message) -> tuple[tuple[str, tuple[str, ...] | None], ...]:
    found = _parsed(head, "transforms")
    if isinstance(found, list) and len(found) <= _MOST_TRANSFORMS and all(map(_is_transform, found)):
        return tuple((name, None if columns is None else tuple(columns)) for name, columns in found)
    raise MessageError(f"the request's 'transforms' must be at most {_MOST_TRANSFORMS} ids, each with names of columns")


def _is_transform(value: object) -> bool:
    match value:
        case [str(name), None]:
            return len(name) <= _LONGEST
        case [str(name), list(columns)]:
            return len(name) <= _LONGEST and all(isinstance(column, str) for column in columns)
    return False


def _parsed(head: Message, name: str) -> Any:
    with suppress(KeyError, TypeError, ValueError):
        return json_value(head[name])
    return None


def _decoded(parts: Mapping[str, memoryview], name: str) -> Message:
    return decode(parts[name], len(parts[name]))
