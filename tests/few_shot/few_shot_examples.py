"""Small few-shot problems that the tests share."""

from __future__ import annotations

import numpy as np

import fedspan as fs
from fedspan.datasets import make_few_shot_tasks
from fedspan.few_shot.byz_altgdmin import byz_altgdmin
from fedspan.linalg import subspace_distance

N, Q, R, ROWS, SITES = 30, 64, 3, 120, 8


def by_rows(data, **options):
    return fs.federate(data.X, data.y, sites=data.sites, task=data.task, seed=1, **options)


def by_tasks(data, sites=SITES, **options):
    return fs.federate(data.X, data.y, sites=data.task % sites, task=data.task, seed=1, **options)


def learn(fed, protocol=byz_altgdmin, **settings):
    return fed.run(protocol, **{"rank": R, "n_columns": N, "iterations": 20, **settings})


def error(found, data):
    return subspace_distance(found.basis, data.basis) / np.sqrt(R)


def without_noise():
    return make_few_shot_tasks(N, Q, R, ROWS, SITES, seed=3)


def with_noise():
    return make_few_shot_tasks(N, Q, R, ROWS, SITES, noise=0.5, seed=4)


def rewriting(step, change):
    """An attack that sends ``change(reply)`` in place of each malicious site's reply to one step."""

    def attack(replies, bad, rng, call):
        return {site: change(dict(replies[site])) for site in bad} if call.step == step else {}

    return attack
