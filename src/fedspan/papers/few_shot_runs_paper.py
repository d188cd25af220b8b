"""Problems and runs of few-shot learning, for `fedspan.papers.few_shot_paper` and what goes beyond the paper."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fedspan.arrays import Matrix
from fedspan.attacks import Alternating, ScaledReverse
from fedspan.datasets import make_few_shot_tasks
from fedspan.datasets.bunch import Bunch
from fedspan.engines.local.embedded import federate
from fedspan.federation import CallRecord, Federation, RunRecord
from fedspan.few_shot.byz_altgdmin import byz_altgdmin
from fedspan.linalg import subspace_distance

#: Ids of steps: those of the start, of an iteration, and of the moments at the end.
START_STEPS = tuple(f"few_shot.start_{name}" for name in ("basis", "loadings", "product", "own_product"))
GRADIENT, MOMENTS = "few_shot.gradient", "few_shot.fit_moments"


@dataclass(frozen=True)
class FewShotSetting:
    """Sizes of a problem in the paper's letters; `rows` is m~, the rows of each task at each site."""

    n: int = 600
    q: int = 600
    r: int = 4
    rows: int = 16
    sites: int = 18

    def made(self, seed: int, noise: float = 0.0) -> Bunch:
        """Draw the rows of all sites, and the truth."""
        return make_few_shot_tasks(self.n, self.q, self.r, self.rows * self.sites, self.sites, noise=noise, seed=seed)

    def data(self, seed: int, noise: float = 0.0, first: int = 5000) -> tuple[Bunch, Federation]:
        """Draw the data of seed `first` + `seed`, and return the truth and the federation of the sites."""
        made = self.made(first + seed, noise)
        fed = federate(made.X, made.y, sites=made.sites, task=made.task, seed=seed)
        del made["X"]  # the sites have it
        return made, fed

    def __str__(self) -> str:
        return f"n = {self.n}, q = {self.q}, r = {self.r}, L = {self.sites}, {self.rows} rows of each task at each site"


class RunCost(NamedTuple):
    """Bytes both ways per site, and seconds at all sites, of the start and per iteration; the coordinator's seconds."""

    start_bytes: float
    bytes: float
    start_seconds: float
    seconds: float
    own_seconds: float

    @classmethod
    def of(cls, record: RunRecord, seconds: float, iterations: int) -> RunCost:
        """Return the cost of a run that took `seconds` in all; the coordinator's own are not spent in calls."""
        rounds = [call for call in record.calls if call.step == GRADIENT]
        start = [call for call in record.calls if call.step not in (GRADIENT, MOMENTS)]

        def traffic(calls: list[CallRecord]) -> float:
            total = sum(sum(call.bytes_up.values()) + sum(call.bytes_down.values()) for call in calls)
            return float(total) / len(record.sites)

        turns = max(1, iterations)
        at_sites, own = sum(call.seconds for call in rounds), seconds - record.seconds
        start_seconds = sum(call.seconds for call in start)
        return cls(traffic(start), traffic(rounds) / turns, start_seconds, at_sites / turns, own / turns)


def bad_sites(fed: Federation, count: int, batch: int = 2) -> Federation:
    """Return the federation in which the first site of each of `count` batches attacks as in the paper."""
    names = [fed.sites[i * batch] for i in range(count)]
    if not names:
        return fed
    attacked = fed.corrupt(Alternating(10.0, steps=START_STEPS), sites=names)
    return attacked.corrupt(ScaledReverse(10.0, steps=("few_shot.tasks", GRADIENT)), sites=names)


def curve(
    fed: Federation,
    truth: Matrix,
    protocol: Callable[..., Any] = byz_altgdmin,
    costs: dict[str, RunCost] | None = None,
    name: str = "",
    **settings: Any,
) -> list[float]:
    """Run a protocol and return its errors ``SD_F / sqrt(r)`` after the start and after every iteration."""
    n, r = truth.shape
    errors: list[float] = []

    def watch(U: Matrix) -> None:
        errors.append(subspace_distance(U, truth) / np.sqrt(r))

    began = time.perf_counter()
    with fed.begin(name or protocol.__name__) as run:
        protocol(run, rank=r, n_columns=n, tol=0.0, watch=watch, **settings)
    if costs is not None:
        costs[name] = RunCost.of(run.record, time.perf_counter() - began, len(errors) - 1)
    return errors
