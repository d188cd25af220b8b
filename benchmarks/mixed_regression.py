"""Mixed regression: what local steps cost, against a loop that takes them one by one, and a whole two-phase fit.

C2 of the paper: 920 sites, d = 100, k = 3, 10,000 rows. The naive loop is what a site's step says: find the cluster,
take s gradient steps. One thread for everybody; the fastest of several turns each, in turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

import fedspan as fs
from fedspan.datasets import make_mixed_regression
from fedspan.linalg import SiteStack, bottleneck_distance, matched_share
from fedspan.protocols.fedx import fedx, local_refinement

TURNS = 25


def main() -> dict[str, float]:
    made = make_mixed_regression("C2", seed=0)
    sizes = np.unique(made.sites, return_counts=True)[1]
    stack = SiteStack(made.X, made.y, sizes)
    rate = 0.9 / stack.largest_eigenvalue()
    models = made.coef + 0.03 * np.random.default_rng(0).normal(size=made.coef.shape)
    figures: dict[str, float] = {}
    with threadpool_limits(1):
        figures |= _steps(stack, models, rate)
        figures |= _rounds(made, stack, models, rate)
        figures |= _fit(made)
    for name, value in figures.items():
        print(f"{value:10.3g}  {name}")
    return figures


def _naive(stack: SiteStack, models: np.ndarray, rate: float, steps: int) -> np.ndarray:
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


def _fastest(runs: dict[str, Callable[[], object]], turns: int = TURNS) -> dict[str, float]:
    best = dict.fromkeys(runs, np.inf)
    for _ in range(turns):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def _steps(stack: SiteStack, models: np.ndarray, rate: float) -> dict[str, float]:
    """A site's own step, without an engine."""
    sites = [fs.Site(str(i), stack.X[stack.rows(i)], stack.y[stack.rows(i)]) for i in range(len(stack.sizes))]
    runs: dict[str, Callable[[], object]] = {}
    for steps in (1, 20):
        payload = {"models": models, "update": "fedavg", "rate": rate, "local_steps": steps}
        payload |= {"shares": np.full(3, 1 / 3), "variance": None}
        runs[f"{steps}"] = lambda payload=payload: [local_refinement(site, **payload) for site in sites]
        runs[f"{steps}"]()  # the operator is made once
    best = _fastest(runs)
    return {"a site's step: time at s = 20 / at s = 1": best["20"] / best["1"]}


def _rounds(made, stack: SiteStack, models: np.ndarray, rate: float) -> dict[str, float]:
    figures: dict[str, float] = {}
    fed = fs.federate(made.X, made.y, sites=made.sites)
    for steps in (5, 20):
        Z = stack.descent(rate, steps)
        with fed.begin("benchmark") as run:
            options = {"models": models, "rate": rate, "local_steps": steps}
            engine = fedx(run, max_rounds=1, **options).models
            expected = _naive(stack, models, rate, steps)
            best = _fastest(
                {
                    "naive": lambda steps=steps: _naive(stack, models, rate, steps),
                    "stacked": lambda Z=Z: stack.refined(models, Z),
                    "engine": lambda run=run, options=options: fedx(run, max_rounds=1, **options),
                }
            )
        figures[f"s = {steps}: naive loop / embedded engine, one round"] = best["naive"] / best["engine"]
        figures[f"s = {steps}: naive loop / stacked kernel, one round"] = best["naive"] / best["stacked"]
        apart = max(np.abs(engine - expected).max(), np.abs(stack.refined(models, Z) - expected).max())
        figures[f"s = {steps}: largest difference to the naive loop"] = float(apart)
    return figures


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


if __name__ == "__main__":
    main()
