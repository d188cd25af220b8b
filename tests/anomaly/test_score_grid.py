from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedspan as fs
from fedspan.anomaly.parts.score_grid import (
    local_score_counts,
    placed_edges,
    quantile_between,
    score_counts,
    shares_up_to,
)
from fedspan.errors import FedspanError


def grid(scores):
    middle, high = (np.quantile(scores, level, axis=0, method="inverted_cdf") for level in (0.5, 0.95))
    return placed_edges(middle, high)


def counted(scores, edges, sites=3):
    return score_counts(fs.federate(scores, sites=np.arange(len(scores)) % sites), edges)


def test_counts_are_those_of_a_histogram_for_any_split():
    scores = np.random.default_rng(0).chisquare(5, (400, 2))
    edges = grid(scores)
    found = counted(scores, edges)
    for column, at, counts in zip(scores.T, edges, found, strict=True):
        np.testing.assert_array_equal(counts[1:-1], np.histogram(-column, -at[::-1])[0][::-1])  # up to the upper edge
        assert counts.sum() == 400
    np.testing.assert_array_equal(found, counted(scores, edges, sites=1))
    np.testing.assert_allclose(shares_up_to(found)[0, 200], np.mean(scores[:, 0] <= edges[0, 200]))


@pytest.mark.parametrize("draw", ["chisquare", "normal", "lognormal", "beta"])
def test_a_quantile_between_edges_is_off_by_less_than_half_a_point(draw):
    rng = np.random.default_rng(1)
    shapes = {"chisquare": (4,), "normal": (0, 1), "lognormal": (0, 2), "beta": (2, 5)}
    scores = getattr(rng, draw)(*shapes[draw], 20_000)[:, None]
    edges = grid(scores)
    counts = counted(scores, edges)[0]
    for level in (0.8, 0.9, 0.95, 0.99):
        found = quantile_between(edges[0], counts, level)
        assert abs(np.mean(scores <= found) - level) < 0.005


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-50, 50), min_size=1, max_size=30), st.floats(0.01, 0.99))
def test_a_quantile_is_between_the_edges_around_the_exact_one(values, level):
    scores = np.array(values)[:, None]
    edges = np.linspace(-60.0, 60.0, 25)[None]
    exact = np.quantile(scores, level, method="inverted_cdf")
    above = int(np.searchsorted(edges[0], exact, side="left"))
    found = quantile_between(edges[0], counted(scores, edges, 1)[0], level)
    assert edges[0, above - 1] - 1e-9 <= found <= edges[0, above] + 1e-9


def test_equal_scores_have_edges_that_rise():
    edges = placed_edges(np.array([3.0, 0.0]), np.array([3.0, 0.0]))
    assert (np.diff(edges, axis=1) > 0).all()


@pytest.mark.parametrize("edges", [21, 257])
def test_few_edges_are_compared_with_the_same_counts_as_a_search(edges):
    at = np.linspace(-2.0, 2.0, edges)
    scores = np.concatenate([np.random.default_rng(0).normal(size=500), at, at[:3], [-np.inf, np.inf, np.nan]])
    found = local_score_counts(fs.Site("a", scores[:, None]), edges=at[None])["counts"]
    between = [(scores > low) & (scores <= high) for low, high in pairwise(at)]
    true = [scores <= at[0], *between, ~(scores <= at[-1])]
    np.testing.assert_array_equal(found, [[np.sum(own) for own in true]])


def test_edges_that_fall_are_refused():
    scores = np.ones((30, 1))
    with pytest.raises(FedspanError, match="rising numbers"):
        counted(scores, np.array([[2.0, 1.0]]))
