"""What the head of a request says, read and checked once, before anything else is done with it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedspan.errors import MessageError
from fedspan.secure_sum.sum_site_steps import STAGES
from fedspan.wire import Message

KINDS = ("call", "hello", "introduce", "end")
#: What may be wanted of the replies to a step. That it is a round of a secure sum follows from the step itself.
WAYS = ("ask", "sum", "mean")
_STAGES = tuple(stage.id for stage in STAGES)
_LONGEST, _MOST_TRANSFORMS, _LARGEST = 500, 100, 2**63
_MOST_THREADS = 1024


@dataclass(frozen=True)
class Head:
    """What a request says of itself, in the types and ranges that it must have.

    `sites` are those that it is for, each with the last call that was accepted from it. What comes after `deadline` is
    of calls alone, but for `least`, which is the fewest sites of a run's secure sums, of introductions. `transforms` are
    names, and names of columns.
    """

    kind: str
    version: str
    run: str
    serial: int
    sites: Mapping[str, int]
    deadline: float
    number: int = -1
    part: int = 0
    step: str = ""
    how: str = ""
    seed: int = 0
    transforms: tuple[tuple[str, tuple[str, ...] | None], ...] = ()
    threads: int = 1
    max_bytes: int = 0
    least: int = 0

    @property
    def stage(self) -> str:
        """The round of a secure sum that a call is, or nothing."""
        return self.step.rpartition(".")[2] if self.step in _STAGES else ""


def read_head(head: Message) -> Head:
    """Return what a head says, or refuse it with a `MessageError` that repeats nothing of it but small numbers."""
    kind = head.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise MessageError(f"there is no kind of request but {', '.join(KINDS)}")
    of_run = kind != "hello"
    about: dict[str, Any] = {
        "kind": kind,
        "version": _text(head, "version"),
        "run": _text(head, "run", least=1 if of_run else 0),
        "serial": _whole(head, "serial"),
        "sites": _sites(head),
        "deadline": _seconds(head),
    }
    if kind == "introduce":
        about["least"] = _whole(head, "least")
    return Head(**about, **(_of_call(head) if kind == "call" else {}))


def _of_call(head: Message) -> dict[str, Any]:
    step, part, threads = _text(head, "step", least=1), _whole(head, "part"), _whole(head, "threads", -_LARGEST)
    how = _text(head, "how")
    if how not in WAYS:
        raise MessageError(f"the request's 'how' must be one of {', '.join(WAYS)}")
    first, last = _parts(step)
    if not first <= part <= last:
        raise MessageError(f"a call of this step is part {first} to {last} of its call, not {part}")
    transforms = _transforms(head)
    if first > 0 and transforms:
        raise MessageError("only the first round of a secure sum reads data, and may name transforms")
    if not 1 <= threads <= _MOST_THREADS:
        raise MessageError(f"a run has from 1 to {_MOST_THREADS} threads, not {threads}")
    return {
        "number": _whole(head, "number"),
        "part": part,
        "step": step,
        "how": how,
        "seed": _seed(head),
        "transforms": transforms,
        "threads": threads,
        "max_bytes": _whole(head, "max_bytes"),
    }


def _parts(step: str) -> tuple[int, int]:
    """Return the first and last part that a step may be: the rounds of a sum come in order, each at most twice."""
    stage = _STAGES.index(step) if step in _STAGES else None
    return (0, 0) if stage is None else (stage, 2 * stage + 1)


def _text(head: Message, name: str, least: int = 0) -> str:
    value = head.get(name)
    if not isinstance(value, str) or not least <= len(value) <= _LONGEST:
        raise MessageError(f"the request's {name!r} must be text of {least} to {_LONGEST} characters")
    return value


def _whole(head: Message, name: str, least: int = 0) -> int:
    value = head.get(name)
    if type(value) is not int or not least <= value < _LARGEST:
        raise MessageError(f"the request's {name!r} must be a whole number of at least {least}")
    return value


def _seconds(head: Message) -> float:
    value: Any = head.get("deadline")
    if type(value) not in (int, float) or not math.isfinite(value):
        raise MessageError("the request's 'deadline' must be a number of seconds")
    return float(value)


def _seed(head: Message) -> int:
    text = _text(head, "seed", least=1)
    if not text.removeprefix("-").isascii() or not text.removeprefix("-").isdigit():
        raise MessageError("the request's 'seed' must be the digits of a whole number")
    return int(text)


def _sites(head: Message) -> dict[str, int]:
    sites = _parsed(head, "sites")
    if not isinstance(sites, dict) or not all(type(after) is int and after >= -1 for after in sites.values()):
        raise MessageError("the request's 'sites' must be names, each with the number of a call or -1")
    return sites


def _transforms(head: Message) -> tuple[tuple[str, tuple[str, ...] | None], ...]:
    found = _parsed(head, "transforms")
    if not isinstance(found, list) or len(found) > _MOST_TRANSFORMS or not all(map(_is_transform, found)):
        raise MessageError(
            f"the request's 'transforms' must be at most {_MOST_TRANSFORMS} names, each with names of columns"
        )
    return tuple((name, None if columns is None else tuple(columns)) for name, columns in found)


def _is_transform(value: object) -> bool:
    if not isinstance(value, list) or len(value) != 2:
        return False
    name, columns = value
    named = columns is None or (isinstance(columns, list) and all(isinstance(column, str) for column in columns))
    return isinstance(name, str) and len(name) <= _LONGEST and named


def _parsed(head: Message, name: str) -> Any:
    text = head.get(name)
    try:
        return json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
