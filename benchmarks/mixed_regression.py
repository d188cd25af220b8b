"""Mixed regression: a round against a loop that takes local steps one by one; by name, a whole two-phase fit too.

C2 of the paper: 920 sites, d = 100, k = 3, 10,000 rows. The naive loop is what a site's step says: find the cluster,
take s gradient steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
from threadpoolctl import threadpool_limits

import fedspan as fs
from benchmarks.battery.ratio import Ratio, compared, processor_seconds
from fedspan.datasets import make_mixed_regression
from fedspan.linalg import SiteStack, bottleneck_distance, matched_share
from fedspan.protocols.fedx import fedx, local_refinement

TURNS = 5


def compare() -> Iterator[Ratio]:
    made, stack, models, rate = _setting()
    fed = fs.federate(made.X, made.y, sites=made.sites)
    for steps in (5, 20):
        Z = stack.descent(rate, steps)
        expected = _naive(stack, models, rate, steps)
        with fed.begin("benchmark") as run:
            options = {"models": models, "rate": rate, "local_steps": steps}
            ways: dict[str, Callable[[], np.ndarray]] = {
                "the embedded engine": lambda run=run, options=options: fedx(run, max_rounds=1, **options).models,
                "the kernel on stacked sites": lambda Z=Z: stack.refined(models, Z),
            }
            for way, ours in ways.items():
                yield from compared(
                    f"Mixed regression C2, one round of {steps} local steps at 920 sites, {way}",
                    ours,
                    {"loop over sites and steps": lambda steps=steps: _naive(stack, models, rate, steps)},
                    turns=TURNS,
                    accuracy=f"largest difference {np.abs(ours() - expected).max():.0e}",
                )


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
