"""Rows with noise: the same for every step, drawn in to the ball, and never without their noise."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.errors import QuorumError
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
