"""The subspace median: against dense projectors, in long double, and with malicious sites."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedspan.errors import InputError
from fedspan.linalg import geometric_median, stable_rank, subspace_distance, subspace_median
from fedspan.linalg.medians import projectors
from tests.linalg import long_double
from tests.linalg.subspace_sites import basis, near, sites


def projectors_of(bases):
    return bases @ bases.transpose(0, 2, 1)


def naive_median(P):
    """Weiszfeld on n x n matrices, started at their mean, until nothing moves."""
    Z = P.mean(axis=0)
    for _ in range(5000):
        pulls = 1.0 / np.linalg.norm(P - Z, axis=(1, 2))
        new = np.tensordot(pulls / pulls.sum(), P, axes=1)
        moved = np.linalg.norm(new - Z)
        Z = new
        if moved < 1e-13:
            break
    return Z


@pytest.mark.parametrize(
    ("n", "r", "honest", "malicious", "spread"),
    [
        (40, 6, 2, 1, 0.8),
        (30, 3, 5, 2, 0.3),
        (30, 3, 5, 2, 1.5),
        (12, 2, 20, 9, 0.5),
        (10, 5, 0, 7, 1.0),
        (25, 1, 8, 0, 0.2),
    ],
)
def test_equals_the_naive_median_of_dense_projectors(n, r, honest, malicious, spread):
    bases = sites(np.random.default_rng(n + r), n, r, honest, malicious, spread)
    P = projectors_of(bases)
    result = subspace_median(bases)
    dense = np.tensordot(result.weights, P, axes=1)
    assert np.linalg.norm(dense - naive_median(P)) <= 1e-10
    np.testing.assert_allclose(result.distances, np.linalg.norm(P - dense, axis=(1, 2)), rtol=1e-11)
    assert result.gap <= 1e-10 * result.distances.sum()
    # the leading eigenspace and the spectrum, densely
    values, vectors = np.linalg.eigh(dense)
    assert subspace_distance(result.basis, vectors[:, -r:]) <= 1e-11
    np.testing.assert_allclose(result.spectrum, values[::-1][: len(result.spectrum)], atol=1e-12)
    assert len(result.spectrum) == min(n, len(bases) * r, 2 * r)
    np.testing.assert_allclose(result.basis.T @ result.basis, np.eye(r), atol=1e-13)


def test_three_lines_of_the_plane_60_degrees_apart():
    # lines at angle t are points at angle 2 t on a circle of radius 1 / sqrt 2: an equilateral triangle about I / 2
    angles = np.radians([0, 60, 120])
    result = subspace_median(np.stack([np.cos(angles), np.sin(angles)], axis=1)[:, :, None])
    np.testing.assert_allclose(result.weights, [1 / 3, 1 / 3, 1 / 3], atol=1e-14)
    np.testing.assert_allclose(result.distances, np.full(3, 1 / np.sqrt(2)), atol=1e-14)
    np.testing.assert_allclose(result.spectrum, [0.5, 0.5], atol=1e-14)


def test_majority_is_the_median():
    rng = np.random.default_rng(0)
    U = basis(rng, 9, 2)
    bases = np.stack([basis(rng, 9, 2), *(U @ basis(rng, 2, 2) for _ in range(3)), basis(rng, 9, 2)])
    result = subspace_median(bases)
    np.testing.assert_allclose(result.weights, [0, 1 / 3, 1 / 3, 1 / 3, 0], atol=1e-15)
    assert subspace_distance(result.basis, U) <= 1e-14
    np.testing.assert_allclose(result.spectrum, [1, 1, 0, 0], atol=1e-14)
    assert result.gap <= 1e-12


def test_two_sites_have_their_mean_as_the_median_and_the_first_as_the_node():
    bases = sites(np.random.default_rng(1), 8, 3, 0, 2, 1.0)
    result = subspace_median(bases, output="node")
    np.testing.assert_allclose(result.weights, [0.5, 0.5], atol=1e-14)
    np.testing.assert_array_equal(result.basis, bases[0])
    np.testing.assert_array_equal(subspace_median(bases[::-1], output="node").basis, bases[1])
    np.testing.assert_array_equal(subspace_median(bases, output="trimmed").kept, [0, 1])


def test_one_site():
    bases = sites(np.random.default_rng(2), 8, 3, 0, 1, 1.0)
    for output in ("eigenspace", "node", "trimmed"):
        result = subspace_median(bases, output=output)
        assert subspace_distance(result.basis, bases[0]) <= 1e-14
        assert result.weights == [1.0]
        assert result.gap <= 1e-13
    np.testing.assert_allclose(result.spectrum, np.ones(3), atol=1e-14)


@given(st.integers(0, 2**32), st.sampled_from([1.0, 1e-3, 1e-7]))
def test_bases_do_not_matter_only_spans(seed, spread):
    rng = np.random.default_rng(seed)
    bases = sites(rng, 8, 2, 4, 2, spread)
    turned = np.stack([U @ basis(rng, 2, 2) for U in bases])
    first, second = subspace_median(bases), subspace_median(turned)
    # the rounding of a basis moves its span by 1e-16, and weights within a cluster by so much over its spread
    np.testing.assert_allclose(first.weights, second.weights, atol=1e-13 / spread)
    np.testing.assert_allclose(first.distances, second.distances, atol=1e-14)
    np.testing.assert_allclose(first.spectrum, second.spectrum, atol=1e-13)
    assert ((first.spectrum >= 0) & (first.spectrum <= 1)).all()
    assert subspace_distance(first.basis, second.basis) <= 1e-13


@given(st.integers(0, 2**32))
def test_order_of_the_sites_and_axes_of_the_space(seed):
    rng = np.random.default_rng(seed)
    bases = sites(rng, 7, 2, 3, 3, 0.3)
    order, axes = rng.permutation(6), basis(rng, 7, 7)
    first, second = subspace_median(bases), subspace_median((axes @ bases)[order])
    np.testing.assert_allclose(second.weights, first.weights[order], atol=1e-12)
    np.testing.assert_allclose(second.distances, first.distances[order], atol=1e-12)
    assert subspace_distance(axes @ first.basis, second.basis) <= 1e-11


@given(st.integers(0, 2**32), st.integers(-12, 0), st.integers(1, 6), st.integers(0, 3))
def test_gap_is_true_and_distances_are_right_however_near_the_sites_are(seed, exponent, honest, malicious):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 6))
    bases = sites(rng, n, int(rng.integers(1, min(n, 3) + 1)), honest, malicious, 10.0**exponent)
    result = subspace_median(bases)
    P = long_double.projectors(bases)
    P = P - P[np.argmin(result.distances)]
    weights = result.weights.astype(np.longdouble)
    Z = (weights[:, None] / weights.sum() * P).sum(axis=0)
    away = long_double.distances(P, Z)
    np.testing.assert_allclose(result.distances, away.astype(float), rtol=1e-8, atol=1e-14)
    assert long_double.excess(P, np.ones(len(P)), Z) <= result.gap + 1e-18 * away.sum()
    # the rounding of the bases moves the objective by 1e-16 for each site, the proof of it takes more
    assert result.gap <= 1e-10 * float(away.sum()) + 3e-13 * len(P)


@pytest.mark.parametrize("spread", [1e-4, 1e-6, 1e-8, 1e-10])
@pytest.mark.parametrize("malicious", [0, 2])
def test_distances_of_sites_that_nearly_agree(spread, malicious):
    rng = np.random.default_rng(3)
    bases = sites(rng, 60, 3, 5, malicious, spread)
    result = subspace_median(bases)
    P = long_double.projectors(bases)
    Z = (result.weights.astype(np.longdouble)[:, None] * (P - P[0])).sum(axis=0)
    away = long_double.distances(P - P[0], Z)[:5].astype(float)
    np.testing.assert_allclose(result.distances[:5], away, rtol=2e-15 / spread)  # overlaps alone: 1e-15 / spread^2
    assert 0.1 * spread < away.max() < 10 * spread


@pytest.mark.parametrize("unit", [1e-2, 1e-5, 1e-7, 1e-9])
def test_distances_are_sharp_where_the_median_is_a_site_for_sure(unit):
    angles = unit * np.array([0.0, 1.0, 3.0])
    bases = np.stack([np.cos(angles), np.sin(angles)], axis=1)[:, :, None]
    result = subspace_median(bases)
    np.testing.assert_array_equal(result.weights, [0.0, 1.0, 0.0])
    np.testing.assert_allclose(
        result.distances, np.sqrt(2) * np.sin(unit * np.array([1.0, 0.0, 2.0])), rtol=1e-15 / unit
    )


@pytest.mark.parametrize("malicious", [0, 300])
def test_many_sites_of_few_columns_are_the_same_without_their_inner_products(monkeypatch, malicious):
    bases = sites(np.random.default_rng(8), 8, 2, 700 - malicious, malicious, 0.6)
    held = []
    for _ in range(3):  # the least of three: what else this process is doing is counted too
        tracemalloc.start()
        ours = subspace_median(bases, output="trimmed")
        held.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert min(held) < 8 * len(bases) ** 2  # of a matrix of inner products
    monkeypatch.setattr(projectors, "MANY", len(bases))
    other = subspace_median(bases, output="trimmed")
    np.testing.assert_allclose(ours.weights, other.weights, atol=1e-15)
    np.testing.assert_allclose(ours.distances, other.distances, atol=1e-13)
    np.testing.assert_allclose(ours.spectrum, other.spectrum, atol=1e-13)
    np.testing.assert_array_equal(ours.kept, other.kept)
    assert subspace_distance(ours.basis, other.basis) <= 1e-12
    assert ours.gap <= 1e-10 * ours.distances.sum()


def test_agrees_with_the_geometric_median_of_vectorised_projectors():
    bases = sites(np.random.default_rng(4), 9, 2, 6, 3, 0.4)
    vectors = geometric_median(projectors_of(bases).reshape(9, -1))
    result = subspace_median(bases)
    np.testing.assert_allclose(result.weights, vectors.weights, atol=1e-12)
    np.testing.assert_allclose(result.distances, vectors.distances, rtol=1e-12)


def test_node_is_the_basis_of_the_nearest_site_as_it_came():
    bases = sites(np.random.default_rng(5), 20, 3, 5, 2, 0.5)
    result = subspace_median(bases, output="node")
    best = int(np.argmin(result.distances))
    np.testing.assert_array_equal(result.kept, [best])
    np.testing.assert_array_equal(result.basis, bases[best])


def test_trimmed_is_the_mean_of_the_closest_pair_of_three():
    rng = np.random.default_rng(6)
    bases = sites(rng, 20, 3, 2, 1, 0.5)[[0, 2, 1]]
    result = subspace_median(bases, output="trimmed")
    np.testing.assert_array_equal(result.kept, [0, 2])
    mean = projectors_of(bases[[0, 2]]).mean(axis=0)
    assert subspace_distance(result.basis, np.linalg.eigh(mean)[1][:, -3:]) <= 1e-12


def test_trimmed_takes_all_of_three_lines_of_which_none_is_far_away():
    """Whichever of them is malicious, the result is as near to the other two as these are to one another."""
    angles = np.array([0.0, 0.45, 0.95])  # the line in the middle is the median: 126 degrees, seen from there
    lines = np.stack([np.cos(angles), np.sin(angles)], axis=1)[:, :, None]
    result = subspace_median(lines, output="trimmed")
    np.testing.assert_allclose(result.distances, np.sqrt(2) * np.sin([0.45, 0.0, 0.5]), atol=1e-15)
    np.testing.assert_array_equal(result.kept, [0, 1, 2])
    mean = projectors_of(lines).mean(axis=0)
    np.testing.assert_allclose(np.abs(result.basis.T @ np.linalg.eigh(mean)[1][:, -1:]), 1.0, atol=1e-14)
    for malicious in range(3):
        one, other = np.delete(lines, malicious, axis=0)
        apart = subspace_distance(one, other)
        assert max(subspace_distance(result.basis, line) for line in (one, other)) <= 1.1 * apart


def test_trimmed_draws_the_line_at_one_and_a_half_radii_of_a_majority():
    # lines that leave the first axis each in a direction of their own
    angles = np.array([0.1, 0.1, 0.1, 0.1, 0.1, 0.17, 0.2])
    bases = (np.eye(8)[0] * np.cos(angles)[:, None] + np.eye(8)[1:] * np.sin(angles)[:, None])[:, :, None]
    result = subspace_median(bases, output="trimmed")
    ratio = np.array([subspace_distance(bases[0], one) for one in bases]) / subspace_distance(bases[0], bases[1])
    assert 1.3 < ratio[5] < 1.5 < ratio[6]
    np.testing.assert_array_equal(result.kept, np.arange(6))


def test_trimmed_leaves_out_sites_far_from_the_majority():
    bases = sites(np.random.default_rng(7), 30, 2, 6, 3, 0.3)
    result = subspace_median(bases, output="trimmed")
    np.testing.assert_array_equal(result.kept, np.arange(6))
    np.testing.assert_array_equal(np.flatnonzero(result.near), np.arange(6))
    mean = projectors_of(bases[:6]).mean(axis=0)
    assert subspace_distance(result.basis, np.linalg.eigh(mean)[1][:, -2:]) <= 1e-12


@pytest.mark.parametrize("output", ["eigenspace", "node", "trimmed"])
def test_the_bound_holds_for_any_honest_majority_of_that_radius(output):
    """For each number of malicious sites: every site whose ball is small enough may be the honest centre."""
    bases = sites(np.random.default_rng(9), 20, 2, 7, 4, 0.5)
    result = subspace_median(bases, output=output)
    projectors = projectors_of(bases)
    apart = np.linalg.norm(projectors[:, None] - projectors, axis=(2, 3))
    away = np.linalg.norm(projectors - result.basis @ result.basis.T, axis=(1, 2))
    np.testing.assert_array_equal(result.resilience["malicious"], np.arange(1, 6))
    for m, radius, bound in result.resilience.tolist():
        radii = np.sort(apart, axis=1)[:, len(bases) - m - 1]
        assert radius == pytest.approx(radii.min(), rel=1e-6)
        assert bound == pytest.approx(away[radii <= 2.0 * radii.min()].max(), rel=1e-6)


def test_nine_of_nineteen_that_agree_far_away_do_not_get_the_trimmed_mean():
    """Honest sites differ by most of what subspaces can: the median is the attackers' subspace, the mean is not."""
    rng = np.random.default_rng(0)
    U = basis(rng, 50, 3)
    other = np.linalg.qr(np.hstack([U, rng.normal(size=(50, 3))]))[0][:, 3:6]
    honest = [np.linalg.qr(U + 0.6 * np.linalg.qr(rng.normal(size=(50, 3)))[0])[0] for _ in range(10)]
    bases = np.stack([other] * 9 + honest)
    unit = np.median([subspace_distance(one, U) for one in honest])
    away = {how: subspace_distance(subspace_median(bases, output=how).basis, U) for how in ("eigenspace", "trimmed")}
    assert away["eigenspace"] > 1.5 * unit
    assert away["trimmed"] < 0.5 * unit
    result = subspace_median(bases)
    np.testing.assert_array_equal(result.near, np.arange(19) >= 9)
    np.testing.assert_array_equal(result.second, np.arange(19) < 9)


