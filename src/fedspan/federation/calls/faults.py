"""Seeded faults: what a network and its machines do to messages, for tests and rehearsals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from fedspan.errors import InputError, MessageError
from fedspan.federation.calls.call import Call, Delivery, Outcome
from fedspan.federation.outcomes import Failure, FailureKind
from fedspan.federation.site.site import generator
from fedspan.wire import Message, decode, encode


@dataclass(frozen=True)
class FaultPlan:
    """Probabilities, per site and call, of each kind of fault; at most one happens at a time.

    Parameters
    ----------
    seed : int, default=0
        Same seed, same faults, whatever else the run draws.
    drop : float
        The reply is lost on its way.
    delay : float
        The reply comes after the deadline (reported at once, without waiting).
    error : float
        The step fails at the site.
    malformed : float
        The reply's bytes are damaged on their way.
    nonfinite : float
        A number of the reply is NaN.
    shape : float
        An array of the reply has another shape.
    duplicate : float
        The call arrives twice. Nothing fails: the second gets the reply of the first.
    stale : float
        The reply comes as one to an earlier call.

    Examples
    --------
    >>> FaultPlan(seed=1, drop=0.3).kind("clinic", call=4)
    'drop'
    """

    seed: int = 0
    drop: float = 0.0
    delay: float = 0.0
    error: float = 0.0
    malformed: float = 0.0
    nonfinite: float = 0.0
    shape: float = 0.0
    duplicate: float = 0.0
    stale: float = 0.0

    def __post_init__(self) -> None:
        for kind in KINDS:
            probability = getattr(self, kind)
            if not 0 <= probability <= 1:
                raise InputError(f"{kind}={probability!r} must be a probability between 0 and 1")
        if sum(getattr(self, kind) for kind in KINDS) > 1 + 1e-12:
            raise InputError("the probabilities of a FaultPlan must add up to at most 1: one fault happens at a time")

    def kind(self, site: str, call: int, part: int = 0) -> str | None:
        """Return the fault that hits `site` in call number `call`, or ``None``; each part of a call has its own."""
        draw = self._generator(site, call, *[f"part {part}"] * (part > 0)).random()
        for kind in KINDS:
            draw -= getattr(self, kind)
            if draw < 0:
                return kind
        return None

    def applied(self, call: Call, outcomes: dict[str, Outcome], repeat: Callable[[str], Outcome]) -> dict[str, Outcome]:
        """Return what arrives of `outcomes`; `repeat(site)` makes the call once more, as a duplicate does."""
        return {site: self._apply(call, site, outcome, repeat) for site, outcome in outcomes.items()}

    def _apply(self, call: Call, site: str, outcome: Outcome, repeat: Callable[[str], Outcome]) -> Outcome:
        kind = self.kind(site, call.number, call.part)
        if kind is None or isinstance(outcome, Failure):
            return outcome
        if kind == "duplicate":
            return repeat(site)
        rng = self._generator(site, call.number, "how")
        return _FAULTS[kind](outcome, rng)

    def _generator(self, *names: object) -> np.random.Generator:
        return generator(self.seed, "fault", *names)


KINDS = tuple(field.name for field in fields(FaultPlan) if field.name != "seed")


def _drop(delivery: Delivery, rng: np.random.Generator) -> Outcome:
    return Failure(FailureKind.NO_REPLY, "injected fault, the reply was lost")


def _delay(delivery: Delivery, rng: np.random.Generator) -> Outcome:
    return Failure(FailureKind.LATE, "injected fault, the reply came after the deadline")


def _error(delivery: Delivery, rng: np.random.Generator) -> Outcome:
    return Failure(FailureKind.STEP_FAILED, "injected fault, the step raised RuntimeError")


def _malformed(delivery: Delivery, rng: np.random.Generator) -> Outcome:
    data = bytearray(encode(delivery.reply)) if isinstance(delivery.reply, dict) else bytearray(b"?")
    data[rng.integers(len(data))] ^= 1 + int(rng.integers(255))
    try:
        return delivery.damaged(decode(bytes(data)))
    except MessageError as error:
        return Failure(FailureKind.MALFORMED, f"injected fault, {error}")


def _nonfinite(delivery: Delivery, rng: np.random.Generator) -> Outcome:
    return _with_one_changed(delivery, rng, _with_nan)


def _shape(delivery: Delivery, rng: np.random.Generator) -> Outcome:
    # A new axis of its own length for each site hit, so that two of them do not agree with each other.
    return _with_one_changed(
        delivery, rng, lambda v: np.repeat(np.asarray(v)[..., None], rng.integers(2, 1000), axis=-1)
    )


def _stale(delivery: Delivery, rng: np.random.Generator) -> Outcome:
    return replace(delivery, number=delivery.number - 1)


def _with_one_changed(delivery: Delivery, rng: np.random.Generator, change: Callable[[Any], Any]) -> Outcome:
    if not isinstance(delivery.reply, dict) or not delivery.reply:
        return Failure(FailureKind.NO_REPLY, "injected fault, the reply was lost")
    reply: Message = dict(delivery.reply)
    numbers = [k for k, v in reply.items() if v is not None and np.asarray(v).dtype.kind not in "US"]
    key = str(rng.choice(sorted(numbers or reply)))
    reply[key] = change(reply[key])
    return delivery.damaged(reply)


def _with_nan(value: Any) -> Any:
    array = np.asarray(value)
    if array.dtype.kind in "US" or value is None or not array.size:
        return float("nan")
    broken = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    broken.flat[-1] = np.nan
    return broken if isinstance(value, np.ndarray) else broken.item()


_FAULTS: dict[str, Callable[[Delivery, np.random.Generator], Outcome]] = {
    "drop": _drop,
    "delay": _delay,
    "error": _error,
    "malformed": _malformed,
    "nonfinite": _nonfinite,
    "shape": _shape,
    "stale": _stale,
}
