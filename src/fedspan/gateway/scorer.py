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
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

FORMAT = 1
_NEAREST = 2
_CANCELLED = 1e-5
#: A squared distance above this part of the row's and the centre's squares has lost at most three digits.
_KEPT = 1e-3
#: Bytes that any file may unfold to; and what a larger one may unfold to, in units of its size.
_FREE_BYTES, _MOST_TIMES = 2**26, 50
#: Trees whose code is compiled at once, and the most cuts of all trees for which it is.
_TREES, _MOST_CUTS = 25, 60_000
#: Sums the depths of some trees at one row.
Depths = Callable[[Sequence[float]], float]


def read_arrays(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Return the arrays of a file by name. A `ValueError` refuses what is no such file, or unfolds too far."""
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


class Scorer:
    """An exported detector: ``score(X)`` of rows (n, d), its ``threshold``, and ``shares(X)`` of the columns."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        if "format" not in arrays or int(arrays["format"]) != FORMAT:
            raise ValueError(f"the file is no detector for gateways of format {FORMAT}")
        self.arrays = dict(arrays)
        self._code: list[Depths] | None = None  # of the trees; made when one row is first scored
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
            # One product of a row is enough for its distances and the whitened row.
            parts = [self._over_scale(self._cross.T).T] + ([] if self._root is None else [self._factor])
            self._joined = np.concatenate(parts, axis=1)
        if self._features is not None:
            self._prepare_trees()
        if self._ranks is not None:
            ranked = (self.arrays[name].tolist() for name in ("edges", "ranks", "high", "width"))
            self._tables = list(zip(*ranked, strict=True))

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
            members = self.members(X)
            found = members[0] if self._ranks is None else self._rank_parts(members).sum(axis=0)
        return np.where(np.isnan(found), np.inf, found)

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
            k, product = len(self._centers), D @ self._joined
            whitened = product[k:]
            found.append(self._one_distance(self._over_scale(D), product[:k]))
        if self._features is not None:
            if self._code is None:
                self._code = _compiled(self._features, self.arrays["cuts"], self.arrays["depths"])
            if self._code:
                row = x.tolist()
                depth = sum([depths(row) for depths in self._code]) / len(self._first)
            else:
                depth = float(self._flat_depths[self._leaves(x[None])[0] + self._first_leaf].mean())
            found.append(2.0 ** (-depth / self._usual))
        if self._root is not None and D is not None:
            w = D @ self._factor if whitened is None else whitened
            found.append(float(w @ w))
        elif self._components is not None and D is not None:
            found.append(float(self._by_subspace(self._over_scale(D)[None])[0]))
        return found

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

    def members(self, X: Array) -> list[Array]:
        """Return the scores (n,) of each member, of scaled rows."""
        found = []
        Z = None if self._mean is None else self._standard(X)
        if self._centers is not None and Z is not None:
            found.append(self._distances(Z)[1].mean(axis=1))
        if self._features is not None:
            depths = self._flat_depths[self._leaves(X) + self._first_leaf].mean(axis=1)
            found.append(np.exp2(-depths / self._usual))
        if self._root is not None:
            W = (X - self._mean) @ self._factor
            found.append(np.einsum("ij,ij->i", W, W))
        elif self._components is not None and Z is not None:
            found.append(self._by_subspace(Z))
        return found

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
        weights = self._rank_parts(self.members(X))
        return _normed(sum(weight[:, None] * parts for weight, parts in zip(weights, found, strict=True)))

    def top_features(self, X: Array, count: int = 3) -> list[list[list[Any]]]:
        """Return for each row the columns with the largest shares, as name and share."""
        shares = self.shares(X)
        order = np.argsort(-shares, axis=1, kind="stable")[:, :count]
        pairs = [zip(row, shares[i, row], strict=True) for i, row in enumerate(order)]
        return [[[self.columns[j], round(float(share), 4)] for j, share in pair] for pair in pairs]

    def leaves(self, X: Array) -> Array:
        """Return the leaf (n, n_trees) that each scaled row reaches in each tree."""
        return self._leaves(X)

    def nearest(self, X: Array) -> Array:
        """Return the number (n,) of the centre nearest to each scaled row."""
        near, distances = self._distances(self._standard(X))
        return np.asarray(near[np.arange(len(X)), distances.argmin(axis=1)])

    def _over_scale(self, rows: Array) -> Array:
        return rows if self._scale is None else rows / self._scale

    def _standard(self, X: Array) -> Array:
        return self._over_scale(np.asarray(X, dtype=np.float64) - self._mean)

    def _distances(self, Z: Array) -> tuple[Array, Array]:
        """Return the nearest centres (n, 2), and the distances to them."""
        most, rows = min(_NEAREST, len(self._centers)), np.arange(len(Z))
        apart = Z @ self._cross
        apart += self._lengths
        near = np.empty((len(Z), most), dtype=np.intp)
        for i in range(most):  # faster than a partition
            near[:, i] = apart.argmin(axis=1)
            apart[rows, near[:, i]] = np.inf
        D = Z[:, None, :] - self._centers[near]
        return near, np.sqrt(np.einsum("ijk,ijk->ij", D, D))

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
        trees, inner = self.arrays["cuts"].shape
        if self._features.shape != (trees, inner) or not np.isin(self._features, np.arange(len(self.columns))).all():
            raise ValueError("the trees of the file cut columns that it does not have: export the detector again")
        self._levels = (inner + 1).bit_length() - 1
        self._first = np.arange(trees) * inner
        self._first_leaf = np.arange(trees) * (inner + 1)
        self._flat_features = self._features.ravel().astype(np.intp)
        self._flat_cuts = self.arrays["cuts"].ravel()
        self._flat_depths = self.arrays["depths"].ravel()
        self._inner, self._usual = inner, float(self.arrays["usual"])

    def _leaves(self, X: Array) -> Array:
        # np.take with mode="clip" checks no bounds one by one; all places are within them.
        rows, wide = np.arange(len(X))[:, None] * X.shape[1], np.ascontiguousarray(X, dtype=np.float64).ravel()
        node = np.zeros((len(X), len(self._first)), dtype=np.intp)
        at, feature = np.empty_like(node), np.empty_like(node)
        cut, value = np.empty(node.shape), np.empty(node.shape)
        for _ in range(self._levels):
            np.add(node, self._first, out=at)
            np.take(self._flat_features, at, out=feature, mode="clip")
            np.take(self._flat_cuts, at, out=cut, mode="clip")
            feature += rows
            np.take(wide, feature, out=value, mode="clip")
            node *= 2
            node += 1
            node += value >= cut
        node -= self._inner
        return node

    def _isolation_parts(self, X: Array) -> Array:
        gains, features, trees = self.arrays["gains"], self.arrays["features"], np.arange(len(self._first))
        leaf = self._leaves(X)
        weight = 1.0 / np.maximum(self._flat_depths[leaf + self._first_leaf], 1.0)
        node, parts, rows = leaf + self._inner, np.zeros(X.shape), np.arange(len(X))[:, None]
        while node.any():
            parent = (node - 1) // 2
            np.add.at(parts, (np.broadcast_to(rows, node.shape), features[trees, parent]), weight * gains[trees, node])
            node = parent
        return parts

    def _rank_parts(self, members: list[Array]) -> Array:
        edges, ranks = self.arrays["edges"], self.arrays["ranks"]
        high, width = self.arrays["high"], self.arrays["width"]
        return np.stack(
            [
                np.interp(own, edges[j], ranks[j]) + np.log1p(np.maximum(own - high[j], 0.0) / width[j])
                for j, own in enumerate(members)
            ]
        )


def _normed(parts: Array) -> Array:
    total = parts.sum(axis=1, keepdims=True)
    return np.asarray(parts / np.where(total > 0, total, 1.0))


def _compiled(features: Array, cuts: Array, depths: Array) -> list[Depths]:
    """Return functions that walk the trees, or none where the trees are large.

    A walk in numpy takes some calls for each level, of which a call takes longer than all comparisons of one row. The
    code holds numbers alone, each made here from a whole or real number: whatever the file holds, it is no code.
    """
    texts = [_expression(*tree) for tree in zip(features.tolist(), cuts.tolist(), depths.tolist(), strict=True)]
    if sum(text.count(">=") for text in texts) > _MOST_CUTS:
        return []
    columns = "".join(f"x{j}," for j in range(int(features.max()) + 1))
    found: list[Depths] = []
    for start in range(0, len(texts), _TREES):
        source = f"def depths(row):\n {columns}*_ = row\n return {'+'.join(texts[start : start + _TREES])}"
        names: dict[str, Any] = {"__builtins__": {}, "inf": math.inf, "nan": math.nan}
        exec(source, names)
        found.append(names["depths"])
    return found


def _expression(features: list[int], cuts: list[float], depths: list[float]) -> str:
    """Return the depth of a row ``x0, x1, ...`` in one tree, without cuts that make no difference."""
    nodes = [""] * len(cuts) + [repr(float(depth)) for depth in depths]
    for k in range(len(cuts) - 1, -1, -1):
        left, right = nodes[2 * k + 1], nodes[2 * k + 2]
        nodes[k] = left if left == right else f"({right} if x{int(features[k])}>={float(cuts[k])!r} else {left})"
    return nodes[0]
