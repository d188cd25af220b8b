"""Random starts, and the best of several."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.aggregation import GeometricMedian
from fedspan.linalg import bottleneck_distance, matched_share
from fedspan.mixed_regression.fedx import fedx
from fedspan.mixed_regression.logistic_fedx import local_held_back_loss
from fedspan.mixed_regression.parts.cluster_assignment import cluster_assignment
from fedspan.mixed_regression.random_start import best_random_start, random_start

from .mixtures import classes, federation, mixture


def test_random_starts():
    fed = federation(mixture(7, k=3, d=6))
    drawn = fed.run(random_start, n_clusters=3, n_columns=6, start=np.full(6, 5.0), scale=0.1).models
    assert drawn.shape == (3, 6)
    assert 0.02 < np.linalg.norm(drawn - 5.0, axis=1).mean() < 0.3
    made = mixture(8, sizes=(12,) * 40, k=4, d=6)
    best = federation(made).run(best_random_start, n_clusters=4, n_columns=6, starts=8)
    assert bottleneck_distance(best.models, made[4]) < 0.2


def test_the_best_random_start_has_the_smallest_loss():
    made = mixture(8, sizes=(12,) * 40, k=4, d=6)
    fed = federation(made)
    with fed.begin("starts") as run:
        best = best_random_start(run, n_clusters=4, n_columns=6, starts=4, rounds=20)
    losses = run.record.metric("start_loss")
    assert len(losses) == 4
    again = fedx(fed, models=best.models, max_rounds=1)
    assert again.loss <= min(losses) * 1.01


def test_several_random_starts_find_clusters_of_classes():
    X, y, sites, _labels, models = classes(3, k=3, sizes=(40,) * 45)
    fed = fs.federate(X, y, sites=sites)
    with fed.begin("starts") as run:
        found = best_random_start(run, n_clusters=3, n_columns=3, starts=4, loss="logistic", scale=3.0)
    losses = run.record.metric("start_loss")
    assert len(losses) == 4
    held = fed.sum(local_held_back_loss, models=found.models)
    assert held["loss"] / held["n"] == pytest.approx(min(losses))
    assert bottleneck_distance(found.models, models) < 2.0
    resilient = fed.run(
        best_random_start, n_clusters=3, n_columns=3, starts=2, loss="logistic", scale=3.0, aggregator=GeometricMedian()
    )
    assert resilient.models.shape == (3, 3)
    who = fed.run(cluster_assignment, models=models, loss="logistic")
    assert matched_share(who.labels, _labels) > 0.9
    assert np.isnan(who.noise).all()
