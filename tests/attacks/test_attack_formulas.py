"""What each attack sends, computed by hand; and the parameters that are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws.attack_examples import CALL, honest_replies

from fedspan.attacks import (
    ALittleIsEnough,
    Alternating,
    InnerProduct,
    Mimic,
    NonFinite,
    Ones,
    Orthogonal,
    RandomNoise,
    Redrawn,
    ScaledReverse,
    SignFlip,
    WrongShape,
)
from fedspan.errors import InputError

#: Bad sites are c and d. The mean of all is (4, 4); of a and b it is (2, 1).
REPLIES = {
    "a": {"x": np.array([1.0, 1.0]), "loss": 1.0},
    "b": {"x": np.array([3.0, 1.0]), "loss": 3.0},
    "c": {"x": np.array([4.0, 6.0]), "loss": 5.0},
    "d": {"x": np.array([8.0, 8.0]), "loss": 7.0},
}


def sent(attack: Any, replies: Any = REPLIES, bad: tuple[str, ...] = ("c", "d"), seed: int = 0) -> Any:
    return attack(replies, bad, np.random.default_rng(seed), CALL)


@pytest.mark.parametrize(
    ("attack", "c", "d", "loss_c"),
    [
        (Ones(), [100, 100], [100, 100], 100),
        (Ones(-2), [-2, -2], [-2, -2], -2),
        (Alternating(), [10, -10], [10, -10], 10),
        (Alternating(0.5), [0.5, -0.5], [0.5, -0.5], 0.5),
        (SignFlip(), [-4, -6], [-8, -8], -5),
        (ScaledReverse(), [-40, -40], [-40, -40], -40),
        (ScaledReverse(0.5), [-2, -2], [-2, -2], -2),
        (ALittleIsEnough(), [0.5, 1], [0.5, 1], 0.5),
        (ALittleIsEnough(z=-1), [3, 1], [3, 1], 3),
        (InnerProduct(), [-0.2, -0.1], [-0.2, -0.1], -0.2),
        (InnerProduct(2), [-4, -2], [-4, -2], -4),
        (Mimic(), [1, 1], [1, 1], 1),
        (Mimic("b"), [3, 1], [3, 1], 3),
        (Mimic("d"), [1, 1], [1, 1], 1),  # is bad itself
        (Mimic("z"), [1, 1], [1, 1], 1),  # did not answer
    ],
    ids=repr,
)
def test_by_hand(attack: Any, c: list[float], d: list[float], loss_c: float) -> None:
    lies = sent(attack)
    np.testing.assert_allclose(lies["c"]["x"], c, rtol=1e-15)
    np.testing.assert_allclose(lies["d"]["x"], d, rtol=1e-15)
    assert lies["c"]["loss"] == pytest.approx(loss_c)


def test_the_chessboard_of_a_matrix_has_rank_one() -> None:
    board = sent(Alternating(), {"a": {"x": np.zeros((3, 4))}}, ("a",))["a"]["x"]
    assert board.tolist() == [[10, -10, 10, -10], [-10, 10, -10, 10], [10, -10, 10, -10]]
    assert np.linalg.matrix_rank(board) == 1
    cube = sent(Alternating(), {"a": {"x": np.zeros((2, 2, 2))}}, ("a",))["a"]["x"]
    assert cube[1, 1, 1] == cube[0, 0, 1] == -10
    assert cube[1, 1, 0] == cube[0, 0, 0] == 10


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
    lies = sent(Orthogonal(3), replies, seed=seed)
    U = lies["c"]["U"]
    assert np.array_equal(U, lies["d"]["U"])  # they collude
    np.testing.assert_allclose(U.conj().T @ U, 9 * np.eye(r), atol=1e-11)
    mean = sum(reply["U"] @ reply["U"].conj().T for reply in replies.values()) / 4
    leading = np.linalg.eigh(mean)[1][:, -r:]
    assert np.abs(leading.conj().T @ U).max() < 1e-10


def test_orthogonal_draws_anew_and_from_the_whole_complement() -> None:
    replies = bases(np.random.default_rng(1), 6, 2, 0.0, False)
    draws = [sent(Orthogonal(1), replies, seed=seed)["c"]["U"] for seed in range(200)]
    mean = sum(U @ U.T for U in draws) / 200
    complement = np.eye(6) - replies["a"]["U"] @ replies["a"]["U"].T
    np.testing.assert_allclose(mean, complement / 2, atol=0.12)  # r / (n - r) in every direction of it


@pytest.mark.parametrize("shape", [(5,), (2, 2), (2, 3), (2, 3, 2)])
def test_orthogonal_to_a_vector_is_a_direction_orthogonal_to_the_mean(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    replies = {site: {"x": rng.normal(size=shape)} for site in "abcd"}
    lie = sent(Orthogonal(7), replies)["d"]["x"]
    mean = sum(reply["x"] for reply in replies.values()) / 4
    assert np.linalg.norm(lie) == pytest.approx(7)
    assert abs(np.vdot(mean, lie)) < 1e-12
    other = sent(Orthogonal(7), replies, seed=1)["d"]["x"]
    assert not np.allclose(lie, other)


def test_orthogonal_to_a_complex_vector_is_drawn_from_all_complex_directions() -> None:
    replies = {site: {"x": np.array([1.0, 0.0, 0.0], dtype=complex)} for site in "abcd"}
    lie = sent(Orthogonal(1), replies)["c"]["x"]
    assert abs(lie[0]) < 1e-12
    assert min(abs(lie[1:].real).min(), abs(lie[1:].imag).min()) > 1e-3


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


def test_noise_has_its_scale_and_every_site_its_own() -> None:
    replies = {site: {"x": np.ones(4000), "y": np.ones(4000) * 1j} for site in "abcd"}
    lies = sent(RandomNoise(5), replies)
    for site in "cd":
        assert abs(lies[site]["x"].mean()) < 0.4
        assert lies[site]["x"].std() == pytest.approx(5, rel=0.05)
        assert lies[site]["y"].real.std() == pytest.approx(5, rel=0.05)
        assert lies[site]["y"].imag.std() == pytest.approx(5, rel=0.05)
    assert abs(np.corrcoef(lies["c"]["x"], lies["d"]["x"])[0, 1]) < 0.1


def test_mimic_copies_a_shape_too() -> None:
    replies = {"a": {"x": np.ones((2, 3))}, "b": {"x": np.zeros((5, 3))}}
    assert sent(Mimic(), replies, ("b",))["b"]["x"].shape == (2, 3)


def test_non_finite_values() -> None:
    assert np.isnan(sent(NonFinite())["c"]["x"]).all()
    assert np.isposinf(sent(NonFinite("inf"))["c"]["x"]).all()
    assert sent(NonFinite("inf"))["c"]["loss"] == float("inf")


def test_wrong_shapes() -> None:
    value = np.arange(6.0).reshape(3, 2)
    replies = {"a": {"x": value, "square": np.eye(2), "vector": np.arange(3.0), "empty": np.zeros((0, 2)), "n": 1.0}}
    dropped = sent(WrongShape(), replies, ("a",))["a"]
    np.testing.assert_array_equal(dropped["x"], value[:2])
    np.testing.assert_array_equal(dropped["vector"], [0, 1])
    assert dropped["empty"].shape == (0, 2, 1)
    assert dropped["n"].tolist() == [1.0]
    turned = sent(WrongShape("transpose"), replies, ("a",))["a"]
    np.testing.assert_array_equal(turned["x"], value.T)
    assert turned["square"].shape == (2, 2, 1)
    assert turned["vector"].shape == (3, 1)
    cube = sent(WrongShape("transpose"), {"a": {"x": np.zeros((2, 3, 4))}, "b": {"x": np.zeros((2, 3, 4))}}, ("a", "b"))
    assert cube["b"]["x"].shape == (4, 3, 2)


def test_redrawn_lets_every_bad_site_have_its_turn_and_the_others_stay_honest() -> None:
    replies = honest_replies()
    bad = ("a", "c", "d", "e")
    turns = [frozenset(sent(Redrawn(SignFlip(), 2), replies, bad, seed)) for seed in range(100)]
    assert all(len(turn) == 2 for turn in turns)
    assert len(set(turns)) == 6  # all pairs of four
    assert set(sent(Redrawn(SignFlip(), 9), replies, bad)) == set(bad)


def test_to_a_redrawn_attack_the_others_are_good_sites() -> None:
    drawn = sent(Redrawn(InnerProduct(1), 1), REPLIES, ("c", "d"))
    (site,) = drawn
    good = [REPLIES[name]["x"] for name in REPLIES if name != site]
    np.testing.assert_allclose(drawn[site]["x"], -np.mean(good, axis=0))


def test_single_precision_lies_are_computed_in_double() -> None:
    replies = {site: {"x": np.array([1e8 + 8 * i, 3e38], dtype=np.float32)} for i, site in enumerate("abcd")}
    lie = sent(ScaledReverse(1), replies)["c"]["x"]
    assert lie.dtype == np.float32
    assert lie[0] == -np.float32(100000012)
    assert lie[1] == -np.float32(3e38)  # the sum does not overflow
    assert np.isneginf(sent(ScaledReverse(10), replies)["c"]["x"][1])  # the lie does, and that is a lie too


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Ones(np.nan), "scale=nan must be a finite number"),
        (lambda: Orthogonal("3"), "scale='3' must be a finite number"),  # type: ignore[arg-type]
        (lambda: ScaledReverse(np.inf), "factor=inf must be"),
        (lambda: ALittleIsEnough(None), "z=None must be"),  # type: ignore[arg-type]
        (lambda: InnerProduct(True), "eps=True must be"),
        (lambda: NonFinite("none"), "value='none' must be 'nan' or 'inf'"),
        (lambda: WrongShape("bend"), "how='bend' must be 'drop' or 'transpose'"),
        (lambda: SignFlip(steps=[]), r"steps=\(\) must be one or more names, or None for all steps"),
        (lambda: SignFlip(keys=[""]), r"keys=\('',\) must be one or more names"),
        (lambda: SignFlip(keys=[3]), r"keys=\(3,\) must be"),  # type: ignore[list-item]
        (lambda: Redrawn(SignFlip(), 0), "count=0 must be a number of sites of at least 1"),
        (lambda: Redrawn(SignFlip(), 1.0), "count=1.0 must be"),  # type: ignore[arg-type]
    ],
)
def test_a_parameter_is_refused_when_the_attack_is_made(make: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()


def test_parameters_from_numpy_look_like_python_ones() -> None:
    assert repr(Orthogonal(np.float32(3))) == repr(Orthogonal(3)) == "Orthogonal(steps=None, keys=None, scale=3.0)"
    assert repr(Redrawn(SignFlip(), np.int64(2))) == "Redrawn(attack=SignFlip(steps=None, keys=None), count=2)"  # type: ignore[arg-type]
