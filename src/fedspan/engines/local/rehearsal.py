"""Rehearsals: what a study would request of sites, found by running it on made-up rows of the same columns.

It runs twice, on different rows, the second time on few, with a column that is constant. What is the same both times
(the steps, a setting, the shape of an array) is fixed in the plan; what differs follows from the data.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedspan.engines.local.embedded import LocalEngine, LocalFederation
from fedspan.errors import FedspanError, InputError
from fedspan.federation import CallRecord, Federation, Observer, Policy, RunRecord, Site
from fedspan.federation.calls.call import Call, Outcome
from fedspan.federation.site.steps import find_step
from fedspan.owner.study_plan import (
    ABSENT,
    SECURE,
    TRANSFORM,
    PlannedRun,
    PlannedStep,
    StudyPlan,
    named_values,
    value_texts,
)

#: Made-up rows of a site, in the first rehearsal, in the second, and in the second for a study that needs more.
_ROWS = (240, 60, 300)
#: Columns of numbers of a table in which one may be constant.
_LEAST_VARYING = 2

#: The most values of a parameter that a plan names one by one.
_MOST_VALUES = 50

_Key = tuple[str, str, tuple[str, ...]]  # step, how, transforms
_Texts = tuple[str, ...]  # of one value: the first is the least exact


@dataclass(frozen=True)
class RehearsedColumns:
    """What a site publishes of its table: its columns with their kinds, and the columns of target and task."""

    kinds: Mapping[str, str]
    target: tuple[str, ...] = ()
    task: str | None = None


@dataclass
class _Seen(Observer):
    """What the runs of one rehearsal requested."""

    runs: list[RunRecord] = field(default_factory=list)
    calls: dict[str, dict[int, list[tuple[_Key, dict[str, _Texts]]]]] = field(default_factory=dict)
    loops: dict[str, list[int]] = field(default_factory=dict)  # by run: the most rounds of each loop
    rounds: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)  # by run and call: loop and round

    def began(self, record: RunRecord) -> None:
        self.runs.append(record)
        self.loops[_name(record)] = []

    def round(self, number: int, of: int) -> None:
        if number == 0:
            self.loops[_name(self.runs[-1])].append(of)

    def called(self, call: CallRecord) -> None:
        name = _name(self.runs[-1])
        if call.round is not None:
            self.rounds.setdefault(name, {})[call.number] = len(self.loops[name]) - 1, call.round

    def take(self, call: Call) -> None:
        """Note one call as a site would receive it."""
        step, payload, how = call.step, call.payload_of(call.to[0]), call.how
        if step.runs is not None:
            id, payload = step.runs(payload)
            step, how = find_step(id), SECURE
            payload = step.validated(payload)
        elif call.session:  # a later stage of a secure sum
            return
        key = step.id, how, tuple(transform.id for transform in call.transforms)
        values = {name: _texts(value) for name, value in named_values(payload, call.transforms).items()}
        self.calls.setdefault(call.run, {}).setdefault(call.number, []).append((key, values))


def rehearse(
    work: Callable[[Federation], Any], sites: Mapping[str, RehearsedColumns], title: str, policy: Policy, seed: int = 0
) -> StudyPlan:
    """Return the plan of `work`, which takes a federation and fits models on it."""
    seen = [_rehearsed(work, sites, policy, seed, 0)]
    try:
        seen.append(_rehearsed(work, sites, policy, seed, 1))
    except FedspanError:  # it needs more rows, or columns that vary
        seen.append(_rehearsed(work, sites, policy, seed, 2))
    first, second = ([record.what for record in one.runs] for one in seen)
    if first != second:
        raise InputError("the study can't be planned: which models it fits depends on the rows")
    if not first:
        raise InputError("the study can't be planned: it fits no model")
    pairs = zip(seen[0].runs, seen[1].runs, strict=True)
    runs = tuple(_planned(a, b, seen[0], seen[1]) for a, b in pairs)
    return StudyPlan(title[:100], runs, bool(policy.secure_sum))


def _rehearsed(
    work: Callable[[Federation], Any], sites: Mapping[str, RehearsedColumns], policy: Policy, seed: int, number: int
) -> _Seen:
    seen = _Seen()
    rng = np.random.default_rng(number)
    fed = LocalFederation(
        [_made_up(name, columns, rng, number) for name, columns in sites.items()], seed + number, policy=policy
    )
    engine = fed._root.engine
    assert isinstance(engine, LocalEngine)
    carry = engine.call

    def call(call: Call, to: Sequence[str], accepted: Mapping[str, int], policy: Policy) -> dict[str, Outcome]:
        seen.take(call)
        return carry(call, to, accepted, policy)

    engine.call = call  # type: ignore[method-assign]
    fed.observe(seen)
    try:
        with warnings.catch_warnings(), fed:
            warnings.simplefilter("ignore")
            work(fed)
    except (ValueError, TypeError) as error:
        raise InputError(f"the study can't be planned: with made-up rows of these columns, {error}") from None
    return seen


def _planned(first: RunRecord, second: RunRecord, *seen: _Seen) -> PlannedRun:
    bounds = [_bounds(one, _name(record)) for one, record in zip(seen, (first, second), strict=True)]
    values = [_values(one, _name(record)) for one, record in zip(seen, (first, second), strict=True)]
    steps = []
    for key in dict.fromkeys([*bounds[0], *bounds[1]]):
        step, how, transforms = key
        exact = bounds[0][key] == bounds[1][key]
        calls = max(bounds[0][key], bounds[1][key]) * (1 if exact and how != SECURE else 2)
        names = sorted({*values[0].get(key, {}), *values[1].get(key, {})})
        fixed = {}
        for name in names:
            most = _MOST_VALUES if TRANSFORM in name else 1  # a step's own parameters change as a run goes
            some, others = (one.get(key, {}).get(name, set()) for one in values)
            fixed[name] = _same(some, others, most)
        steps.append(PlannedStep(step, calls, how, transforms, fixed))
    settings = ", ".join(f"{name}={value}" for name, value in _settings(first).items())
    privacy = "" if first.privacy is None else first.privacy.figures()
    return PlannedRun(first.what, settings[:500], tuple(steps), privacy[:500])


def _bounds(seen: _Seen, run: str) -> Counter[_Key]:
    """Return the most calls of each kind: those outside of rounds, and those of a round times the most rounds."""
    found: Counter[_Key] = Counter()
    in_round: dict[tuple[int, int], Counter[_Key]] = {}
    for number, calls in seen.calls.get(run, {}).items():
        place = seen.rounds.get(run, {}).get(number)
        kinds = Counter({key for key, _ in calls})
        if place is None:
            found += kinds
        else:
            in_round[place] = in_round.get(place, Counter()) + kinds
    loops: dict[int, Counter[_Key]] = {}
    for (loop, _), kinds in in_round.items():
        loops[loop] = loops.get(loop, Counter()) | kinds
    for loop, kinds in loops.items():
        for key, count in kinds.items():
            found[key] += count * seen.loops[run][loop]
    return found


def _values(seen: _Seen, run: str) -> dict[_Key, dict[str, set[_Texts]]]:
    given: dict[_Key, list[dict[str, _Texts]]] = {}
    for calls in seen.calls.get(run, {}).values():
        for key, values in calls:
            given.setdefault(key, []).append(values)
    return {
        key: {name: {values.get(name, ABSENT) for values in calls} for name in set().union(*calls)}
        for key, calls in given.items()
    }


def _same(some: set[_Texts], others: set[_Texts], most: int) -> tuple[str, ...]:
    """Return the values of a parameter, at most as many, if they were the same in both rehearsals, or their shapes."""
    for exactness in (-1, 0):
        first, second = ({texts[exactness] for texts in one} for one in (some, others))
        if first == second and len(first) <= most:
            return tuple(sorted(first))
    return ()


def _texts(value: Any) -> _Texts:
    """Return the texts of a value. Arrays of zeros or ones often follow from the data: their shape alone counts."""
    plain = (
        isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and (not value.any() or bool((value == 1).all()))
    )
    return value_texts(value)[:1] if plain else value_texts(value)


def _settings(record: RunRecord) -> dict[str, Any]:
    return {str(name): value for name, value in record.settings.items() if value is not None}


def _name(record: RunRecord) -> str:
    return f"{record.what}#{record.number}"


def _made_up(name: str, columns: RehearsedColumns, rng: np.random.Generator, number: int) -> Site:
    import pandas as pd

    rows = _ROWS[number]
    cells = {column: _cells(kind, rows, rng, number) for column, kind in columns.kinds.items()}
    varying = [column for column, kind in columns.kinds.items() if kind == "number"]
    if number == 1 and len(varying) > _LEAST_VARYING:
        cells[varying[-1]] = np.full(rows, 3.5)
    frame = pd.DataFrame(cells)
    y: Any = rng.integers(0, 2, rows) if columns.target else None
    if len(columns.target) > 1:  # such as time and event
        y = np.column_stack([rng.uniform(1.0, 100.0, rows), y])
    task = np.arange(rows) % (3 + number) if columns.task else None
    return Site(name, frame, y, None if task is None else task.astype(str))


def _cells(kind: str, rows: int, rng: np.random.Generator, number: int) -> Any:
    if kind == "boolean":
        return rng.integers(0, 2, rows).astype(bool)
    if kind in ("integer", "number"):
        made = rng.normal(size=rows) * 10 + 50
        return np.round(made).astype(int) if kind == "integer" else made
    if kind in ("time", "duration"):
        return rng.integers(0, 10**15, rows).astype("M8[us]" if kind == "time" else "m8[us]")
    return np.array([f"name {i}" for i in rng.integers(0, 4 + number, rows)], dtype=object)