def test_the_order_of_many_sites_makes_no_difference():
    rng = np.random.default_rng(11)
    bases, order = sites(rng, 8, 2, 500, 100, 0.6), rng.permutation(600)
    ours, other = (subspace_median(some, output="trimmed") for some in (bases, bases[order]))
    np.testing.assert_array_equal(ours.near[order], other.near)
    assert subspace_distance(ours.basis, other.basis) <= 1e-12


def test_sites_of_one_kind_are_no_two_groups():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        for count, spread in ((5, 0.1), (9, 0.5), (19, 1.0)):
            assert subspace_median(sites(rng, 20, 2, count, 0, spread)).second is None


def test_eigenspace_averages_and_neither_output_follows_malicious_sites():
    rng = np.random.default_rng(8)
    U = basis(rng, 50, 3)
    malicious = np.linalg.qr(rng.normal(size=(50, 3)))[0]
    bases = np.stack([near(rng, U, 0.3) for _ in range(9)] + [malicious] * 4)
    away = {
        output: subspace_distance(U, subspace_median(bases, output=output).basis) for output in ("eigenspace", "node")
    }
    away["trimmed"] = subspace_distance(U, subspace_median(bases, output="trimmed").basis)
    assert away["node"] < 0.4
    assert away["eigenspace"] < 0.6 * away["node"]
    assert away["trimmed"] < 0.6 * away["node"]


