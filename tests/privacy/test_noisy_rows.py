"""Rows with noise: the same for every step, drawn in to the ball, and never without their noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fedspan as fs
from fedspan.anomaly.scores import subspace_score
from fedspan.errors import QuorumError
from fedspan.federation.site.transforms import Transform, _transforms, installed_transforms
from fedspan.landmarks.parts.kernel_pull import rows_and_norms
from fedspan.privacy.ledger import SimulatedLedger
from fedspan.privacy.noisy_rows import noisy_rows, with_noisy_rows
from fedspan.sums.row_transforms import shifted_and_scaled

from .mechanism_examples import DATA, landmarks, sites_with_ledgers, table


@fs.step(ragged=["X", "batched"])
def local_look(site):
    """Leaves the site: its rows, read at once and in batches."""
    return {"X": site.X, "batched": np.concatenate([batch.X for batch in site.batches(7)])}


@pytest.mark.parametrize("run", [{}, {"wire": True}])
def test_all_steps_see_the_same_noisy_rows(run, tmp_path):
    X, labels = table()
    site = sites_with_ledgers(tmp_path)[0]
    seen = []
    for seed in (0, 1):
        fed = with_noisy_rows(fs.LocalFederation([site], seed=seed, **run), DATA)
        seen += list(fed.ask(local_look)["0"].values())
        seen.append(fed.apply(shifted_and_scaled, shift=0.0, scale=1.0).ask(local_look)["0"]["X"])
    assert len({array.tobytes() for array in seen}) == 1
    noise = (seen[0] - X[labels == 0]) / DATA.sigma
    assert abs(noise.std() - 1) < 5 / np.sqrt(2 * noise.size)
    assert len(site.ledger.charges) == 1
    assert site.ledger.spent == pytest.approx(200.0)


def test_rows_are_drawn_in_and_what_is_no_number_is_hidden():
    X = np.array([[3.0, 4.0], [0.3, 0.4], [np.nan, 1.0], [np.inf, 0.0], [1e200, 1e200], [-1e308, 1e308]])
    rows = noisy_rows(X, b"key", center=np.zeros(2), clip=1.0, sigma=1e-12)
    s = np.sqrt(0.5)
    np.testing.assert_allclose(rows, [[0.6, 0.8], [0.3, 0.4], [0, 0], [0, 0], [s, s], [-s, s]], atol=1e-8)


def test_huge_rows_are_drawn_in_to_a_tiny_ball():
    """One factor for both would be 5e-324, or nothing: rows came out twice as long as the ball."""
    for clip in (2.6e-24, 3e-24, 1e-22):
        rows = noisy_rows(np.array([[1e300, 0.0], [1e300, 1e300]]), b"key", center=np.zeros(2), clip=clip, sigma=1e-40)
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), clip, rtol=1e-8)


def test_a_center_far_out_is_added_to_noisy_rows_and_cannot_move_them_before():
    """Were it added before the noise, its rounding would take rows beyond `clip`: 64 columns by 256 each."""
    center, apart = 2.0**60, 256.0
    given = {"clip": 0.51 * apart * 8, "sigma": 1000.0}
    for side in (1, -1):
        rows = noisy_rows(np.full((1, 64), center + side * apart), b"key", center=np.asarray(center), **given)
        near = noisy_rows(np.full((1, 64), side * apart), b"key", center=np.asarray(0.0), **given)
        assert np.array_equal(rows, center + near)


@pytest.mark.parametrize(
    "given",
    [
        {"center": np.zeros((1, 80, 4))},
        {"center": np.zeros((80, 4))},
        {"center": np.zeros(3)},
        {"sigma": 0.0},
        {"sigma": np.nan},
        {"sigma": np.inf},
        {"clip": np.nan},
        {"clip": 0.0},
    ],
)
def test_a_site_refuses_to_show_rows_that_no_noise_covers(given):
    X, labels = table()
    fed = fs.federate(X, sites=labels).apply(noisy_rows, **{"center": 0.0, "clip": 1.0, "sigma": 1.0, **given})
    with pytest.raises(QuorumError):
        fed.ask(local_look)


def test_new_rows_of_a_federation_are_noisy_too(tmp_path):
    fed = fs.LocalFederation(sites_with_ledgers(tmp_path))
    model = landmarks(DATA, fed)
    exact = model.transform(table()[0][table()[1] == 0])
    seen = model.transform(fed).ask(local_look)["0"]["X"]
    assert np.abs(seen - exact).max() > 0.1
    assert {len(site.ledger.charges) for site in sites_with_ledgers(tmp_path)} == {1}


def test_one_row_moves_no_other_through_hostile_transforms():
    """Residuals that cancel were computed again together: with one more of them, another row lost its last bits.

    A hostile center and a small ball made all of a noisy row of a last bit, and a shift and a scale all of a sum.
    """
    axes = np.array([[1e8, 3e7, -2e7, 0.0], [3e7, 1e8, 5e7, 0.0]])
    parameters = {"mean": np.zeros(4), "scale": None, "components": axes, "inside": None, "outside": 1.0}
    lost = np.array([0.3, 1.7, -0.9, 0.0])
    for draw in range(60):
        rows = np.random.default_rng(draw).normal(size=(2, 4)) * [1, 1, 1, 0]
        seen, summed = [], []
        for other in (lost, np.array([0.0, 0.0, 0.0, 1.0])):
            view = Transform.of(subspace_score, parameters).applied_to(fs.Site("a", np.array([rows[0], other])))
            seen.append(_rows_before_noise(view)[0, 0])
            summed.append(next(rows_and_norms(view, kind=np.float64))[0][0, 0])
        assert seen[0] == seen[1]
        assert summed[0] == summed[1]


def _rows_before_noise(site):
    """Return what the noise is added to."""
    given = {"center": np.asarray(0.0), "clip": 1e100, "sigma": 1e95}
    found = []

    def shown(X, key, **parameters):
        found.append(np.array(X))
        return X

    transform = Transform.of(noisy_rows, given)
    with pytest.MonkeyPatch.context() as patch:
        own = installed_transforms()["privacy.noisy_rows"]
        patch.setitem(_transforms.by_id, own.id, replace(own, function=shown))
        transform.applied_to(site, SimulatedLedger("a", 0), "r")
    return found[0]
