"""The plan of a study: its runs, the steps of each, their parameters and how often they run.

A user proposes it, the owner approves it, and the site then runs nothing else. The plan's digest is what is approved.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np

from fedspan.checks import json_value
from fedspan.errors import MessageError
from fedspan.federation.site.transforms import Transform

#: Bytes of the largest plan, runs and steps that one may have, and letters of a text in it.
LARGEST, _MOST, _LONGEST = 2**18, 1000, 500
#: Between the name of a transform's parameter and the transform's place.
TRANSFORM = ", transform "
#: The text of a parameter that a call leaves out.
ABSENT = ("not given",)
#: How a step is called whose replies are added up by a secure sum.
SECURE = "secure sum"
_HOWS = ("ask", "sum", "mean", "merge", SECURE)


@dataclass(frozen=True)
class PlannedStep:
    """One step of a run, at most `calls` times.

    `parameters` has the texts of the values that each parameter may have, also those of the transforms (see
    `named_values`). For an array it has at least type and shape. There are none where the value follows from the data
    or from earlier replies. `how` is ``"ask"``, ``"sum"``, ``"mean"``, ``"merge"``, or ``"secure sum"``.
    """

    step: str
    calls: int
    how: str = "ask"
    transforms: tuple[str, ...] = ()
    parameters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def fits(self, step: str, how: str, transforms: tuple[str, ...]) -> bool:
        """Return whether a call is one of this step, put in this way; an empty `how` fits all."""
        return self.step == step and how in ("", self.how) and self.transforms == transforms

    def other(self, payload: Mapping[str, Any], transforms: Iterable[Transform] = ()) -> str:
        """Return what a call has else than was planned, in a few words, or an empty text."""
        texts = {name: value_texts(value) for name, value in named_values(payload, transforms).items()}
        for name in texts.keys() - self.parameters.keys():
            return f"the parameter {name!r} is not in the plan"
        for name, planned in self.parameters.items():
            given = texts.get(name, ABSENT)
            if planned and not set(planned) & set(given):
                return f"{name} is {given[-1]}, and {' or '.join(planned[:5])} was planned"
        return ""


@dataclass(frozen=True)
class PlannedRun:
    """One run: what is fitted, with which settings, its steps, and what it spends of the privacy budget."""

    what: str
    settings: str = ""
    steps: tuple[PlannedStep, ...] = ()
    privacy: str = ""

    @property
    def calls(self) -> int:
        """The most calls of the run."""
        return sum(step.calls for step in self.steps)


@dataclass(frozen=True)
class StudyPlan:
    """A study: a title in the user's own words, whether sums are secure, and its runs in order.

    Examples
    --------
    >>> plan = StudyPlan("Scaling", (PlannedRun("FedStandardScaler", "", (PlannedStep("sums.sums", 1, "sum"),)),))
    >>> StudyPlan.read(plan.text()) == plan
    True
    """

    title: str
    runs: tuple[PlannedRun, ...]
    secure: bool = False

    @property
    def digest(self) -> str:
        """What an approval covers: all but the title."""
        covered = {key: value for key, value in asdict(self).items() if key != "title"}
        return blake2b(json.dumps(covered, sort_keys=True).encode(), digest_size=16).hexdigest()

    def text(self) -> str:
        """Return the plan as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: bytes | str) -> StudyPlan:
        """Read and check a plan from outside."""
        try:
            raw = json_value(text, LARGEST)
            _keys(raw, "title", "runs", "secure")
            runs = tuple(_run(run) for run in _list(raw["runs"]))
            if type(raw["secure"]) is not bool or not runs:
                raise ValueError
            plan = cls(_text(raw["title"]), runs, raw["secure"])
            if len(plan.text()) > LARGEST:  # signs that JSON escapes are longer there than they came
                raise ValueError
            return plan
        except (AttributeError, KeyError, TypeError, ValueError):
            raise MessageError("the message has no plan of a study, or one that is too long") from None


def named_values(payload: Mapping[str, Any], transforms: Iterable[Transform] = ()) -> dict[str, Any]:
    """Return the parameters of a step, and those of the transforms in front of it, under names of their own."""
    found = dict(payload)
    for place, transform in enumerate(transforms, 1):
        values = {**transform.parameters, "columns": transform.columns and list(transform.columns)}
        found |= {f"{name} of {transform.id}{TRANSFORM}{place}": value for name, value in values.items()}
    return found


def value_texts(value: Any) -> tuple[str, ...]:
    """Return a parameter as a text: a plain value as it is, an array by type and shape, and with its digest.

    >>> value_texts(3), value_texts(np.zeros((2, 3)))
    (('3',), ('float64 (2, 3)', 'float64 (2, 3) 87b774e863281ce421c5625c0aa7b29c'))
    """
    if isinstance(value, np.ndarray) and value.ndim:
        shape = f"{value.dtype} {value.shape}"
        return shape, f"{shape} {blake2b(np.ascontiguousarray(value).tobytes(), digest_size=16).hexdigest()}"
    text = json.dumps(value.item() if isinstance(value, np.ndarray | np.generic) else value, default=str)
    return (text if len(text) <= 200 else f"text {blake2b(text.encode(), digest_size=16).hexdigest()}",)


def is_shape(text: str) -> bool:
    """Return whether a text of `value_texts` fixes the shape of an array alone.

    >>> [is_shape(text) for text in value_texts(np.zeros(3))]
    [True, False]
    """
    return text.endswith(")")


def _run(raw: Any) -> PlannedRun:
    _keys(raw, "what", "settings", "steps", "privacy")
    steps = tuple(_step(step) for step in _list(raw["steps"]))
    return PlannedRun(_text(raw["what"]), _text(raw["settings"]), steps, _text(raw["privacy"]))


def _step(raw: Any) -> PlannedStep:
    _keys(raw, "step", "calls", "how", "transforms", "parameters")
    if type(raw["calls"]) is not int or not 0 < raw["calls"] <= 10**9 or len(raw["parameters"]) > _MOST:
        raise ValueError
    if raw["how"] not in _HOWS:  # other words would stand on the owner's page as who sees the reply
        raise ValueError
    parameters = {_text(name): tuple(map(_text, _list(values))) for name, values in raw["parameters"].items()}
    transforms = tuple(map(_text, _list(raw["transforms"])))
    return PlannedStep(_text(raw["step"]), raw["calls"], _text(raw["how"]), transforms, parameters)


def _keys(raw: Any, *names: str) -> None:
    if set(raw) != set(names):
        raise ValueError


def _list(raw: Any) -> list[Any]:
    if not isinstance(raw, list) or len(raw) > _MOST:
        raise ValueError
    return raw


def _text(raw: Any) -> str:
    if not isinstance(raw, str) or len(raw) > _LONGEST:
        raise ValueError
    return raw