def test_stable_rank_counts_the_directions_that_sites_share():
    # ten sites send 6 columns, 4 of which they share; three of them are malicious
    rng = np.random.default_rng(9)
    shared = basis(rng, 80, 4)
    honest = [np.linalg.qr(np.hstack([shared, rng.normal(size=(80, 2))]))[0] for _ in range(7)]
    result = subspace_median(np.stack(honest + [basis(rng, 80, 6) for _ in range(3)]))
    assert stable_rank(result.spectrum) == 4
    assert stable_rank(result.spectrum, threshold=0.999) < 4
    assert stable_rank([0.5, 0.5 - 1e-9]) == 1
    for threshold in (0.49, 1.01, np.nan):
        with pytest.raises(InputError, match=r"must be between 0\.5 and 1"):
            stable_rank(result.spectrum, threshold)


@pytest.mark.parametrize("spread", [0.5, 1e-6])
def test_more_columns_than_dimensions(spread):
    bases = sites(np.random.default_rng(10), 7, 3, 30, 10, spread)
    result = subspace_median(bases)
    P = projectors_of(bases)
    dense = np.tensordot(result.weights, P, axes=1)
    np.testing.assert_allclose(result.distances, np.linalg.norm(P - dense, axis=(1, 2)), rtol=1e-8)
    values, vectors = np.linalg.eigh(dense)
    assert subspace_distance(result.basis, vectors[:, -3:]) <= 1e-12
    np.testing.assert_allclose(result.spectrum, values[::-1][:6], atol=1e-12)


