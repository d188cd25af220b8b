"""The rows that are mapped and clustered, and which site has which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan import datasets
from fedspan.errors import DataMissingError

Array = NDArray[Any]

#: Sites where nothing else is said: one for each class of MNIST, as in the paper.
SITES = 10


@dataclass(frozen=True)
class Rows:
    """A table (n, m) with classes from 0, its number of landmarks, and the bounds of its values where there are any."""

    name: str
    X: Array
    y: NDArray[np.int64]
    n_landmarks: int
    bounds: tuple[float, float] | None = None

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.y.max()) + 1

    def with_landmarks(self, n_landmarks: int) -> Rows:
        """Return the same rows for another number of landmarks."""
        return replace(self, n_landmarks=n_landmarks)

    def iid(self, n_sites: int = SITES) -> Array:
        """Return a site for each row, at random."""
        return datasets.split_iid(len(self.X), n_sites, seed=0)

    def by_class(self, n_sites: int | None = None) -> Array:
        """Return a site for each row such that no two sites have a class in common: one class each, or a few."""
        return datasets.split_by_label(self.y, n_sites)


def mnist(n: int) -> Rows:
    """Return n rows of MNIST's training set, pixels from 0 to 1."""
    return _images("MNIST", datasets.load_mnist(), n, 500)


def fashion(n: int) -> Rows:
    """Return up to n rows of Fashion-MNIST, pixels from 0 to 1: of the test file where the others are missing."""
    try:
        return _images("Fashion-MNIST", datasets.load_fashion_mnist(part="all"), n, 500)
    except DataMissingError:
        return _images("Fashion-MNIST (10k file)", datasets.load_fashion_mnist(), n, 500)


def coil20(n: int = 1440) -> Rows:
    """Return the 20 objects of COIL-20 at 32 x 32 pixels, from 0 to 1."""
    return _images("COIL-20", datasets.load_coil20(), n, 300)


def mice(n: int = 1080) -> Rows:
    """Return the mice's protein expressions, gaps filled by means, standardised; eight classes."""
    data = datasets.load_mice_protein(missing="mean")
    X = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    return _shuffled("mice protein", X, data.target, n, 100, None)


LOADERS: dict[str, Callable[[int], Rows]] = {"MNIST": mnist, "Fashion-MNIST": fashion, "COIL-20": coil20, "mice": mice}


def _images(name: str, data: Any, n: int, n_landmarks: int) -> Rows:
    return _shuffled(name, data.data, data.target, n, n_landmarks, (0.0, 1.0))


def _shuffled(name: str, X: Array, target: Array, n: int, n_landmarks: int, bounds: tuple[float, float] | None) -> Rows:
    chosen = np.random.default_rng(0).permutation(len(X))[:n]
    rows = X[chosen] / np.float32(255) if bounds else X[chosen]
    return Rows(name, rows, np.unique(target, return_inverse=True)[1][chosen], n_landmarks, bounds)
