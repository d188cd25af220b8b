"""Federated mean and variance of each column: exact sums in two rounds, the second one centred, or by an aggregator.

The second round is about the mean of the first, and its own sum corrects it. So the result is accurate where means are
many times the deviations, and exactly that of the sites that answered the second round. If others answered the first,
and their mean is so far off that squares about it cancel, one more round follows.

With an aggregator sites send their own means instead, and it combines them. No minority of sites can move the result
by more than the honest ones differ. It is exact only where the sites' rows are alike: a median of means is not the
mean of all rows. Up per site, either way: at most 4 d numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.aggregation import Aggregate, Aggregator
from fedspan.aggregation.aggregator import believed
from fedspan.errors import InputError
from fedspan.federation import Federation, Replies, Site, step
from fedspan.federation.federation import StepLike
from fedspan.federation.site.parameters import Vector
from fedspan.sums.plausible_totals import CountedRows
from fedspan.sums.row_blocks import blocks, n_columns

#: Rounds about a centre, where sites come and go; one, unless the centre is of other sites.
_MOST_ROUNDS = 4
#: A variance that is the difference of squares this many times larger has lost four of its sixteen digits.
_MOST_CANCELLED = 1e4


@dataclass(frozen=True)
class Moments:
    """Number of rows, mean and (population) variance of each column (d,), and the sites behind exact sums."""

    n: int
    mean: Vector
    variance: Vector
    sites: tuple[str, ...] = ()


@step("sums.sums", reveals="sums", moments=True, counts=["n"])
def local_sums(site: Site) -> dict[str, Any]:
    """Leaves the site: its number of rows, the sum of each column, the number of its values that are not finite."""
    total, bad = np.zeros(n_columns(site)), np.zeros(n_columns(site), dtype=np.int64)
    for X in blocks(site):
        finite = np.isfinite(X)
        bad += len(X) - finite.sum(axis=0)
        total += np.where(finite, X, 0.0).sum(axis=0) if bad.any() else X.sum(axis=0)
    return {"n": len(site), "sum": total, "bad": bad}


@step("sums.centred_sums", reveals="sums", moments=True, counts=["n"])
def local_centred_sums(site: Site, centre: Vector) -> dict[str, Any]:
    """Leaves the site: its number of rows, and sum and sum of squares of each column about `centre`."""
    total, squares = np.zeros(len(centre)), np.zeros(len(centre))
    for X in blocks(site):
        D = X - centre
        total += D.sum(axis=0)
        squares += np.einsum("ij,ij->j", D, D)
    return {"n": len(site), "sum": total, "squares": squares}


@step("sums.bad_values", reveals="sums", moments=True)
def local_bad_values(site: Site) -> dict[str, Any]:
    """Leaves the site: the number of values of each column that are not finite."""
    return {"bad": local_sums(site)["bad"]}


@step("sums.mean", reveals="sums", moments=True)
def local_mean(site: Site) -> dict[str, Any]:
    """Leaves the site: its number of rows and the mean of each column."""
    sums = local_sums(site)
    if sums["bad"].any():
        raise InputError(f"X contains NaN or infinity in {int(np.count_nonzero(sums['bad']))} features")
    return {"n": some_rows(site), "mean": sums["sum"] / len(site)}


@step("sums.spread", reveals="sums", moments=True)
def local_spread(site: Site, centre: Vector) -> dict[str, Any]:
    """Leaves the site: its number of rows and the mean squared distance of each column from `centre`."""
    return {"n": some_rows(site), "spread": local_centred_sums(site, centre)["squares"] / len(site)}


def moments(fed: Federation, names: tuple[str, ...] | None = None, aggregator: Aggregator | None = None) -> Moments:
    """Return the moments of all rows. Refuse values that are not finite, by feature and site.

    With an `aggregator` a site that has such values fails, and the number of rows is an estimate (`typical_rows`).
    """
    if aggregator is not None:
        return _aggregated_moments(fed, aggregator)
    first = fed.sum(local_sums)
    _refuse_bad_values(fed, first["bad"], names)
    if first["n"] == 0:
        raise InputError("the sites have no rows: there is nothing to learn from")
    rows = CountedRows()
    rows.compare(first)
    centre, sites = first["sum"] / first["n"], first.sites
    for _ in range(_MOST_ROUNDS):
        sums = fed.sum(local_centred_sums, centre=centre)
        rows.compare(sums)
        n = sums["n"]
        if n == 0:
            raise InputError("the sites that answered have no rows: there is nothing to learn from")
        shift = sums["sum"] / n
        mean, variance = centre + shift, np.maximum(sums["squares"] / n - shift**2, 0.0)
        # The shift of the same sites is rounding. If that of others is large, repeat about their own mean.
        if sums.sites == sites or not np.any(shift**2 > _MOST_CANCELLED * variance):
            break
        centre, sites = mean, sums.sites
    return Moments(n, mean, variance, tuple(sums.sites))


def _aggregated_moments(fed: Federation, aggregator: Aggregator) -> Moments:
    means = means_of_rows("mean", fed, local_mean, local_sums, "sum")
    centre = aggregator(means.stack("mean"), believed(aggregator, means.stack("n"))).value
    replies = means_of_rows("spread", fed, local_spread, local_centred_sums, "squares", centre=centre)
    counts = replies.stack("n")
    variance = np.maximum(aggregator(replies.stack("spread"), believed(aggregator, counts)).value, 0.0)
    return Moments(typical_rows(counts), centre, variance)


def means_of_rows(
    key: str, fed: Federation, of_means: StepLike, of_sums: StepLike, sums_key: str, **payload: object
) -> Replies:
    """Return the replies of the step `of_means`: means `key` over rows, and their number `n`.

    With groups of sites, the means over the rows of each group, from the totals of the step `of_sums`.
    """
    if not fed.policy.groups:
        return fed.ask(of_means, **payload)

    totals = fed.totals(of_sums, **payload)
    good = {name: total for name, total in totals.ok.items() if total["n"] and not np.any(total.get("bad", 0))}
    if len(good) < fed.policy.needed(len(fed.groups)):
        raise InputError(f"of {len(fed.groups)} groups {len(good)} have rows and no NaN or infinity in X")
    found = {name: {key: total[sums_key] / total["n"], "n": total["n"]} for name, total in good.items()}
    return Replies(found, totals.failed)


def refuse_bad_values(fed: Federation, names: tuple[str, ...] | None = None) -> None:
    """Refuse values that are not finite, by feature and site; `moments` does so by itself."""
    _refuse_bad_values(fed, fed.sum(local_bad_values)["bad"], names)


def _refuse_bad_values(fed: Federation, bad: NDArray[np.int64], names: tuple[str, ...] | None) -> None:
    """Refuse features with values that are not finite, and name their sites, unless sums are secure.

    Sites that do not answer at once are requested twice more.
    """
    if not bad.any():
        return
    by_site: dict[str, NDArray[np.int64]] = {}
    for _ in range(0 if fed.policy.secure_sum else 3):
        by_site |= {site: reply["bad"] for site, reply in fed.ask(local_bad_values).ok.items()}
    found = []
    for column in np.flatnonzero(bad):
        feature = names[column] if names else f"number {column}"
        sites = [f"site {site!r} ({counts[column]} values)" for site, counts in by_site.items() if counts[column]]
        unnamed = f"{'some' if fed.policy.secure_sum else 'a silent'} site ({bad[column]} values)"
        found += [f"feature {feature} at {where}" for where in sites or [unnamed]]
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    raise InputError(f"X contains NaN or infinity: {', '.join(found[:5])}{more}; fill or drop them first")


def deviations(found: Moments) -> Vector:
    """Return the standard deviations, 1 for columns that are constant up to rounding (scikit-learn's rule)."""
    eps = np.finfo(np.float64).eps
    rounding = found.n * eps * found.variance + (found.n * found.mean * eps) ** 2
    return np.where(found.variance <= rounding, 1.0, np.sqrt(found.variance))


def some_rows(site: Site) -> int:
    """Return the number of rows of a site that must have some."""
    if not len(site):
        raise InputError("this site has no rows to take a mean of")
    return len(site)


def typical_rows(counts: NDArray[Any]) -> int:
    """Return an estimate of the number of all rows: the number of sites times the median of their counts."""
    return max(1, round(len(counts) * float(np.median(counts))))


def aggregated(replies: Replies, keys: Sequence[str], aggregator: Aggregator) -> tuple[list[Aggregate], int]:
    """Return each key's sums, divided by the sites' numbers of rows and aggregated, and the number of all rows.

    Per row, so that a site counts alike whatever number of rows it reports.
    """
    counts = replies.stack("n")
    weights = believed(aggregator, counts)
    found = []
    for key in keys:
        sums = replies.stack(key)
        per_row = np.maximum(counts, 1).reshape(-1, *[1] * (sums.ndim - 1))
        found.append(aggregator(sums / per_row, weights))
    return found, typical_rows(counts)


@dataclass(frozen=True)
class RowTotals:
    """Sums over all rows by key, the number of rows, and the weight of each site in the first key."""

    sums: dict[str, Any]
    n: int
    weights: dict[str, float]


def row_totals(
    keys: Sequence[str], fed: Federation, step: StepLike, aggregator: Aggregator | None, **payload: object
) -> RowTotals:
    """Return the sums of `keys` over all rows: exact, or by `aggregator` the number of rows times its means per row."""
    if aggregator is None:
        total = fed.sum(step, **payload)
        return RowTotals({key: total[key] for key in keys}, total["n"], site_weights(total.sites))
    replies = fed.totals(step, **payload)
    found, n = aggregated(replies, keys, aggregator)
    sums = {key: n * one.value for key, one in zip(keys, found, strict=True)}
    return RowTotals(sums, n, site_weights(replies, found[0].weights))


def site_weights(sites: Iterable[str], weights: Vector | None = None) -> dict[str, float]:
    """Return the weight of each site by name; ``None`` weighs all alike."""
    names = tuple(sites)
    return dict(zip(names, [1.0 / len(names)] * len(names) if weights is None else weights.tolist(), strict=True))
