"""The rows that are mapped and clustered, and how they are split among sites."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan import datasets
from fedspan.errors import DataMissingError

Array = NDArray[Any]

#: Sites by default: one for each class of MNIST, as in the paper.
SITES = 10


@dataclass(frozen=True)
class Rows:
    """A table (n, m) with classes from 0, its number of landmarks, and the bounds of its values if there are any."""

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

    def sites(self, split: str, n_sites: int | None = None) -> Array:
        """Return a site for each row: at random (``"IID"``), or such that no two sites have a class in common."""
        if split == "IID":
            return datasets.split_iid(len(self.X), n_sites or SITES, seed=0)
        return datasets.split_by_label(self.y, n_sites)


def _fashion(n: int) -> Rows:
    try:
        return _drawn("Fashion-MNIST", datasets.load_fashion_mnist(part="all"), n, 500)
    except DataMissingError:
        return _drawn("Fashion-MNIST (10k file)", datasets.load_fashion_mnist(), n, 500)


def _drawn(name: str, made: Any, n: int, n_landmarks: int, images: bool = True) -> Rows:
    """Draw n rows; pixels become numbers from 0 to 1, other columns are standardised."""
    X = made.data if images else (made.data - made.data.mean(axis=0)) / made.data.std(axis=0)
    chosen = np.random.default_rng(0).permutation(len(X))[:n]
    y = np.unique(made.target, return_inverse=True)[1][chosen]
    rows = X[chosen] / np.float32(255) if images else X[chosen]
    return Rows(name, rows, y, n_landmarks, (0.0, 1.0) if images else None)


#: Up to n rows of each data set, at random; gaps of the mice's proteins are filled by means.
LOADERS: dict[str, Callable[[int], Rows]] = {
    "MNIST": lambda n: _drawn("MNIST", datasets.load_mnist(), n, 500),
    "Fashion-MNIST": _fashion,
    "COIL-20": lambda n: _drawn("COIL-20", datasets.load_coil20(), n, 300),
    "mice": lambda n: _drawn("mice protein", datasets.load_mice_protein(missing="mean"), n, 100, images=False),
}
