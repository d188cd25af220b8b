"""Regressions and survival at ten sites in one process, against statsmodels and lifelines on the pooled rows.

Processor time of both, the least of some turns. Below some thousand rows the calls cost more than the arithmetic: about
two milliseconds each, of which there are eight.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
import statsmodels.api as sm
from lifelines import CoxPHFitter, KaplanMeierFitter
from threadpoolctl import threadpool_limits

import fedspan as fs

SITES, TIMES, TURNS = 10, 1000, 4
SIZES = ((1_000, 5), (20_000, 10), (100_000, 20))


def main() -> dict[str, float]:
    figures: dict[str, float] = {}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n, d in SIZES:
            print(f"{n:,} rows, {d} columns")
            for name, (ours, theirs) in cases(n, d).items():
                seconds = [least_time(one) for one in (ours, theirs)]
                figures[f"{name}, {n} rows"] = seconds[0] / seconds[1]
                print(
                    f"  {name:10} {1e3 * seconds[0]:7.1f} ms {1e3 * seconds[1]:7.1f} ms {seconds[0] / seconds[1]:6.2f}"
                )
    return figures


def cases(n: int, d: int) -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    """Return by name a fit at ten sites, and the same on the pooled rows."""
    rng = np.random.default_rng(0)
    X, at = rng.normal(size=(n, d)), np.arange(n) % SITES
    A, eta = sm.add_constant(X), 0.5 * X[:, 0]
    number, count = eta + rng.normal(size=n), rng.poisson(np.exp(0.3 * eta))
    label = (rng.uniform(size=n) < 1 / (1 + np.exp(-eta))).astype(int)
    days = np.minimum(np.ceil(300 * rng.exponential(size=n) * np.exp(-0.3 * X[:, 0])), TIMES)
    died = (rng.uniform(size=n) < 0.7).astype(int)
    feds = [fs.federate(X, y, sites=at) for y in (number, label, count, np.column_stack([days, died]))]
    frame = pd.DataFrame(X).add_prefix("x").assign(days=days, died=died)
    grid = range(1, TIMES + 1)
    logit, poisson = sm.families.Binomial(), sm.families.Poisson()
    return {
        "linear": (lambda: fs.FedLinearRegression().fit(feds[0]), lambda: sm.OLS(number, A).fit().summary()),
        "logistic": (lambda: fs.FedLogisticRegression().fit(feds[1]), lambda: sm.GLM(label, A, logit).fit().bse),
        "Poisson": (lambda: fs.FedPoissonRegression().fit(feds[2]), lambda: sm.GLM(count, A, poisson).fit().bse),
        "Cox": (
            lambda: fs.FedCoxRegression(times=grid).fit(feds[3]),
            lambda: CoxPHFitter().fit(frame, "days", "died"),
        ),
        "curve": (lambda: fs.FedKaplanMeier(times=grid).fit(feds[3]), lambda: KaplanMeierFitter().fit(days, died)),
    }


def least_time(fit: Callable[[], object]) -> float:
    """Return the least processor time of some turns, after one that prepares."""
    fit()
    found = []
    for _ in range(TURNS):
        begin = time.process_time()
        fit()
        found.append(time.process_time() - begin)
    return min(found)


if __name__ == "__main__":
    main()
