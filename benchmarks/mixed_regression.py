"""Mixed regression: a round against a loop that takes local steps one by one; by name, a whole two-phase fit too.

C2 of the paper: 920 sites, d = 100, k = 3, 10,000 rows; then sites of 60 and 300 rows. The naive loop is what a site's
step says: find the cluster, take s gradient steps. It prepares nothing. Ours takes the first round's steps as the loop
does where that is cheaper. Then it makes a matrix for each site, and uses it in all later rounds. So there are two
comparisons, of the first round and of a later one. Beside the first stands after how many rounds ours has taken no
longer in all.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import fedspan as fs
from benchmarks.battery.ratio import Fresh, Ratio, Work, compared, processor_seconds
from fedspan.datasets import make_mixed_regression
from fedspan.linalg import SiteStack, bottleneck_distance, matched_share
from fedspan.mixed_regression.fedx import fedx, local_refinement

TURNS, FIRST_TURNS = 5, 2


def compare() -> Iterator[Ratio]:
    made, stack, models, rate = _setting()
    fed = fs.federate(made.X, made.y, sites=made.sites)
    for steps in (5, 20):
        Z = stack.descent(rate, steps)
        expected = _naive(stack, models, rate, steps)
        peer = {"loop over sites and steps": lambda steps=steps: _naive(stack, models, rate, steps)}
        with fed.begin("benchmark") as run:
            options = {"models": models, "rate": rate, "local_steps": steps, "max_rounds": 1}
            ways: dict[str, tuple[Work, Callable[[], np.ndarray]]] = {
                "the embedded engine": (
                    Fresh(
                        lambda: fs.federate(made.X, made.y, sites=made.sites),
                        lambda fed, options=options: _first_round(fed, options),
                    ),
                    lambda run=run, options=options: fedx(run, **options).models,
                ),
                "the kernel on stacked sites": (
                    Fresh(
                        lambda: SiteStack(stack.X, stack.y, stack.sizes),
                        lambda fresh, steps=steps: fresh.refined(models, fresh.descent(rate, steps)),
                    ),
                    lambda Z=Z: stack.refined(models, Z),
                ),
            }
            for way, (first, later) in ways.items():
                where = f"round of {steps} local steps at 920 sites, {way}"
                apart = f"largest difference {np.abs(later() - expected).max():.0e}"
                [after] = compared(f"Mixed regression C2, a later {where}", later, peer, turns=TURNS, accuracy=apart)
                yield after
                for ratio in compared(
                    f"Mixed regression C2, the first {where}, with what sites prepare", first, peer, turns=FIRST_TURNS
                ):
                    yield replace(ratio, accuracy=paid_after(ratio.quartiles[1], after.quartiles[1]))
    for sites, rows in ((920, 60), (300, 300)):
        yield from _many_rows(sites, rows)


def _many_rows(sites: int, rows: int) -> Iterator[Ratio]:
    """Compare the first round where sites have many rows, of which a loop reads all in every step."""
    rng = np.random.default_rng(0)
    X, where = rng.normal(size=(sites * rows, 100)), np.repeat(np.arange(sites), rows)
    models = rng.normal(size=(3, 100))
    y = np.vecdot(X, models[where % 3]) + 0.1 * rng.normal(size=len(X))
    stack, models = SiteStack(X, y, np.full(sites, rows)), models + 0.03 * rng.normal(size=models.shape)
    rate = 0.9 / stack.largest_eigenvalue()
    options = {"models": models, "rate": rate, "local_steps": 5, "max_rounds": 1}
    yield from compared(
        f"Mixed regression, the first round of 5 local steps at {sites} sites of {rows} rows, the embedded engine",
        Fresh(lambda: fs.federate(X, y, sites=where), lambda fed: _first_round(fed, options)),
        {"loop over sites and steps": lambda: _naive(stack, models, rate, 5)},
        turns=FIRST_TURNS,
    )


def paid_after(first: float, later: float) -> str:
    """Say after how many rounds ours has taken no longer in all, by theirs / ours of its first round and of later ones.

    >>> paid_after(0.4, 2.0), paid_after(1.0, 2.0), paid_after(0.4, 1.0)
    ('paid for after 4 rounds', 'paid for at once', 'never paid for')
    """
    if first >= 1.0:
        return "paid for at once"
    if later <= 1.0:
        return "never paid for"
    return f"paid for after {math.ceil((1.0 / first - 1.0 / later) / (1.0 - 1.0 / later))} rounds"


def _first_round(fed: fs.Federation, options: dict[str, Any]) -> None:
    with fed.begin("benchmark") as run:
        fedx(run, **options)


def main() -> dict[str, float]:
    made, stack, models, rate = _setting()
    with threadpool_limits(1):
        figures = _steps(stack, models, rate) | _fit(made)
    for name, value in figures.items():
        print(f"{value:10.3g}  {name}")
    return figures


def _setting() -> tuple:
    made = make_mixed_regression("C2", seed=0)
    stack = SiteStack(made.X, made.y, np.unique(made.sites, return_counts=True)[1])
    models = made.coef + 0.03 * np.random.default_rng(0).normal(size=made.coef.shape)
    return made, stack, models, 0.9 / stack.largest_eigenvalue()


def _naive(stack: SiteStack, models: np.ndarray, rate: float, steps: int) -> np.ndarray:
    """A round of FedAvg on clusters as the algorithm reads: each site finds its cluster and takes its steps.

    A loop over sites and steps of two products each: what one writes for sites of a few rows.
    """
    moved, rows = np.zeros_like(models), np.zeros(len(models))
    for i, n in enumerate(stack.sizes):
        X, y = stack.X[stack.rows(i)], stack.y[stack.rows(i)]
        label = int(np.argmin([np.sum((y - X @ model) ** 2) for model in models]))
        theta = models[label]
        for _ in range(steps):
            theta = theta - rate / n * (X.T @ (X @ theta - y))
        moved[label] += n * (theta - models[label])
        rows[label] += n
    return models + moved / np.maximum(rows, 1.0)[:, None]


def _steps(stack: SiteStack, models: np.ndarray, rate: float) -> dict[str, float]:
    """A site's own step, without an engine."""
    sites = [fs.Site(str(i), stack.X[stack.rows(i)], stack.y[stack.rows(i)]) for i in range(len(stack.sizes))]
    runs: dict[str, Callable[[], object]] = {}
    for steps in (1, 20):
        payload = {"models": models, "update": "fedavg", "rate": rate, "local_steps": steps}
        payload |= {"shares": np.full(3, 1 / 3), "variance": None}
        runs[f"{steps}"] = lambda payload=payload: [local_refinement(site, **payload) for site in sites]
        runs[f"{steps}"]()  # the operator is made once
    best = {name: min(processor_seconds(run) for _ in range(TURNS)) for name, run in runs.items()}
    return {"a site's step: time at s = 20 / at s = 1": best["20"] / best["1"]}


def _fit(made) -> dict[str, float]:
    plain = {"weights": "total", "acceleration": 0, "tol": 0.0, "scaling": "none", "fit_intercept": False}
    figures: dict[str, float] = {}
    for name, options in (("the default two-phase fit of C2", {}), ("one with 400 plain rounds", plain)):
        wall, work = time.perf_counter(), time.process_time()
        model = fs.FedMixedRegressor(3, random_state=0, **options).fit(made.X, made.y, sites=made.sites)
        figures[f"seconds of {name}"] = time.perf_counter() - wall
        figures[f"seconds of processor time of {name}"] = time.process_time() - work
        figures[f"error of {name}"] = bottleneck_distance(model.coef_, made.coef)
        figures[f"label accuracy of {name}"] = matched_share(model.labels_, made.labels)
        figures[f"rounds of refinement of {name}"] = float(model.n_iter_)
    return figures
