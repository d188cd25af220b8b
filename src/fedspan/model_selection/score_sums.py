"""Scores from sums: sites compare what a model makes of their rows with their own targets, and send totals.

The sites see predictions, anomaly scores or likelihoods in the place of their rows (`Federation.apply`).
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Floats
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import OneOf, Vector

#: The area under an ROC curve is known to this error, unless equal scores decide it.
AREA_ERROR = 1e-4
_ROUNDS = 12
_PARTS = 1024


class Errors(NamedTuple):
    """Totals over held-out rows: their number, the errors, and the spread of the targets about their mean."""

    n: int
    squared: float
    absolute: float
    spread: float


class Verdicts(NamedTuple):
    """Counts of held-out rows by label and verdict of a detector."""

    outliers: int
    found: int
    normal: int
    flagged: int


@step("model_selection.target_sums", reveals="sums")
def local_targets(site: Site) -> dict[str, Any]:
    """Leaves the site: its number of rows, and the sum of their targets."""
    y = _targets(site)
    return {"n": len(y), "sum": float(y.sum())}


@step("model_selection.error_sums", reveals="sums")
def local_errors(site: Site, mean: float) -> dict[str, Any]:
    """Leaves the site: its number of rows, sums of absolute and squared errors, and squares of y about `mean`."""
    y, predicted = _targets(site), _values(site)
    error = y - predicted
    return {
        "n": len(y),
        "squared": float(error @ error),
        "absolute": float(np.abs(error).sum()),
        "spread": float(np.square(y - mean).sum()),
    }


def error_totals(fed: Federation) -> Errors:
    """Compare predictions, which the sites see in place of their rows, with the targets of the rows."""
    targets = fed.sum(local_targets)
    if not targets["n"]:
        raise InputError("no row is held out: there is no error to add up")
    total = fed.sum(local_errors, mean=targets["sum"] / targets["n"])
    return Errors(int(total["n"]), float(total["squared"]), float(total["absolute"]), float(total["spread"]))


@step("model_selection.hits", reveals="sums")
def local_hits(site: Site) -> dict[str, Any]:
    """Leaves the site: its number of rows, and of those whose prediction is their class."""
    y = _own_y(site)
    predicted = site.X[:, 0]
    same = predicted == y.astype(predicted.dtype) if y.dtype.kind != predicted.dtype.kind else predicted == y
    return {"n": len(y), "hits": int(np.count_nonzero(same))}


def hit_rate(fed: Federation) -> float:
    """Return the share of the rows whose prediction, which the sites see in place of the row, is their class."""
    total = fed.sum(local_hits)
    if not total["n"]:
        raise InputError("no row is held out: there is no prediction to compare")
    return float(total["hits"] / total["n"])


@step("model_selection.value_sums", reveals="sums")
def local_values(site: Site, of: Annotated[str, OneOf(("values", "least squares"))]) -> dict[str, Any]:
    """Leaves the site: its number of rows, and the sum of their values or of the squares of their least values."""
    X = np.asarray(site.X, dtype=np.float64)
    values = X[:, 0] if of == "values" else np.square(X.min(axis=1, initial=np.inf)) if len(X) else np.zeros(0)
    return {"n": len(X), "sum": float(values.sum())}


def value_totals(fed: Federation, of: str = "values") -> tuple[int, float]:
    """Return the number of rows, and the sum of what the sites see in place of them."""
    total = fed.sum(local_values, of=of)
    if not total["n"]:
        raise InputError("no row is held out: there is nothing to add up")
    return int(total["n"]), float(total["sum"])


@step("model_selection.label_counts", reveals="sums")
def local_labels(site: Site) -> dict[str, Any]:
    """Leaves the site: its numbers of rows, of those with a label of -1, and of those whose label is not 0 or 1."""
    y = _targets(site)
    minus = int(np.count_nonzero(y == -1))
    return {"n": len(y), "minus": minus, "other": int(np.count_nonzero((y != 0) & (y != 1))) - minus}


@step("model_selection.verdicts", reveals="sums")
def local_verdicts(site: Site, outlier: float) -> dict[str, Any]:
    """Leaves the site: numbers of outliers and normal rows, and how many of each are flagged."""
    bad, flagged = _targets(site) == outlier, _values(site) < 0
    return {
        "outliers": int(bad.sum()),
        "found": int((bad & flagged).sum()),
        "normal": int((~bad).sum()),
        "flagged": int((~bad & flagged).sum()),
    }


def verdict_counts(fed: Federation) -> Verdicts:
    """Count the verdicts of a detector, which the sites see in place of their rows, by the labels of the rows."""
    total = fed.sum(local_verdicts, outlier=_outlier(fed))
    return Verdicts(*(int(total[name]) for name in Verdicts._fields))


@step("model_selection.scores_between", reveals="sums")
def local_scores(site: Site, outlier: float, edges: Vector) -> dict[str, Any]:
    """Leaves the site: numbers of outliers and of normal rows, and of those whose score is up to each edge."""
    bad, scores = _targets(site) == outlier, _values(site)
    small = np.min_scalar_type(len(bad))
    counts = [np.searchsorted(np.sort(scores[which]), edges, side="right").astype(small) for which in (bad, ~bad)]
    return {"outliers": int(bad.sum()), "normal": int((~bad).sum()), "low_bad": counts[0], "low_normal": counts[1]}


def roc_area(fed: Federation) -> float:
    """Return the area under the ROC curve of scores (low: outlier), which the sites see in place of their rows.

    The sites count scores between edges. Where a part holds both kinds of rows, the next round divides it. It ends when
    the area is known to 1e-4 or the scores in a part are equal.
    """
    outlier = _outlier(fed)
    grid = 10.0 ** np.arange(-30, 151, 0.5)
    edges = np.concatenate([-grid[::-1], [0.0], grid])
    area = 0.5
    for _ in fed.rounds(_ROUNDS):
        total = fed.sum(local_scores, outlier=outlier, edges=edges)
        bad, normal = int(total["outliers"]), int(total["normal"])
        if not bad or not normal:
            raise InputError(
                f"{bad} of {bad + normal} held-out rows are outliers: an ROC curve needs both kinds, use fewer folds"
            )
        in_part = np.diff(total["low_bad"], prepend=0, append=bad).astype(np.float64)
        normal_in_part = np.diff(total["low_normal"], prepend=0, append=normal).astype(np.float64)
        above = normal - np.cumsum(normal_in_part)
        both = in_part * normal_in_part / (bad * normal)
        area = float(in_part @ above / (bad * normal) + both.sum() / 2)
        ends = np.concatenate([[-np.inf], edges, [np.inf]])
        low, high = ends[:-1], ends[1:]
        divisible = np.isfinite(low) & np.isfinite(high) & (np.nextafter(low, high) < high)
        unsure = np.where(divisible, both, 0.0)
        if unsure.sum() / 2 <= AREA_ERROR:
            break
        kinds = (in_part > 0) + 2 * (normal_in_part > 0)  # 0: no rows, 3: both kinds
        edges = _divided(edges, low, high, unsure, kinds)
    return area


def _divided(edges: Floats, low: Floats, high: Floats, unsure: Floats, kinds: NDArray[np.intp]) -> Floats:
    """Return edges that divide the parts of which most is unknown, without those between parts of one kind of rows."""
    wanted = np.flatnonzero(unsure)
    pieces = 1 + np.ceil(_PARTS * unsure[wanted] / unsure.sum()).astype(int)
    new = [np.linspace(low[k], high[k], n + 1) for k, n in zip(wanted, pieces, strict=True)]
    last = np.maximum.accumulate(np.where(kinds > 0, np.arange(len(kinds)), 0))  # a part without rows is like the last
    kinds = kinds[last]
    apart = (kinds[1:] != kinds[:-1]) | (kinds[1:] == 3)
    return np.unique(np.concatenate([edges[apart], *new]))


def _outlier(fed: Federation) -> float:
    """Return the label of outliers: -1 where there are labels of -1, and 1 elsewhere."""
    labels = fed.sum(local_labels)
    if labels["other"]:
        raise InputError(
            f"y has {labels['other']} labels that are neither 0, 1 nor -1: a detector is scored by y with 1 (or True) "
            "for outliers and 0 for others, or with -1 for outliers and 1 for others"
        )
    return -1.0 if labels["minus"] else 1.0


def _own_y(site: Site) -> NDArray[Any]:
    y = site.y
    if y is None:
        raise InputError("the site has no y, and this score compares with it: federate(X, y) gives it")
    return y.ravel()


def _targets(site: Site) -> NDArray[np.float64]:
    y = _own_y(site)
    if y.dtype.kind not in "buif":
        raise InputError(f"y has the dtype {y.dtype}, and this score needs numbers")
    return np.asarray(y, dtype=np.float64)


def _values(site: Site) -> NDArray[np.float64]:
    return np.asarray(site.X[:, 0], dtype=np.float64)
