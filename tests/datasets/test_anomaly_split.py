"""Training and test parts for anomaly detection."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedspan.datasets import Bunch, anomaly_split
from fedspan.errors import InputError


def table(target: list[int]) -> Bunch:
    """Make a table whose only column is the row's number."""
    rows = np.arange(len(target), dtype=float)[:, None]
    return Bunch(name="Toy", data=rows, target=np.array(target), feature_names=np.array(["row"]))


MIXED = table([0, 1, 0, 0, 2, 0, 0, 1, 0])  # normal rows 0, 2, 3, 5, 6, 8; attacks 1, 4, 7


def test_first_trains_on_the_first_and_tests_on_the_last() -> None:
    split = anomaly_split(MIXED, 3, test_normals=2, order="first")
    assert split.X_train.ravel().tolist() == [0, 2, 3]
    assert split.X_test.ravel().tolist() == [6, 8, 1, 4, 7]
    assert split.y_test.tolist() == [0, 0, 1, 1, 1]


def test_last_trains_on_the_last_and_tests_on_the_first() -> None:
    split = anomaly_split(MIXED, 3, test_normals=2, order="last")
    assert split.X_train.ravel().tolist() == [5, 6, 8]
    assert split.X_test.ravel().tolist() == [0, 2, 1, 4, 7]


def test_the_name_says_which_split_it_is() -> None:
    name = anomaly_split(MIXED, 3, test_normals=2, order="last").name
    assert name == "Toy: 3 normal rows to train (last), 2 normal rows and 3 attacks to test"


@given(st.data(), st.integers(0, 2**32))
def test_laws(data: st.DataObject, seed: int) -> None:
    target = data.draw(st.permutations([0] * 8 + [1, 1, 2]))
    made = table(target)
    before = made.data.copy()
    train = data.draw(st.integers(1, 7))
    test = data.draw(st.none() | st.integers(1, 8 - train))
    attacks = data.draw(st.none() | st.integers(1, 3))
    order = data.draw(st.sampled_from(["random", "first", "last"]))
    arguments = {"test_normals": test, "attacks": attacks, "order": order, "seed": seed}
    split = anomaly_split(made, train, **arguments)
    n_test, n_attacks = test or 8 - train, attacks or 3
    assert split.X_train.shape == (train, 1)
    assert split.X_test.shape == (n_test + n_attacks, 1)
    assert split.y_test.tolist() == [0] * n_test + [1] * n_attacks
    used = np.concatenate([split.train_rows, split.test_rows])
    assert len(set(used.tolist())) == len(used)
    assert (made.target[split.train_rows] == 0).all()
    assert np.array_equal(made.target[split.test_rows] != 0, split.y_test)
    assert np.array_equal(made.data[split.train_rows], split.X_train)
    assert np.array_equal(made.data[split.test_rows], split.X_test)
    again = anomaly_split(made, train, **arguments)
    assert np.array_equal(split.X_train, again.X_train)
    assert np.array_equal(split.X_test, again.X_test)
    assert np.array_equal(made.data, before)


def test_the_seed_decides_normals_and_attacks_apart() -> None:
    big = table([0] * 200 + [1] * 200)
    one, two = (anomaly_split(big, 100, attacks=50, seed=seed) for seed in (1, 2))
    assert not np.array_equal(one.train_rows, two.train_rows)
    assert not np.array_equal(one.test_rows[100:], two.test_rows[100:])
    ordered = anomaly_split(big, 100, attacks=50, order="first", seed=1)
    assert np.array_equal(one.test_rows[100:], ordered.test_rows[100:])
    assert 20 < (one.train_rows < 100).sum() < 80  # the shuffle mixes: 50 +- 5 expected


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"train_normals": 6}, "train_normals=6 must be a whole number between 1 and 5, since one normal row"),
        ({"train_normals": 0}, "train_normals=0 must"),
        ({"train_normals": 4, "test_normals": 3}, "test_normals=3 must be a whole number between 1 and 2"),
        ({"train_normals": 4, "attacks": 4}, "attacks=4 must be a whole number between 1 and 3"),
        ({"train_normals": 4, "order": "shuffled"}, "order='shuffled' must be one of 'random', 'first', 'last'"),
        ({"train_normals": 4, "seed": None}, "seed=None must"),
    ],
)
def test_refusals(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        anomaly_split(MIXED, **arguments)


@pytest.mark.parametrize("target", [[0, 0, 0], [0, 1, 1], [1, 1]])
def test_a_table_without_normals_or_attacks_is_refused(target: list[int]) -> None:
    with pytest.raises(InputError, match="a split needs at least two normal rows and one attack"):
        anomaly_split(table(target), 1)
