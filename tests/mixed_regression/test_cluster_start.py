"""Votes among candidate models."""

from __future__ import annotations

import numpy as np

from fedspan.mixed_regression.parts.cluster_start import chosen_by_votes


def test_votes_of_a_minority_do_not_buy_a_candidate():
    rng = np.random.default_rng(0)
    losses = rng.uniform(0.8, 1.2, size=(90, 8))
    for i in range(90):
        losses[i, [i % 3, 3 + i % 3]] = rng.uniform(0.05, 0.2, 2)  # two candidates for each of three clusters
    losses[:20] = 5.0
    losses[:20, 7] = 1e-9  # twenty sites want candidate 7
    chosen = chosen_by_votes(losses, 3)
    assert 7 not in chosen
    assert sorted(chosen % 3) == [0, 1, 2]


def test_votes_find_a_small_cluster_beside_one_of_most_sites():
    """What candidates of its own cluster differ by is noise to a site, also where most candidates are such."""
    rng = np.random.default_rng(1)
    labels = np.repeat([0, 1, 2], [13, 32, 75])
    points = np.array([[0.0, 3.0], [3.0, 0.0], [0.0, 0.0]])[labels] + 0.5 * rng.normal(size=(120, 2))
    losses = np.sum((points[:, None] - points[None]) ** 2, axis=2)
    assert sorted(labels[chosen_by_votes(losses, 3)]) == [0, 1, 2]