def test_whole_space():
    rng = np.random.default_rng(11)
    for _ in range(20):
        result = subspace_median(np.stack([basis(rng, 3, 3) for _ in range(4)]))
        np.testing.assert_allclose(result.distances, 0, atol=1e-14)
        np.testing.assert_allclose(result.spectrum, np.ones(3), atol=1e-14)
        assert result.spectrum.max() <= 1.0


def test_float32_bases_are_made_orthonormal():
    bases = sites(np.random.default_rng(12), 40, 3, 5, 2, 0.5)
    single, double = subspace_median(bases.astype(np.float32)), subspace_median(bases)
    assert single.basis.dtype == np.float64
    np.testing.assert_allclose(single.basis.T @ single.basis, np.eye(3), atol=1e-13)
    node = subspace_median(bases.astype(np.float32), output="node").basis
    np.testing.assert_allclose(node.T @ node, np.eye(3), atol=1e-13)
    np.testing.assert_allclose(single.weights, double.weights, atol=1e-6)
    assert subspace_distance(single.basis, double.basis) <= 1e-5
    assert single.gap <= 1e-10 * single.distances.sum()


def test_input_is_left_alone():
    bases = sites(np.random.default_rng(13), 9, 2, 3, 1, 0.5) * (1 + 1e-7)  # so that it is made orthonormal
    before = bases.copy()
    bases.flags.writeable = False
    subspace_median(bases)
    np.testing.assert_array_equal(bases, before)


