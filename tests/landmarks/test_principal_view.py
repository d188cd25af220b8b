"""FedDL along principal axes: the axes, any split, sums alone, and sites that miss them."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.errors import InputError, QuorumError
from fedspan.landmarks.feddl import feddl
from fedspan.landmarks.parts.kernel_pull import local_pull
from fedspan.landmarks.parts.principal_view import check_reduce, may_reduce
from tests.landmarks.wide_rows import COLUMNS, federation, wide

QUICK = {"n_landmarks": 20, "rounds": 5}


def learned(fed, **settings):
    with fed.begin("run", seed=0) as run:
        return feddl(run, **{**QUICK, **settings}), run.record


def test_landmarks_are_those_of_the_coordinates():
    X, groups = wide()
    found, record = learned(federation(), reduce=6, precision="double")
    axes = found.view.axes.astype(np.float64)
    pooled = fs.FedPCA(6).fit(X)
    np.testing.assert_allclose(np.abs(axes @ pooled.components_.T), np.eye(6), atol=1e-6)
    np.testing.assert_allclose(found.view.variance, pooled.explained_variance_ * 159 / 160, rtol=1e-6)
    assert found.view.share == pytest.approx(pooled.explained_variance_ratio_.sum())
    assert record.metric("explained") == [found.view.share]
    inside = (found.points - found.centre) @ axes.T
    np.testing.assert_allclose(found.view.lifted(inside), found.points, rtol=1e-6)
    plain, _ = learned(fs.federate((X - X.mean(axis=0)) @ axes.T, sites=groups), precision="double")
    np.testing.assert_allclose(inside, plain.points, atol=1e-5 * np.abs(inside).max())
    assert found.scale == pytest.approx(plain.scale)


def test_any_split_gives_the_same_landmarks():
    X, groups = wide()
    one, _ = learned(fs.federate(X, sites=groups), reduce=6, precision="double")
    unequal = np.r_[np.zeros(150, dtype=int), np.arange(1, 11)]
    for sites in (np.zeros(160), unequal):
        other, _ = learned(fs.federate(X, sites=sites), reduce=6, precision="double")
        np.testing.assert_allclose(other.points, one.points, atol=1e-4 * one.scale)


def test_wire_and_secure_sums_change_nothing():
    found, _ = learned(federation(), reduce=6)
    assert found.precision == "single"
    wired, _ = learned(federation(wire=True), reduce=6)
    np.testing.assert_array_equal(wired.points, found.points)
    secure, record = learned(federation(policy=fs.Policy(secure_sum=True)), reduce=6)
    np.testing.assert_allclose(secure.points, found.points, atol=1e-4 * found.scale)
    assert {call.step for call in record.calls} >= {"landmarks.view", "landmarks.pull"}


def test_the_number_of_axes_is_chosen_by_the_variance():
    assert learned(federation(), reduce=0.5)[0].view.share >= 0.5
    few = learned(federation(), reduce=0.5)[0].view
    assert len(few.axes) < len(learned(federation(), reduce=0.9)[0].view.axes) < COLUMNS
    auto = learned(federation(), reduce="auto")[0]
    assert len(auto.view.axes) == 30  # at least
    assert learned(federation(columns=100), reduce="auto")[0].view is None
    assert learned(federation(), reduce=COLUMNS)[0].view is None
    assert not may_reduce("auto", 1)
    flat = np.outer(np.arange(20.0), np.ones(130))
    assert len(learned(fs.federate(flat, sites=np.arange(20) % 2), reduce="auto")[0].view.axes) == 1
    # fewer rows than axes
    assert len(learned(federation(n=12), reduce="auto")[0].view.axes) <= 12


@pytest.mark.parametrize(
    ("strong", "weak", "expected"),
    [(10, 40, 50), (10, 120, 80), (90, 60, 90), (10, 10, 30)],
    ids=["95 % in 50 axes", "95 % beyond 80 axes", "90 % beyond 80 axes", "95 % in 20 axes"],
)
def test_up_to_80_axes_hold_more_of_the_variance(strong, weak, expected):
    """Variances: the strong axes have 90.1 % together, the weak ones 4.95 %, and all others 4.95 %."""
    parts = [(0.901, strong), (0.0495, weak), (0.0495, 300 - strong - weak)]
    variance = np.concatenate([np.full(axes, share / axes) for share, axes in parts])
    X = np.random.default_rng(0).normal(size=(1000, 300))
    X = np.linalg.qr(X - X.mean(axis=0))[0] * np.sqrt(variance)
    found = learned(fs.federate(X, sites=np.arange(1000) % 3), reduce="auto", rounds=0)[0].view
    assert abs(len(found.axes) - expected) <= 1


def test_many_columns_use_the_iteration_that_sends_less():
    X = np.random.default_rng(0).normal(size=(40, 4)) @ np.random.default_rng(1).normal(size=(4, 3000))
    found, record = learned(fs.federate(X, sites=np.arange(40) % 2), reduce=3)
    assert "pca.product" in {call.step for call in record.calls}
    angles = found.view.axes.astype(np.float64) @ fs.FedPCA(3, solver="subspace_iteration").fit(X).components_.T
    np.testing.assert_allclose(np.linalg.svd(angles)[1], 1.0, atol=1e-3)


def test_a_site_without_the_axes_is_in_no_round():
    fed = federation()
    with pytest.raises(QuorumError, match="has not received the axes along which this run sees rows"):
        fed.ask(local_pull, Y=np.zeros((2, 3)), gamma=1.0, viewed=True)

    def without_axes(replies, bad, rng, call):
        return {site: object() if call.step.startswith("landmarks.") else replies[site] for site in bad}

    with pytest.warns(UserWarning, match="hardly follow the rows of 2"):
        found, record = learned(fed.corrupt(without_axes, ["2"]), reduce=4)
    assert [call.step for call in record.calls].count("landmarks.view") == 3
    assert np.isfinite(found.points).all()


@pytest.mark.parametrize("reduce", ["all", 0, -3, 1.5, 0.0, True, (3,)])
def test_values_that_cannot_work_are_refused(reduce):
    with pytest.raises(InputError, match=r"reduce="):
        check_reduce(reduce)
