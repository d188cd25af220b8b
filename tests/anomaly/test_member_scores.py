from __future__ import annotations

import numpy as np
import pytest

from fedspan.anomaly.parts.member_scores import learned_ranks, member_scores, rank_parts, summed_ranks
from fedspan.errors import InputError


def test_ranks_by_hand():
    # Of four training rows two are up to 1, and all up to 2; the largest rank is that of a share of 3 / 4.
    ranks = learned_ranks(np.array([[0.0, 1.0, 2.0]]), np.array([[0, 2, 2, 0]]), np.array([1.0]), np.array([1.5]))
    found = rank_parts(np.array([[-5.0], [0.5], [1.0], [1.75], [9.0]]), **ranks)[:, 0]
    log2 = np.log(2)
    expected = [0.0, log2 / 2, log2, 1.75 * log2 + np.log(1.5), 2 * log2 + np.log(16.0)]
    np.testing.assert_allclose(found, expected)


def test_the_sum_grows_with_every_member():
    edges = np.linspace(0, 1, 11) * np.ones((2, 1))
    ranks = learned_ranks(edges, np.ones((2, 12)), np.full(2, 0.5), np.full(2, 0.95))
    S = np.random.default_rng(0).uniform(-1, 5, (40, 2))
    more = summed_ranks(S + np.array([0.1, 0.0]), **ranks)
    assert (more >= summed_ranks(S, **ranks)).all()


def test_what_does_not_fit_is_refused():
    X = np.ones((3, 2))
    with pytest.raises(InputError, match="no members"):
        member_scores(X)
    with pytest.raises(InputError, match="not complete"):
        member_scores(X, centers=np.ones((2, 2)))
    ranks = learned_ranks(np.ones((2, 3)), np.ones((2, 4)), np.zeros(2), np.ones(2))
    with pytest.raises(InputError, match="do not fit 3 scores"):
        summed_ranks(np.ones((4, 3)), **ranks)
