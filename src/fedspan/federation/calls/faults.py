"""Seeded faults: what a network and its machines do to messages, for tests and rehearsals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from fedspan.checks import real_number
from fedspan.errors import InputError, MessageError
from fedspan.federation.calls.call import Call, Delivery, Outcome
from fedspan.federation.outcomes import Failure, FailureKind
from fedspan.federation.site.site import generator
from fedspan.wire import decode, encode


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
            real_number(kind, getattr(self, kind), least=0, most=1, why=", a probability")
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
        if kind == "stale":
            return replace(outcome, number=outcome.number - 1)
        return _LOST.get(kind) or _damaged(kind, outcome, self._generator(site, call.number, "how"))

    def _generator(self, *names: object) -> np.random.Generator:
        return generator(self.seed, "fault", *names)


KINDS = tuple(field.name for field in fields(FaultPlan) if field.name != "seed")
_LOST = {
    "drop": Failure(FailureKind.NO_REPLY, "injected fault, the reply was lost"),
    "delay": Failure(FailureKind.LATE, "injected fault, the reply came after the deadline"),
    "error": Failure(FailureKind.STEP_FAILED, "injected fault, the step raised RuntimeError"),
}


def _damaged(kind: str, delivery: Delivery, rng: np.random.Generator) -> Outcome:
    """Return a delivery after a fault of its bytes, of one value, or of one array's shape."""
    reply = delivery.reply
    if kind == "malformed":
        data = bytearray(encode(reply)) if isinstance(reply, dict) else bytearray(b"?")
        data[rng.integers(len(data))] ^= 1 + int(rng.integers(255))
        try:
            return delivery.damaged(decode(bytes(data)))
        except MessageError as error:
            return Failure(FailureKind.MALFORMED, f"injected fault, {error}")
    if not isinstance(reply, dict) or not reply:
        return _LOST["drop"]
    numbers = [key for key, value in reply.items() if value is not None and np.asarray(value).dtype.kind not in "US"]
    key = str(rng.choice(sorted(numbers or reply)))
    if kind == "nonfinite":
        return delivery.damaged({**reply, key: _with_nan(reply[key])})
    # A new axis of its own length for each site hit, so that two of them do not agree with each other.
    return delivery.damaged(
        {**reply, key: np.repeat(np.asarray(reply[key])[..., None], rng.integers(2, 1000), axis=-1)}
    )


def _with_nan(value: Any) -> Any:
    array = np.asarray(value)
    if array.dtype.kind in "US" or value is None or not array.size:
        return float("nan")
    broken = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    broken.flat[-1] = np.nan
    return broken if isinstance(value, np.ndarray) else broken.item()
