"""Two groups of values: no aggregator knows which one is honest."""

from __future__ import annotations

import warnings

import numpy as np

from fedspan.aggregation.safe_arithmetic import distances
from fedspan.arrays import Array
from fedspan.checks import frames_inside
from fedspan.linalg.medians.majority_ball import two_groups

#: A value that is farther from the median, in units of the values' usual distances from it, counts as so far.
_FARTHEST = 10.0


def warn_of_groups(what: str, values: Array, sites: tuple[str, ...]) -> None:
    """Warn where the sites' values (L, ...) form two groups of nearly equal size: which one is honest is not known."""
    flat = values.reshape(len(values), -1)
    middle = np.median(flat, axis=0)
    # In units of each number's usual spread, and cut: a few huge values must not hide two groups among the others.
    with np.errstate(over="ignore"):  # of false values alone
        apart = np.abs(flat - middle)
        units = np.median(apart, axis=0)
        units = np.where(units > 0, units, apart.mean(axis=0))  # where most values are copies of one
        used = (units > 0) & np.isfinite(units)
        flat = np.clip((flat - middle)[:, used] / units[used], -_FARTHEST, _FARTHEST)
    second = two_groups(distances(flat))
    if second is not None:
        names = [site for site, one in zip(sites, second, strict=True) if one]
        warnings.warn(
            f"{what} form two groups, and {len(names)} of {len(sites)} sites are in the smaller one "
            f"({', '.join(names[:5])}{', ...' if len(names) > 5 else ''}): malicious sites agree, or the sites' rows "
            "differ; compare with a fit to the sites of each group",
            stacklevel=frames_inside(),
        )
