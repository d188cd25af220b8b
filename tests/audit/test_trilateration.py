"""Rows from distances: by hand, laws, and distances that were rounded or noised."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedspan.audit import relative_error, trilaterate
from fedspan.errors import InputError


def distances(X, Y):
    return np.linalg.norm(X[:, None] - Y, axis=2)


def low_rank_rows(rng, n=200, m=40, decay=0.8):
    """Rows whose spread falls from axis to axis, in a turned frame, and landmarks of the same kind."""
    turn = np.linalg.qr(rng.normal(size=(m, m)))[0]
    spread = decay ** np.arange(m)
    return (rng.normal(size=(n, m)) * spread) @ turn, (rng.normal(size=(30, m)) * spread) @ turn


def test_three_landmarks_fix_a_point_of_the_plane():
    Y = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    found = trilaterate(np.array([[5.0, np.sqrt(17.0), 3.0]]), Y)  # of (3, 4)
    np.testing.assert_allclose(found.rows, [[3.0, 4.0]], atol=1e-12)
    assert found.determined
    assert (found.directions, found.n_landmarks, found.n_columns) == (2, 3, 2)
    assert found.outside < 1e-6


def test_two_landmarks_of_the_plane_give_the_projection_on_their_line():
    Y = np.array([[0.0, 0.0], [2.0, 0.0]])
    X = np.array([[3.0, 4.0], [1.0, -2.0]])
    found = trilaterate(distances(X, Y), Y)
    np.testing.assert_allclose(found.rows, [[3.0, 0.0], [1.0, 0.0]], atol=1e-12)
    assert not found.determined
    # Squared distances to (1, 0): 20 and 4; those of the rebuilt rows: 4 and 0.
    assert found.outside == pytest.approx(np.sqrt(20 / 24))


@given(st.integers(0, 1000), st.integers(2, 12), st.integers(1, 6))
def test_the_rebuilt_row_is_the_projection_on_the_landmarks_span(seed, n_y, m):
    rng = np.random.default_rng(seed)
    X, Y = rng.normal(size=(7, m)) + 3, rng.normal(size=(n_y, m))
    found = trilaterate(distances(X, Y), Y, cut=0)
    V = np.linalg.svd(Y - Y.mean(axis=0))[2][: min(n_y - 1, m)]
    np.testing.assert_allclose(found.rows, Y.mean(axis=0) + (X - Y.mean(axis=0)) @ V.T @ V, atol=1e-6)
    missed = np.linalg.norm(found.rows - X) / np.linalg.norm(X - Y.mean(axis=0))
    assert found.outside == pytest.approx(missed, abs=1e-5)  # known without X


def test_turning_and_shifting_everything_turns_what_is_rebuilt():
    rng = np.random.default_rng(0)
    X, Y = low_rank_rows(rng)
    B = distances(X, Y) + 0.01 * rng.normal(size=(len(X), len(Y)))
    turn, shift = np.linalg.qr(rng.normal(size=(40, 40)))[0], rng.normal(size=40)
    before, after = trilaterate(B, Y), trilaterate(B, Y @ turn + shift)
    assert after.cut == before.cut > 0
    np.testing.assert_allclose(after.rows, before.rows @ turn + shift, atol=1e-8)


def test_more_landmarks_never_rebuild_worse_and_two_runs_add_up():
    rng = np.random.default_rng(1)
    X, Y = low_rank_rows(rng)
    B = distances(X, Y)
    errors = [relative_error(trilaterate(B[:, :k], Y[:k], cut=0).rows, X) for k in (2, 5, 10, 20, 30)]
    assert errors == sorted(errors, reverse=True)
    halves = [relative_error(trilaterate(B[:, part], Y[part]).rows, X) for part in (slice(15), slice(15, 30))]
    assert relative_error(trilaterate(B, Y).rows, X) < 0.5 * min(halves)


def rounded(B, bits):
    low, high = B.min(), B.max()
    steps = 2**bits - 1
    return np.rint((B - low) / (high - low) * steps) / steps * (high - low) + low


@pytest.mark.parametrize(
    "spoil",
    [
        lambda B, rng: rounded(B, 8),
        lambda B, rng: rounded(B, 4),
        lambda B, rng: B + 0.05 * rng.normal(size=B.shape),
    ],
    ids=["8 bits", "4 bits", "noise"],
)
def test_the_cut_found_without_the_truth_beats_plain_inversion_and_is_near_the_best(spoil):
    rng = np.random.default_rng(2)
    X, Y = low_rank_rows(rng)
    B = np.abs(spoil(distances(X, Y), rng))
    plain = relative_error(trilaterate(B, Y, cut=0).rows, X)
    found = trilaterate(B, Y)
    best = min(relative_error(trilaterate(B, Y, cut=cut).rows, X) for cut in np.geomspace(1e-6, 1, 60))
    error = relative_error(found.rows, X)
    assert found.cut > 0
    assert error < 0.5 * plain
    assert error < 1.15 * best
    assert found.effective < found.directions


def test_exact_distances_are_not_damped():
    X, Y = low_rank_rows(np.random.default_rng(3), m=20)  # 30 landmarks for 20 columns
    assert relative_error(trilaterate(distances(X, Y), Y).rows, X) < 1e-9
    assert relative_error(trilaterate(distances(X, Y).astype(np.float32), Y).rows, X) < 1e-3


def test_columns_in_which_landmarks_do_not_extend_are_not_divided_by():
    rng = np.random.default_rng(4)
    Y = np.column_stack([rng.normal(size=(30, 2)), np.full(30, 7.0)])
    X = np.column_stack([rng.normal(size=(9, 2)), np.full(9, 7.0)])
    found = trilaterate(distances(X, Y), Y)
    assert found.directions == 2
    np.testing.assert_allclose(found.rows, X, atol=1e-9)
    same = trilaterate(np.ones((3, 4)), np.ones((4, 2)))  # landmarks that are all one point reveal nothing
    assert same.directions == 0
    np.testing.assert_allclose(same.rows, np.ones((3, 2)))


def test_refusals_hold_no_numbers_of_rows():
    Y = np.arange(6.0).reshape(3, 2)
    cases = [
        (np.full((2, 4), 0.123), Y, "must have one number for each of the 3 landmarks"),
        (np.array([[0.123, np.nan, 1.0]]), Y, "finite"),
        (np.ones((2, 1)), Y[:1], "at least two landmarks"),
    ]
    for B, landmarks, sentence in cases:
        with pytest.raises(InputError, match=sentence) as error:
            trilaterate(B, landmarks)
        assert "0.123" not in str(error.value)
    for cut in (-0.1, 2, "some", None):
        with pytest.raises(InputError, match="cut="):
            trilaterate(np.ones((2, 3)), Y, cut=cut)
