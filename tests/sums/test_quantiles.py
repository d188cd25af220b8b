"""Federated quantiles: exactly those of the pooled rows, also when sites leave, and bounded by the honest sites."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedspan as fs
from fedspan import attacks
from fedspan.aggregation import CoordinateMedian, GeometricMedian, Krum, Mean, TrimmedMean
from fedspan.errors import InputError, QuorumError
from fedspan.sums import quantiles as quantile_search
from fedspan.sums import row_blocks
from fedspan.sums.parts import values_between
from fedspan.sums.parts.number_keys import keys
from fedspan.sums.quantiles import local_counts, local_fractions, quantiles

LEVELS = (0.001, 0.07, 0.5, 0.9, 0.95, 0.99, 1.0)


def pooled(X, level):
    return np.quantile(np.asarray(X, dtype=np.float64), level, axis=0, method="inverted_cdf")


def uneven(n=600, d=3, sites=7, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * 10.0 ** np.arange(d), rng.integers(0, sites, n).astype(str)


def leaving(after):
    """Return an attack that lets its sites say nothing from call `after` on."""

    def attack(replies, bad, rng, call):
        return dict.fromkeys(bad) if call.number >= after else {}

    return attack


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_equal_to_the_pooled_order_statistic(level, dtype):
    X, labels = uneven()
    X[:, 2] = np.round(X[:, 2], -2)  # ties, and zeros of both signs
    X = X.astype(dtype)
    found = fs.federate(X, sites=labels).run(quantiles, level=level)
    np.testing.assert_array_equal(found, pooled(X, level))


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=30),
    st.integers(1, 4),
    st.floats(0.0, 1.0, exclude_min=True),
)
def test_any_numbers_and_any_split(values, sites, level):
    X = np.array(values)[:, None]
    fed = fs.federate(X, sites=np.arange(len(X)) % sites)
    found = fed.run(quantiles, level=level)
    assert found[0] == pooled(X, level)[0]


def test_by_hand():
    fed = fs.LocalFederation([fs.Site("a", [[3.0], [1.0]]), fs.Site("b", [[2.0]]), fs.Site("none", np.zeros((0, 1)))])
    assert [fed.run(quantiles, level=level).tolist() for level in (0.3, 0.34, 0.67, 1.0)] == [
        [1.0],
        [2.0],
        [3.0],
        [3.0],
    ]


def test_extreme_numbers():
    X = np.array([[-1.7e308], [-5e-324], [0.0], [5e-324], [1.7e308]])
    fed = fs.federate(X, sites=[0, 1, 0, 1, 0])
    assert [fed.run(quantiles, level=i / 5)[0] for i in range(1, 6)] == X[:, 0].tolist()


def test_what_leaves_a_site_does_not_grow_with_its_rows():
    low, high = np.zeros(2, dtype=np.uint64), np.full(2, 2**63, dtype=np.uint64)
    for n in (1, 200, 70_000):
        reply = local_counts(fs.Site("a", np.random.default_rng(0).normal(size=(n, 2))), low=low, high=high)
        assert set(reply) == {"n", "bad", "counts"}
        assert reply["counts"].shape == (2, 257)
        assert reply["counts"].dtype == np.min_scalar_type(n)
    X, labels = uneven()
    with fs.federate(X, sites=labels).begin("test") as run:
        quantiles(run, level=0.9)
    assert [call.step for call in run.record.calls] == ["sums.counts_between"] * 8


@pytest.mark.parametrize("level", [0, -0.1, 1.1, np.nan, "0.5", True, None])
def test_other_levels_are_refused(level):
    with pytest.raises(InputError, match="level="):
        fs.federate(np.eye(2), sites=[0, 1]).run(quantiles, level=level)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(value):
    X, labels = uneven()
    X[3, 1] = value
    fed = fs.federate(X, sites=labels)
    with pytest.raises(InputError, match="NaN or infinity in 1 values"):
        fed.run(quantiles, level=0.5)
    with fed.begin("test") as run:  # where single replies are needed, the site fails
        found = quantiles(run, level=0.5, aggregator=Mean())
    assert {site for _, site, _ in run.record.failures} == {labels[3]}
    np.testing.assert_allclose(found, pooled(X[labels != labels[3]], 0.5), rtol=0.5)


def test_no_rows_are_refused():
    fed = fs.LocalFederation([fs.Site("a", np.zeros((0, 2)))])
    with pytest.raises(InputError, match="no rows"):
        fed.run(quantiles, level=0.5)
    with pytest.raises(QuorumError, match="no rows"):
        fed.run(quantiles, level=0.5, aggregator=Mean())


@pytest.mark.parametrize("after", range(10))
@pytest.mark.parametrize("gone", ["0", "6"])
def test_exact_for_those_who_stay_when_a_site_leaves_in_mid_run(after, gone):
    X, labels = uneven()
    order = np.argsort(X[:, 0])  # sites that differ as much as can be
    X, labels = X[order], np.sort(labels)
    stays = X[labels != gone] if after < 8 else X
    fed = fs.federate(X, sites=labels).corrupt(leaving(after), sites=[gone])
    np.testing.assert_array_equal(fed.run(quantiles, level=0.9), pooled(stays, 0.9))


def test_settles_although_sites_come_and_go():
    X, labels = uneven(n=4000, sites=20)
    for seed in range(5):
        with fs.federate(X, sites=labels).with_faults(fs.FaultPlan(seed=seed, drop=0.2)).begin("test") as run:
            found = quantiles(run, level=0.9)
        assert len(run.record.calls) <= 24
        assert (pooled(X, 0.87) < found).all()
        assert (found < pooled(X, 0.93)).all()


def unbiased(X, level):
    return np.quantile(np.asarray(X, dtype=np.float64), level, axis=0, method="median_unbiased")


@pytest.mark.parametrize("level", [0.002, 0.5, 0.9, 0.999, 1.0])
def test_the_median_of_fractions_is_the_median_of_the_sites_median_unbiased_quantiles(level):
    X, labels = uneven()
    X[:, 2] = np.round(X[:, 2] / 100)  # ties
    own = [unbiased(X[labels == name], level) for name in np.unique(labels)]
    found = fs.federate(X, sites=labels).run(quantiles, level=level, aggregator=CoordinateMedian())
    np.testing.assert_allclose(found, np.median(own, axis=0), rtol=1e-9)


def rates_above(n, sites, aggregator):
    """Return the share of new rows above the 0.95 quantile of alike and honest sites of n rows, for ten samples."""
    X = np.random.default_rng(0).random((n * sites, 10))  # uniform: the share above t is 1 - t
    return 1 - fs.federate(X, sites=np.arange(len(X)) % sites).run(quantiles, level=0.95, aggregator=aggregator)


@pytest.mark.parametrize("n", [20, 40, 100, 400])
def test_medians_of_small_sites_are_not_biased(n):
    error = 1.25 * np.sqrt(0.05 * 0.95 / n / 1000)  # of the median of 100 fractions, ten times
    assert rates_above(n, 100, CoordinateMedian()).mean() == pytest.approx(0.05, abs=4 * error)
    assert rates_above(n, 100, None).mean() == pytest.approx(0.05, abs=4 * error)


def test_sites_of_a_few_rows_tell_their_largest_value():
    X = np.random.default_rng(0).random((70, 2))
    labels = np.arange(70) % 7
    found = fs.federate(X, sites=labels).run(quantiles, level=0.95, aggregator=CoordinateMedian())
    np.testing.assert_array_equal(found, np.median([X[labels == site].max(axis=0) for site in range(7)], axis=0))


def test_means_believe_the_counts_that_sites_report():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(2000, 2)), rng.normal(size=(200, 2)) + 3])
    fed = fs.federate(X, sites=np.repeat(["a", "b"], [2000, 200]))
    found = fed.run(quantiles, level=0.9, aggregator=Mean())
    assert (pooled(X, 0.898) < found).all()
    assert (found < pooled(X, 0.902)).all()


@pytest.mark.parametrize(
    "attack",
    [
        attacks.Alternating(),
        attacks.SignFlip(),
        attacks.RandomNoise(100.0),
        attacks.ScaledReverse(1e9),
        attacks.Ones(),
        attacks.Mimic(),
    ],
    ids=lambda attack: type(attack).__name__,
)
@pytest.mark.parametrize("aggregator", [CoordinateMedian(), TrimmedMean(2)], ids=repr)
def test_a_minority_cannot_push_it_beyond_honest_quantiles(attack, aggregator):
    X, labels = uneven(n=2000)
    own = [pooled(X[labels == name], 0.9) for name in "23456"]
    found = (
        fs.federate(X, sites=labels).corrupt(attack, sites=["0", "1"]).run(quantiles, level=0.9, aggregator=aggregator)
    )
    assert (np.min(own, axis=0) <= found).all()
    assert (found <= np.max(own, axis=0)).all()


@pytest.mark.parametrize("aggregator", [GeometricMedian(), Krum(2)], ids=repr)
def test_rules_that_weigh_whole_replies_come_near(aggregator):
    X, labels = uneven(n=7000)

    def backwards(replies, bad, rng, call):
        return {site: {**replies[site], "fractions": replies[site]["fractions"][:, ::-1] * 1e200} for site in bad}

    fed = fs.federate(X, sites=labels).corrupt(backwards, sites=["0", "1"])
    with fed.begin("test") as run:
        found = quantiles(run, level=0.9, aggregator=aggregator)
    assert len(run.record.calls) <= 24
    assert (pooled(X, 0.87) < found).all()
    assert (found < pooled(X, 0.93)).all()


def test_fractions_by_hand():
    site = fs.Site("a", np.array([[1.0], [2.0], [2.0], [4.0], [-1.5e308], [1.5e308]]))
    below, tie, between, largest = (
        local_fractions(site, low=keys(np.array([at])), high=keys(np.array([at])))["fractions"][0, 0]
        for at in (-1.6e308, 2.0, 3.0, 1.5e308)
    )
    assert (below, largest) == (0.0, 1.0)
    assert tie == pytest.approx((4 - 1 / 3) / (6 + 1 / 3))  # up to the last of the equal ones
    assert between == pytest.approx((4.5 - 1 / 3) / (6 + 1 / 3))


@pytest.mark.parametrize("aggregator", [None, Mean()])
def test_who_watches_is_told_the_shares_up_to_every_edge(aggregator):
    X = np.random.default_rng(0).normal(size=(90, 2))
    seen = []
    with fs.federate(X, sites=np.arange(90) % 3).begin("watched") as run:
        quantiles(run, level=0.8, aggregator=aggregator, watch=lambda edges, shares: seen.append((edges, shares)))
    assert len(seen) == len(run.record.calls) == 8
    for edges, shares in seen:
        assert edges.shape == shares.shape == (2, 257)
        true = (X.T[:, None, :] <= edges[:, :, None]).mean(axis=2)
        np.testing.assert_allclose(shares, true, atol=1e-12 if aggregator is None else 0.02)


@pytest.mark.parametrize("kept", [2**24, 500, 10])
def test_large_tables_are_searched_in_blocks_with_few_passes(kept, monkeypatch):
    rng = np.random.default_rng(0)
    skewed = -np.exp(5 * rng.normal(size=5000))
    X = np.column_stack([rng.normal(size=5000), rng.integers(0, 4, 5000), skewed, np.zeros(5000)])
    levels = (0.02, 0.5, 0.98)
    expected = np.stack([np.quantile(X, level, axis=0, method="inverted_cdf") for level in levels])
    np.testing.assert_array_equal(quantiles(fs.federate(X), level=levels), expected)
    monkeypatch.setattr(quantile_search, "_SORTED_BYTES", 0)
    monkeypatch.setattr(values_between, "_KEPT", kept)
    passes, blocks = [], values_between.blocks
    monkeypatch.setattr(values_between, "blocks", lambda site: passes.append(1) or blocks(site))
    np.testing.assert_array_equal(quantiles(fs.federate(X), level=levels), expected)
    assert len(passes) <= (4 if kept > 10 else 8)
    X[3, 1] = np.nan
    with pytest.raises(fs.errors.InputError, match="NaN or infinity in 1 values"):
        quantiles(fs.federate(X), level=0.5)


def test_large_tables_may_be_searched_roughly_in_one_pass(monkeypatch):
    X = np.random.default_rng(0).normal(size=(30_000, 2)) * [1.0, 100.0]
    fed = fs.federate(X, sites=np.arange(len(X)) < 25_000)
    exact = quantiles(fed, level=(0.02, 0.5))
    np.testing.assert_array_equal(quantiles(fed, level=(0.02, 0.5), roughly=True), exact)  # they fit in memory
    monkeypatch.setattr(quantile_search, "_SORTED_BYTES", 2**18)  # the smaller site counts each of its rows
    monkeypatch.setattr(quantile_search, "_ROUGH_ROWS", 5000)
    passes, blocks = [], row_blocks.blocks
    monkeypatch.setattr(row_blocks, "blocks", lambda site: passes.append(site.name) or blocks(site))
    rough = quantiles(fs.federate(X, sites=np.arange(len(X)) < 25_000), level=(0.02, 0.5), roughly=True)
    assert passes.count("True") == 1
    assert not np.array_equal(rough, exact)
    for level, row in zip((0.02, 0.5), rough, strict=True):
        assert np.abs((row >= X).mean(axis=0) - level).max() < 4 * np.sqrt(level * (1 - level) / 5000)


@pytest.mark.parametrize("rule", [None, CoordinateMedian()])
def test_numbers_of_single_precision_are_sorted_in_half_the_memory_with_the_same_result(rule, monkeypatch):
    rng = np.random.default_rng(0)
    tiny, large = np.float32(1e-45), np.finfo(np.float32).max
    X = np.stack([rng.normal(size=400), rng.choice([-tiny, 0, tiny, -large, large], 400)], axis=1).astype(np.float32)
    fed = fs.federate({"a": X.astype(np.float64)})
    columns, _ = quantile_search._sorted_columns(fs.Site("a", X.astype(np.float64)))
    assert columns.dtype == np.float32
    found = quantiles(fed, level=LEVELS, aggregator=rule)
    monkeypatch.setattr(quantile_search, "_single", lambda X: False)
    np.testing.assert_array_equal(found, quantiles(fs.federate({"a": X}), level=LEVELS, aggregator=rule))
    if rule is None:
        np.testing.assert_array_equal(found, [pooled(X, level) for level in LEVELS])


@pytest.mark.parametrize("value", [0.1, 1e300, 1e-300])
def test_one_number_that_needs_double_precision_in_the_last_block_is_found(value, monkeypatch):
    X = np.arange(100.0)[:, None] - 200.0
    X[-1] = value
    monkeypatch.setattr(row_blocks, "_BLOCK_BYTES", 80)
    np.testing.assert_array_equal(quantiles(fs.federate({"a": X}), level=1.0), [value])
    np.testing.assert_array_equal(quantiles(fs.federate({"a": X}), level=0.5), [-151.0])


def test_intervals_that_fit_no_columns_are_refused():
    low, high = np.zeros(5, dtype=np.uint64), np.ones(5, dtype=np.uint64)
    with pytest.raises(fs.errors.InputError, match="5 low and 5 high ends of intervals do not fit 3 columns"):
        local_counts(fs.Site("a", np.zeros((4, 3))), low=low, high=high)
