"""Bases and directions that are orthogonal to what honest sites agree on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedspan.attacks import (
    Orthogonal,
)

from .replies_by_hand import sent


def bases(rng: np.random.Generator, n: int, r: int, spread: float, complex_too: bool) -> dict[str, dict[str, Any]]:
    def gaussian(*shape: int) -> np.ndarray:
        return rng.normal(size=shape) + (1j * rng.normal(size=shape) if complex_too else 0)

    shared = gaussian(n, r)
    replies = {}
    for site in "abcd":
        own = np.linalg.qr(shared + spread * gaussian(n, r))[0]
        replies[site] = {"U": own @ np.linalg.qr(gaussian(r, r))[0]}  # each in a basis of its own
    return replies


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([(4, 2), (9, 3), (30, 1)]), st.booleans())
def test_orthogonal_is_orthonormal_and_avoids_the_honest_subspace(
    seed: int, shape: tuple[int, int], complex_too: bool
) -> None:
    n, r = shape
    replies = bases(np.random.default_rng(seed), n, r, 0.05, complex_too)
    found = sent(Orthogonal(3), replies, seed=seed)
    U = found["c"]["U"]
    assert np.array_equal(U, found["d"]["U"])  # they collude
    np.testing.assert_allclose(U.conj().T @ U, 9 * np.eye(r), atol=1e-11)
    mean = sum(reply["U"] @ reply["U"].conj().T for reply in replies.values()) / 4
    leading = np.linalg.eigh(mean)[1][:, -r:]
    assert np.abs(leading.conj().T @ U).max() < 1e-10


def test_orthogonal_draws_again_in_every_call_and_from_the_whole_complement() -> None:
    replies = bases(np.random.default_rng(1), 6, 2, 0.0, False)
    draws = [sent(Orthogonal(1), replies, seed=seed)["c"]["U"] for seed in range(200)]
    mean = sum(U @ U.T for U in draws) / 200
    complement = np.eye(6) - replies["a"]["U"] @ replies["a"]["U"].T
    np.testing.assert_allclose(mean, complement / 2, atol=0.12)  # r / (n - r) in every direction of it


@pytest.mark.parametrize("shape", [(5,), (2, 2), (2, 3), (2, 3, 2)])
def test_orthogonal_to_a_vector_is_a_direction_orthogonal_to_the_mean(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    replies = {site: {"x": rng.normal(size=shape)} for site in "abcd"}
    direction = sent(Orthogonal(7), replies)["d"]["x"]
    mean = sum(reply["x"] for reply in replies.values()) / 4
    assert np.linalg.norm(direction) == pytest.approx(7)
    assert abs(np.vdot(mean, direction)) < 1e-12
    other = sent(Orthogonal(7), replies, seed=1)["d"]["x"]
    assert not np.allclose(direction, other)


def test_orthogonal_to_a_complex_vector_is_drawn_from_all_complex_directions() -> None:
    replies = {site: {"x": np.array([1.0, 0.0, 0.0], dtype=complex)} for site in "abcd"}
    direction = sent(Orthogonal(1), replies)["c"]["x"]
    assert abs(direction[0]) < 1e-12
    assert min(abs(direction[1:].real).min(), abs(direction[1:].imag).min()) > 1e-3


def test_orthogonal_without_room_avoids_the_leading_directions() -> None:
    # n = 3, r = 2: one direction can be avoided, and the first axis is the one that all agree on.
    replies = {
        site: {"U": np.array([[2.0, 0.0], [0.0, 1.0], [0.0, 0.1 * i]])} for i, site in enumerate(("a", "b", "c", "d"))
    }
    U = sent(Orthogonal(1), replies)["c"]["U"]
    np.testing.assert_allclose(U.T @ U, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(U[0], 0, atol=1e-12)


def test_orthogonal_to_a_number_is_plus_or_minus_the_scale() -> None:
    drawn = [sent(Orthogonal(3), seed=seed)["c"]["loss"] for seed in range(30)]
    np.testing.assert_allclose(np.abs(drawn), 3)
    assert 5 < sum(x > 0 for x in drawn) < 25
