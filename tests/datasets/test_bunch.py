"""The bunch: attributes, the description, and the small builder behind every loader."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
import sklearn.utils

import fedspan.datasets
from fedspan.datasets import Bunch, load_breast_cancer, load_digits
from fedspan.datasets.bunch import Source, dataset
from fedspan.errors import InputError

TOY = Source("Toy", "a publisher", "a page", "free.")


def toy(data: np.ndarray, target: np.ndarray, classes: tuple[str, ...] = ("no", "yes"), **extra: object) -> Bunch:
    names = np.array([f"c{i}" for i in range(data.shape[1])])
    return dataset(
        TOY,
        "About.",
        data=data,
        target=target,
        feature_names=names,
        target_names=np.array(classes),
        **extra,
    )


def test_a_bunch_is_scikit_learns() -> None:
    bunch = Bunch(a=1)
    assert isinstance(bunch, sklearn.utils.Bunch)
    assert bunch.a == bunch["a"] == 1


def test_the_description_holds_every_fact() -> None:
    data = np.array([[1.5, np.nan], [np.nan, -2.0], [0.0, 1000.0]], dtype=np.float32)
    made = toy(data, np.array([1, 0, 1], dtype=np.uint8), mouse=np.array(["m1", "m1", "m2"]))
    assert made.describe().splitlines() == [
        "Toy",
        "  rows x features: 3 x 2, float32",
        "  missing values:  2",
        "  values:          -2 to 1000",
        "  classes:         no (1), yes (2)",
        "  mouse:           (3,) <U2",
        "  source:          a publisher",
        "  terms:           free.",
    ]


def test_the_description_of_equal_classes_sites_and_integers() -> None:
    made = toy(np.array([[1], [2], [7]], dtype=np.uint8), np.arange(3), ("a", "b", "c"))
    made.sites = np.array(["x", "x", "y"])
    lines = made.describe().splitlines()
    assert "  classes:         3, with 1 rows each" in lines
    assert "  sites:           2, with 1 to 2 rows" in lines
    assert "  missing values:  none" in lines
    assert "  values:          1 to 7" in lines


def test_a_table_without_values_has_no_range() -> None:
    text = toy(np.full((2, 1), np.nan), np.array([0, 1])).describe()
    assert "missing values:  2" in text
    assert "values:          " not in text.replace("missing values:  ", "")


def test_a_class_without_rows_is_counted_as_zero() -> None:
    assert "no (2), yes (0)" in toy(np.eye(2), np.array([0, 0])).describe()


def test_a_bunch_without_a_table_lists_its_arrays() -> None:
    assert Bunch(X_train=np.eye(2)).describe().splitlines() == ["unnamed", "  X_train:         (2, 2) float64"]


def test_labels_become_signed() -> None:
    made = toy(np.eye(2), np.array([0, 1], dtype=np.uint8))
    assert made.target.dtype == np.int64
    assert (made.target - 1).min() == -1


@pytest.mark.parametrize("target", [[0, 2], [-1, 0]])
def test_labels_outside_the_classes_are_refused(target: list[int]) -> None:
    with pytest.raises(InputError, match=r"labels of Toy run from .* 2 classes are numbered from 0 to 1"):
        toy(np.eye(2), np.array(target))


@pytest.mark.parametrize("load", [load_digits, load_breast_cancer])
def test_the_bundled_sets_equal_scikit_learns(load: object) -> None:
    import sklearn.datasets

    name = load.__name__
    ours, theirs = load(), getattr(sklearn.datasets, name)()
    assert np.array_equal(ours.data, theirs.data)
    assert np.array_equal(ours.target, theirs.target)
    assert ours.feature_names.tolist() == list(theirs.feature_names)
    assert ours.target_names.tolist() == [str(label) for label in theirs.target_names]
    assert f"{theirs.data.shape[0]:,} rows x {theirs.data.shape[1]} columns" in ours.DESCR


def test_the_stated_traps_of_the_bundled_sets() -> None:
    digits, cancer = load_digits(), load_breast_cancer()
    assert (digits.data.max(axis=0) == 0).sum() == 3
    assert np.array_equal(digits.images.reshape(-1, 64), digits.data)
    scales = cancer.data.std(axis=0)
    assert scales.max() / scales.min() > 10_000
    assert cancer.target_names.tolist() == ["malignant", "benign"]


def test_importing_the_data_sets_is_light() -> None:
    """Only the bunch needs scikit-learn when the package is imported; nothing needs pandas."""
    folder = Path(fedspan.datasets.__file__).parent
    found = set()
    for path in folder.glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found |= {(path.stem, name) for name in names if name.split(".")[0] in {"sklearn", "pandas", "scipy"}}
    assert found == {("bunch", "sklearn.utils")}


def test_everything_exported_is_there() -> None:
    assert sorted(fedspan.datasets.__all__) == fedspan.datasets.__all__
    assert all(getattr(fedspan.datasets, name).__doc__ for name in fedspan.datasets.__all__)
