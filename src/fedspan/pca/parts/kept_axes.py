"""Principal axes of a stream of wide rows: those of the rows before stand for these rows.

A table that is too wide for all products of columns keeps k + p axes, each as long as the root of its scatter. Together
with the new rows they are rows of another table, whose axes are found by subspace iteration. Means, deviations and the
total variance are exact. What lay outside the k + p axes of the rows before is lost: nothing, if their rank is at most
k + p.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedspan.federation import Federation
from fedspan.federation.site.parameters import Matrix, Vector
from fedspan.pca.parts.principal_axes import PrincipalAxes
from fedspan.pca.subspace_iteration import subspace_iteration
from fedspan.sums.moments import Moments, deviations, moments_of
from fedspan.sums.row_moments import RowMoments
from fedspan.sums.row_transforms import standardize


@dataclass(frozen=True)
class KeptAxes:
    """What a model keeps of its rows: their moments by column, and `rows` (k + p, d) that stand for them.

    These are about `mean` and in units of `scale`.
    """

    moments: RowMoments
    rows: Matrix
    mean: Vector
    scale: Vector | None


def axes_with_new(
    new: RowMoments,
    before: KeptAxes | None,
    fed: Federation,
    *,
    factor: float,
    rank: int,
    center: bool,
    scale: bool,
    **settings: Any,
) -> tuple[KeptAxes, PrincipalAxes, dict[str, float]]:
    """Return what the model keeps from now on, the axes, and the weight of each site. Old rows count by `factor`.

    `settings` are those of `subspace_iteration`.
    """
    merged = new if before is None else RowMoments.merged([before.moments.scaled(factor), new])
    found = moments_of(merged)
    mean = found.mean if center else np.zeros(len(found.mean))
    units = deviations(found) if scale else None
    prepared = fed.apply(standardize, mean=mean if center else None, scale=units, double=True)
    memory = np.empty((0, len(mean))) if before is None else _moved(before, factor, mean, units)
    axes, weights = subspace_iteration(prepared, rank=rank, n_columns=len(mean), memory=memory, **settings)
    axes = replace(axes, total=_total(found, mean, units), n=merged.weight)
    rows = np.sqrt(axes.scatter)[:, None] * axes.components
    return KeptAxes(merged, rows, mean, units), axes, weights


def _moved(before: KeptAxes, factor: float, mean: Vector, scale: Vector | None) -> Matrix:
    """Return the rows that stand for those before, about another mean and in other units, times the root of `factor`.

    The scatter of n rows about a point other than their mean has one more part: n times the square of the distance.
    """
    rows = before.rows if before.scale is None else before.rows * before.scale
    shift = np.sqrt(before.moments.weight) * (before.mean - mean)
    rows = np.sqrt(factor) * np.concatenate([rows, shift[None]])
    return np.asarray(rows if scale is None else rows / scale)


def _total(found: Moments, mean: Vector, scale: Vector | None) -> float:
    squares = found.variance + (found.mean - mean) ** 2
    return float(found.weight * np.sum(squares if scale is None else squares / scale**2))
