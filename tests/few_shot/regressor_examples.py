"""Small tables for the tests of FedFewShotRegressor."""

from __future__ import annotations

import fedspan as fs
from fedspan.datasets import make_few_shot_tasks

N, Q, R = 25, 40, 3


def table():
    return make_few_shot_tasks(N, Q, R, 60, 6, noise=0.1, seed=1)


def new_tasks(data):
    return make_few_shot_tasks(N, 30, R, 40, 1, noise=0.1, basis=data.basis, seed=2)


def fit(data, **parameters):
    return fs.FedFewShotRegressor(**{"rank": R, "iterations": 30, **parameters}).fit(
        data.X, data.y, task=data.task, sites=data.sites
    )
