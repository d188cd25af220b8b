"""Mean and variance of each column that no minority of sites can move.

Sites send their own means, and an aggregator that believes nobody in particular combines them. Exact only where the
sites' rows are alike: a median of means is not the mean of all rows. Up per site: 3 d numbers in two rounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.aggregation import Aggregator
from fedspan.aggregation.base import believed
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.protocols.moments import Moments, local_centred_sums, local_sums

Vector = NDArray[np.float64]


@step
def local_mean(site: Site) -> dict[str, Any]:
    """Leaves the site: its number of rows and the mean of each column."""
    sums = local_sums(site)
    if sums["bad"].any():
        raise InputError(f"X contains NaN or infinity in {int(np.count_nonzero(sums['bad']))} features")
    return {"n": _rows(site), "mean": sums["sum"] / len(site)}


@step
def local_spread(site: Site, centre: Vector) -> dict[str, Any]:
    """Leaves the site: its number of rows and the mean squared distance of each column from `centre`."""
    return {"n": _rows(site), "spread": local_centred_sums(site, centre)["squares"] / len(site)}


def resilient_moments(fed: Federation, aggregator: Aggregator) -> Moments:
    """Return moments by `aggregator`; the number of rows is the number of sites times their median."""
    means = fed.ask(local_mean)
    centre = aggregator(means.stack("mean"), believed(aggregator, means.stack("n"))).value
    replies = fed.ask(local_spread, centre=centre)
    counts = replies.stack("n")
    variance = np.maximum(aggregator(replies.stack("spread"), believed(aggregator, counts)).value, 0.0)
    return Moments(typical_rows(counts), centre, variance)


def typical_rows(counts: NDArray[Any]) -> int:
    """Return the number of all rows, as far as the majority of the reported counts tells."""
    return max(1, round(len(counts) * float(np.median(counts))))


def _rows(site: Site) -> int:
    if not len(site):
        raise InputError("this site has no rows to take a mean of")
    return len(site)