def test_no_n_by_n_matrix_is_made():
    bases = sites(np.random.default_rng(14), 4000, 4, 5, 2, 1e-6)  # the accurate way, too
    tracemalloc.start()
    subspace_median(bases)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * bases.nbytes  # a projector would be 128 MB, all bases are 0.9 MB


@pytest.mark.parametrize(
    ("bases", "message"),
    [
        (np.eye(3), r"not of shape \(3, 3\)"),
        ([np.eye(3)[:, :2], np.eye(4)[:, :2]], "not all of them are of one shape"),
        (np.zeros((0, 3, 2)), r"not of shape \(0, 3, 2\)"),
        (np.zeros((2, 2, 3)), "1 <= r <= n"),
        (np.full((1, 2, 1), np.nan), "finite"),
        (np.ones((2, 3, 1)), r"bases\[0\] must have orthonormal columns"),
        (np.stack([np.eye(2), 1.001 * np.eye(2)]), r"bases\[1\]"),
        (np.ones((1, 1, 1), dtype=complex), "real numbers"),
    ],
)
def test_bad_bases_get_one_sentence(bases, message):
    with pytest.raises(InputError, match=message) as caught:
        subspace_median(bases)
    assert "\n" not in str(caught.value)


def test_unknown_output():
    with pytest.raises(InputError, match="output='mean' must be one of 'eigenspace', 'node', 'trimmed'"):
        subspace_median(np.eye(2)[None], output="mean")


def test_more_columns_may_be_off_by_more_together():
    """Of one entry of 1 + x the defect is 2 x: up to 1e-5 for each column."""
    bases = np.stack([np.eye(4)[:, :3]] * 3)
    for off, passes in ((1.4e-5, True), (1.6e-5, False)):
        bases[2, 0, 0] = 1.0 + off
        if passes:
            np.testing.assert_allclose(subspace_median(bases).distances, 0.0, atol=1e-12)
        else:
            with pytest.raises(InputError, match=r"bases\[2\] must have orthonormal columns"):
                subspace_median(bases)


@pytest.mark.parametrize("seed", range(5))
def test_of_three_sites_that_agree_none_is_left_out(seed):
    """The closest pair alone counted: a third of the honest rows was thrown away, and a near copy took its place."""
    rng = np.random.default_rng(seed)
    sites = [np.linalg.qr(np.eye(20)[:, :3] + 0.03 * rng.normal(size=(20, 3)))[0] for _ in range(3)]
    assert subspace_median(sites, output="trimmed").near.all()
    far = np.linalg.qr(np.eye(20)[:, :3] + 0.3 * rng.normal(size=(20, 3)))[0]
    assert subspace_median([*sites[:2], far], output="trimmed").near.tolist() == [True, True, False]
