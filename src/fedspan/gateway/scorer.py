"""Score and explain rows by an exported detector: numpy alone, and nothing else of fedspan.

The file is numpy's ``.npz`` of plain arrays: those of the members that the detector has, a threshold, and the names of
the columns. Members are what `FedAnomalyDetector` joins; other detectors have one. Rows of a pipeline with an encoder
are encoded before, by `cell_encoder.py`.
"""

from __future__ import annotations

import math
import os
import zipfile
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

FORMAT = 2
_NEAREST = 2
_CANCELLED = 1e-5
#: A squared distance above this part of the row's and the centre's squares has lost at most three digits.
_KEPT = 1e-3
#: Bytes that any file may unfold to; and what a larger one may unfold to, in units of its size.
_FREE_BYTES, _MOST_TIMES = 2**26, 50
#: The largest depth of trees, and that for whose leaves one byte is enough.
_DEEPEST, _BYTE = 14, 8


def read_arrays(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Return the arrays of a file by name. A `ValueError` refuses another file, or one that unfolds too far."""
    try:
        with zipfile.ZipFile(path) as archive:
            unfolded = sum(member.file_size for member in archive.infolist())
        if unfolded > max(_FREE_BYTES, _MOST_TIMES * os.path.getsize(path)):
            raise ValueError(f"its parts unfold to {unfolded:,} bytes, more than {_MOST_TIMES} times its size")
        with np.load(path, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
    except (OSError, ValueError):
        raise
    except Exception as error:  # whatever archives, headers and arrays raise that are none
        raise ValueError(f"it can't be read ({type(error).__name__})") from None
    if not all(isinstance(array, np.ndarray) for array in found.values()):
        raise ValueError("it holds other things than arrays")
    return found


@dataclass
class Seen:
    """What one pass over rows finds.

    Attributes
    ----------
    members : list of array (n,)
        The scores by each member.
    standard : array (n, d) or None
        The standardised rows.
    nearest : array (n,) or None
        The number of the nearest centre.
    leaves : array (n_trees, n) or None
        The place of the leaf in each tree, among the leaves of all.
    """

    members: list[Array]
    standard: Array | None = None
    nearest: Array | None = None
    leaves: Array | None = None


class Scorer:
    """An exported detector: ``score(X)`` of rows (n, d), its ``threshold``, and ``shares(X)`` of the columns."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        if "format" not in arrays or int(arrays["format"]) != FORMAT:
            raise ValueError(f"the file is not a detector for gateways of format {FORMAT}")
        self.arrays = dict(arrays)
        self.threshold = float(arrays["threshold"])
        self.columns = [str(name) for name in arrays["columns"]]
        names = ("mean", "scale", "root", "components", "inside", "centers", "features", "ranks")
        given: list[Any] = [self.arrays.get(name) for name in names]  # None where there is no such member
        self._mean, self._scale, self._root, self._components, self._inside = given[:5]
        self._centers, self._features, self._ranks = given[5:]
        affine: list[Any] = [self.arrays.get(name) for name in ("shift", "unit")]  # of scalers before the detector
        self._shift, self._unit = affine
        if self._root is not None:
            self._factor = np.ascontiguousarray(self._over_scale(self._root).T)
        if self._components is not None:
            self._outside = float(self.arrays["outside"])
        if self._centers is not None:
            self._cross = np.ascontiguousarray(-2.0 * self._centers.T)
            self._lengths = np.einsum("ij,ij->i", self._centers, self._centers)
        if self._features is not None:
            self._prepare_trees()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Scorer:
        """Read what ``detector.export("detector.npz")`` wrote."""
        return cls(read_arrays(path))

    def scaled(self, X: Array) -> Array:
        """Return rows (n, d) as the scalers before the detector show them."""
        return X if self._shift is None else (np.asarray(X, dtype=np.float64) - self._shift) / self._unit

    def score(self, X: Array) -> Array:
        """Return the anomaly score (n,) of each row; infinite where numbers overflow."""
        X = self.scaled(X)
        with np.errstate(over="ignore", invalid="ignore"):
            return self.joined(self.seen(X).members)

    def score_one(self, x: Array) -> float:
        """Return the anomaly score of one row (d,): as `score`, with few calls of numpy."""
        row = np.asarray(x, dtype=np.float64)
        if self._shift is not None:
            row = (row - self._shift) / self._unit
        members = self._one_row(row)
        found = members[0] if self._ranks is None else sum(map(self._one_rank, range(len(members)), members))
        return found if math.isfinite(found) else float(self.score(np.asarray(x)[None])[0])

    def _one_row(self, x: Array) -> list[float]:
        """Return the score of one scaled row (d,) by each member."""
        found = []
        D = None if self._mean is None else x - self._mean
        whitened = None
        if self._centers is not None and D is not None:
            k, product = len(self._centers), D @ self._of_one
            whitened = product[k:]
            found.append(self._one_distance(self._over_scale(D), product[:k]))
        if self._features is not None:
            leaf = (x.take(self._features) >= self._cuts).dot(self._bits)
            depth = float(self._flat_depths.take(leaf + self._first_leaf).sum()) / len(self._cuts)
            found.append(2.0 ** (-depth / self._usual))
        if self._root is not None and D is not None:
            w = D @ self._factor if whitened is None else whitened
            found.append(float(w @ w))
        elif self._components is not None and D is not None:
            found.append(float(self._by_subspace(self._over_scale(D)[None])[0]))
        return found

    @cached_property
    def _of_one(self) -> Array:
        """What one row is multiplied with, for its distances and the whitened row."""
        parts = [self._over_scale(self._cross.T).T] + ([] if self._root is None else [self._factor])
        return np.concatenate(parts, axis=1)

    @cached_property
    def _tables(self) -> list[tuple[Any, ...]]:
        """Of each member the edges, ranks, high quantile and width, as plain numbers."""
        return list(zip(*(self.arrays[name].tolist() for name in ("edges", "ranks", "high", "width")), strict=True))

    def _one_distance(self, z: Array, apart: Array) -> float:
        """Return the mean distance of one standardised row to its nearest centres.

        `apart` are its products with them, times -2.
        """
        apart += self._lengths
        square, most, total = float(z @ z), min(_NEAREST, len(self._centers)), 0.0
        for _ in range(most):
            near = apart.argmin()
            squared = square + float(apart[near])
            if not squared > _KEPT * (square + self._lengths[near]):  # the difference of two large numbers
                d = z - self._centers[near]
                squared = d @ d
            total += math.sqrt(squared)
            apart[near] = math.inf
        return total / most

    def _one_rank(self, j: int, score: float) -> float:
        """Return the rank of member j's score, as `_rank_parts` does."""
        edges, ranks, high, width = self._tables[j]
        i = bisect_right(edges, score)
        if i == 0 or i == len(edges):
            rank = ranks[0] if i == 0 else ranks[-1]
        else:
            rank = ranks[i - 1] + (score - edges[i - 1]) * (ranks[i] - ranks[i - 1]) / (edges[i] - edges[i - 1])
        return float(rank + math.log1p((score - high) / width) if score > high else rank)

    def seen(self, X: Array, leaves: Array | None = None) -> Seen:
        """Return what one pass over scaled rows (n, d) finds; `leaves` are theirs, if they are known."""
        found = Seen([])
        if self._mean is not None:
            found.standard = self._standard(X)
        if self._centers is not None and found.standard is not None:
            near, distances = self._distances(found.standard)
            found.nearest = near[np.arange(len(X)), distances.argmin(axis=1)]
            found.members.append(distances.mean(axis=1))
        if self._features is not None:
            found.leaves = self.leaves(X) if leaves is None else leaves
            # Mode "clip" checks no place one by one; all are within the array.
            depths = np.add.reduce(np.take(self._flat_depths, found.leaves, mode="clip"), axis=0) / len(found.leaves)
            found.members.append(np.exp2(-depths / self._usual))
        if self._root is not None and found.standard is not None:
            W = found.standard @ self._root.T
            found.members.append(np.einsum("ij,ij->i", W, W))
        elif self._components is not None and found.standard is not None:
            found.members.append(self._by_subspace(found.standard))
        return found

    def joined(self, members: list[Array]) -> Array:
        """Return the anomaly score (n,) of rows with these scores by each member."""
        found = members[0] if self._ranks is None else self._rank_parts(members).sum(axis=0)
        return np.where(np.isnan(found), np.inf, found)

    def shares(self, X: Array) -> Array:
        """Return the share (n, d) of each column in the score of each row."""
        X, found = self.scaled(X), []
        Z = None if self._mean is None else np.clip(self._standard(X), -1e150, 1e150)
        if self._centers is not None and Z is not None:
            near, distances = self._distances(Z)
            parts = np.square(Z[:, None, :] - self._centers[near]) / np.where(distances > 0, distances, 1.0)[:, :, None]
            found.append(parts.sum(axis=1))
        if self._features is not None:
            found.append(self._isolation_parts(X))
        if self._root is not None and Z is not None:
            W = Z @ self._root
            found.append(np.square(W / np.maximum(np.abs(W).max(axis=1, keepdims=True), 1e-300)))
        elif self._components is not None and Z is not None:
            T = Z @ self._components.T
            W = np.sqrt(self._outside) * (Z - T @ self._components)
            if self._inside is not None:
                W += (T * np.sqrt(self._inside)) @ self._components
            found.append(np.square(W / np.maximum(np.abs(W).max(axis=1, keepdims=True), 1e-300)))
        found = [_normed(parts) for parts in found]
        if self._ranks is None:
            return np.asarray(found[0])
        weights = self._rank_parts(self.seen(X).members)
        return _normed(sum(weight[:, None] * parts for weight, parts in zip(weights, found, strict=True)))

    def top_features(self, X: Array, count: int = 3) -> list[list[list[Any]]]:
        """Return for each row the columns with the largest shares, as name and share."""
        shares = self.shares(X)
        order = np.argsort(-shares, axis=1, kind="stable")[:, :count]
        pairs = [zip(row, shares[i, row], strict=True) for i, row in enumerate(order)]
        return [[[self.columns[j], round(float(share), 4)] for j, share in pair] for pair in pairs]

    def leaves(self, X: Array) -> Array:
        """Return the place (n_trees, n), among the leaves of all trees, of that which each scaled row reaches."""
        found: Array = leaf_numbers(X, self._features, self._cuts) + self._first_leaf[:, None]
        return found

    def _over_scale(self, rows: Array) -> Array:
        return rows if self._scale is None else rows / self._scale

    def _standard(self, X: Array) -> Array:
        return self._over_scale(np.asarray(X, dtype=np.float64) - self._mean)

    def _distances(self, Z: Array) -> tuple[Array, Array]:
        """Return the nearest centres (n, 2), and the distances to them."""
        most, rows, squares = min(_NEAREST, len(self._centers)), np.arange(len(Z)), np.einsum("ij,ij->i", Z, Z)
        apart = Z @ self._cross
        apart += self._lengths
        near, found = np.empty((len(Z), most), dtype=np.intp), np.empty((len(Z), most))
        for i in range(most):  # faster than a partition
            near[:, i] = apart.argmin(axis=1)
            found[:, i] = squares + apart[rows, near[:, i]]
            apart[rows, near[:, i]] = np.inf
        lost = ~(found > _KEPT * (squares[:, None] + self._lengths[near]))  # differences of two large numbers
        some, place = np.nonzero(lost)
        D = Z[some] - self._centers[near[some, place]]
        found[some, place] = np.einsum("ij,ij->i", D, D)
        return near, np.sqrt(found)

    def _by_subspace(self, Z: Array) -> Array:
        T = Z @ self._components.T
        whole = np.einsum("ij,ij->i", Z, Z)
        residual = whole - np.einsum("ij,ij->i", T, T)
        lost = ~(residual > _CANCELLED * whole)
        if lost.any():
            R = Z[lost] - T[lost] @ self._components
            residual[lost] = np.einsum("ij,ij->i", R, R)
        inside = 0.0 if self._inside is None else np.square(T) @ self._inside
        return np.asarray(self._outside * residual + inside)

    def _prepare_trees(self) -> None:
        self._cuts, depths = self.arrays["cuts"], self.arrays["depths"]
        trees, depth = self._cuts.shape
        fits = self._features.shape == self._cuts.shape and 0 < depth <= _DEEPEST and depths.shape == (trees, 2**depth)
        whole, d = self._features.dtype.kind in "iu", len(self.columns)
        if not fits or not whole or self._features.min() < 0 or self._features.max() >= d:
            raise ValueError("the trees of the file cut columns that it does not have: export the detector again")
        self._features = self._features.astype(np.intp)
        self._bits = 2 ** np.arange(depth)[::-1]
        # Of few bytes: rows times trees places are made of it.
        self._first_leaf = (np.arange(trees) * 2**depth).astype(np.min_scalar_type(trees * 2**depth))
        self._flat_depths, self._usual = depths.ravel(), float(self.arrays["usual"])

    def _isolation_parts(self, X: Array) -> Array:
        gains, trees = self.arrays["gains"], np.arange(len(self._cuts))[:, None]
        place = self.leaves(X)
        weight = 1.0 / np.maximum(self._flat_depths[place], 1.0)
        node, parts = place - self._first_leaf[:, None] + 2 ** len(self._bits) - 1, np.zeros((X.shape[1], len(X)))
        for feature in self._features.T[::-1]:
            np.add.at(parts, feature, weight * gains[trees, node])
            node = (node - 1) // 2
        return parts.T

    def _rank_parts(self, members: list[Array]) -> Array:
        edges, ranks = self.arrays["edges"], self.arrays["ranks"]
        high, width = self.arrays["high"], self.arrays["width"]
        return np.stack(
            [
                np.interp(own, edges[j], ranks[j]) + np.log1p(np.maximum(own - high[j], 0.0) / width[j])
                for j, own in enumerate(members)
            ]
        )


def leaf_numbers(X: Array, features: Array, cuts: Array) -> Array:
    """Return the number (n_trees, n) of the leaf that each row reaches in each tree: the bits of its comparisons."""
    columns = np.ascontiguousarray(np.asarray(X).T, dtype=np.float64)
    found = np.zeros((len(cuts), columns.shape[1]), dtype=np.uint8 if cuts.shape[1] <= _BYTE else np.uint16)
    for feature, cut in zip(features.T, cuts.T, strict=True):
        found += found  # twice itself: a sum takes less time than a shift
        found += columns[feature] >= cut[:, None]
    return found


def _normed(parts: Array) -> Array:
    total = parts.sum(axis=1, keepdims=True)
    return np.asarray(parts / np.where(total > 0, total, 1.0))
