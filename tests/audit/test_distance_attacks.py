"""Attacks on distances, with public rows of the same kind and without."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.audit import Received, audit, fill, reidentified, relative_error, trilaterate, unrotate
from fedspan.errors import InputError


@pytest.fixture(scope="module")
def rows():
    """Private and public rows of four lopsided clusters in twelve correlated columns, and landmarks."""
    rng = np.random.default_rng(0)
    centres, mix = 3 * rng.normal(size=(4, 12)), rng.normal(size=(12, 12)) * 0.7 ** np.arange(12)[:, None]
    X = centres[rng.integers(4, size=1200)] + rng.gamma(1.0, size=(1200, 12)) @ mix
    return X[:400], X[400:1100], X[1100:1106]


def test_public_rows_fill_what_few_landmarks_leave_open(rows):
    X, public, Y = rows
    found = trilaterate(np.linalg.norm(X[:, None] - Y, axis=2), Y)
    alone, filled = relative_error(found.rows, X), relative_error(fill(found, public), X)
    assert found.directions == 5
    assert filled < 0.8 * alone


def test_filled_rows_are_the_rows_where_distances_fix_them(rows):
    X, public, _ = rows
    Y = public[:30]
    found = trilaterate(np.linalg.norm(X[:, None] - Y, axis=2), Y)
    assert relative_error(fill(found, public), X) < 1e-6


def test_a_secret_rotation_is_undone(rows):
    X, public, _ = rows
    rng = np.random.default_rng(1)
    turn, shift = np.linalg.qr(rng.normal(size=(12, 12)))[0], 10 * rng.normal(size=12)
    turned = X @ turn + shift
    assert reidentified(turned, X) < 0.05
    found = unrotate(turned, public)
    assert reidentified(found, X) > 0.9
    assert relative_error(found, X) < 0.3
    # The attack uses inner products alone: another key changes nothing.
    np.testing.assert_allclose(unrotate(X, public), found, atol=1e-6)


def test_rows_of_another_kind_do_not_help(rows):
    X, public, _ = rows
    other = np.random.default_rng(2).normal(size=public.shape)
    assert reidentified(unrotate(X, other), X) < 0.2


@pytest.mark.parametrize("public", [np.ones((30, 3)), np.ones((4, 12)), np.full((30, 12), np.nan), np.ones(30)])
def test_public_rows_that_do_not_fit_are_refused(rows, public):
    X, _, Y = rows
    found = trilaterate(np.linalg.norm(X[:, None] - Y, axis=2), Y)
    with pytest.raises(InputError, match="public"):
        fill(found, public)


def test_a_list_of_candidates_recognises_rows_by_their_distances_to_few_landmarks(rows):
    """Also rows whose rebuilt part is nearest to that of others."""
    X, _, Y = rows
    few = np.linalg.norm(X[:, None] - Y[:3], axis=2)
    assert reidentified(trilaterate(few, Y[:3]).rows, X) < 0.8
    card = audit(Received("x", "y", landmarks=Y[:3], distances=few.astype(np.float32)), truth=X)
    assert card.entries[0].measures["reidentified"] > 0.99
    assert "recognised" in card.entries[0].verdict


def test_public_rows_and_single_sums_have_entries_of_their_own(table):
    X, sites = table
    model = fs.FedSpectralClustering(2, n_landmarks=4, rounds=5, random_state=0).fit(X, sites=sites)
    card = audit(model, truth=X, public=X[::-1] + 0.01)
    names = [entry.attack for entry in card.entries]
    assert names == [
        "trilateration",
        "trilateration, filled from public rows",
        "had the sites turned their rows by a secret rotation",
        "sums of single sites",
    ]
    means = np.stack([X[sites == name].mean(axis=0) for name in sites])
    np.testing.assert_allclose(card.entries[3].rebuilt, means)
    assert card.entries[3].measures["relative_error"] == pytest.approx(relative_error(means, X))
    assert "smallest site has 20 rows" in card.entries[3].verdict
    lonely = audit(Received("x", "y", ("a", "b"), np.array([0] + [1] * 59), None, None), truth=X)
    assert "A site of one row has no secret left" in lonely.entries[0].verdict
