"""Moment descent as the paper states it, and where it fails."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.errors import InputError
from fedspan.federation.site.call_context import CallContext
from fedspan.linalg import bottleneck_distance
from fedspan.mixed_regression.moment_descent import moment_descent
from fedspan.mixed_regression.moment_descent_paper import local_paper_descent, moment_descent_paper

from .mixtures import federation, mixture


def test_the_paper_leaves_the_sign_of_its_vector_open():
    """Its power iteration begins anywhere: half of the anchors with one and the same residual move away from it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = X @ [1.0, 0.0]
    moves = []
    for seed in range(40):
        site = fs.Site("a", X, y).in_call(CallContext({}, number=0, seed=seed))
        reply = local_paper_descent(site, np.zeros((1, 2)), np.eye(2)[:, None], separation=1.0, epsilon=0.1)
        moves.append(reply["change"][0])
    assert 8 <= sum(move > 0.0 for move in moves) <= 32
    np.testing.assert_allclose(np.abs(moves), 0.5, atol=0.1)  # half the residual's length, in the one or other way


def test_the_papers_moments_of_two_rows_do_not_find_the_clusters_where_all_pairs_do():
    made = mixture(9, sizes=(30,) * 60, k=3, d=30)
    truth = np.linalg.qr(made[4].T)[0]
    seen = {}
    for name, find, options in (
        ("all pairs", moment_descent, {"n_columns": 30}),
        ("paper", moment_descent_paper, {"start": np.zeros(30), "separation": 1.4}),
    ):
        found = federation(made).run(find, n_clusters=3, **options)
        seen[name] = bottleneck_distance(found.models, made[4]), np.linalg.norm(truth.T @ found.anchor_models.T)
    assert seen["all pairs"][0] < 0.3
    assert seen["paper"][0] > 0.9


def test_too_few_anchors_miss_a_cluster_more_often_than_the_paper_says():
    """ceil(3 k log k) anchors, three clusters of shares 0.2, 0.3, 0.5: one run in seven misses one."""
    k, p = 3, np.array([0.2, 0.3, 0.5])
    draws = np.random.default_rng(0).choice(k, size=(20_000, int(np.ceil(3 * k * np.log(k)))), p=p)
    missed = 1 - np.mean([len(set(row)) == k for row in draws])
    assert missed == pytest.approx(0.136, abs=0.01)
    ours = int(np.ceil(np.log(k / 0.001) / 0.2))
    draws = np.random.default_rng(0).choice(k, size=(20_000, ours), p=p)
    assert np.mean([len(set(row)) < k for row in draws]) < 0.001


def test_a_separation_that_is_not_positive_is_refused():
    with pytest.raises(InputError, match=r"separation=-1\.0 must be a finite number above 0"):
        moment_descent_paper(federation(mixture(0)), n_clusters=2, start=np.zeros(5), separation=-1.0)
