"""Federated mean and variance of each column: exact in one round, by two rounds of secure sums, or by an aggregator.

In one round each site sends its own mean, and squares about it (`fedspan.sums.one_round`). Secure sums need two rounds.
The second is about the mean of the first, and its own sum corrects it. So the result is accurate where means are many
times the deviations, and exactly that of the sites that answered the second round. If others answered the first, and
their mean is so far off that squares about it cancel, one more round follows.

With an aggregator sites send their own means instead, and it combines them. No minority of sites can move the result
by more than the honest ones differ. It is exact only where the sites' rows are alike: a median of means is not the
mean of all rows. Up per site, either way: at most 4 d numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.aggregation import Aggregate, Aggregator
from fedspan.aggregation.aggregator import believed
from fedspan.checks import first_of
from fedspan.errors import InputError
from fedspan.federation import Federation, Replies, Site, step
from fedspan.federation.calling import StepLike
from fedspan.federation.site.parameters import Vector
from fedspan.sums.one_round import MergedMoments, merged_moments
from fedspan.sums.plausible_totals import CountedRows
from fedspan.sums.row_blocks import bad_values, n_columns, site_weight, weighted_blocks
from fedspan.sums.row_moments import RowMoments, packed
from fedspan.sums.sparse_rows import sparse_rows

#: Rounds about a centre, where sites come and go; one, unless the centre is of other sites.
_MOST_ROUNDS = 4
#: A weight of all rows that differs less from their number is that number: secure sums round.
_ROUNDING = 1e-9
#: A variance that is the difference of squares this many times larger has lost four of its sixteen digits.
_MOST_CANCELLED = 1e4


@dataclass(frozen=True)
class Moments:
    """Number of rows, mean and (population) variance of each column (d,), and the sites behind exact sums.

    `weight` is the sum of the rows' weights: the number of rows, where every row counts once. `weighted` states whether
    rows of some site have weights.
    """

    n: int
    mean: Vector
    variance: Vector
    sites: tuple[str, ...] = ()
    weight: float = -1.0
    weighted: bool = False

    def __post_init__(self) -> None:
        if self.weight < 0.0:
            object.__setattr__(self, "weight", self.n)


@step("sums.sums", reveals="sums", moments=True, weighted=True, counts=["n"])
def local_sums(site: Site) -> dict[str, Any]:
    """Leaves the site: number and weight of its rows, column sums, numbers of bad values, whether rows have weights.

    Bad values are not finite; weights of rows are stated by 1, none by 0.
    """
    total, bad = np.zeros(n_columns(site)), np.zeros(n_columns(site), dtype=np.int64)
    sparse = sparse_rows(site)
    if sparse is not None:
        bad = sparse.bad
        total = total if bad.any() else sparse.sums()
    for X, weights in weighted_blocks(site) if sparse is None else ():
        finite = np.isfinite(X)
        bad += len(X) - finite.sum(axis=0)
        rows = np.where(finite, X, 0.0) if bad.any() else X
        total += rows.sum(axis=0) if weights is None else weights @ rows
    about = {"n": len(site), "weight": site_weight(site), "weighted": int(site.weighted)}
    return {**about, "sum": total, "bad": bad}


@step("sums.centred_sums", reveals="sums", moments=True, weighted=True, counts=["n"])
def local_centred_sums(site: Site, centre: Vector) -> dict[str, Any]:
    """Leaves the site: number and weight of its rows, and sum and sum of squares of each column about `centre`."""
    total, squares = np.zeros(len(centre)), np.zeros(len(centre))
    sparse = sparse_rows(site)
    if sparse is not None:
        total, squares = sparse.sums() - sparse.weight * centre, sparse.squares(centre)
    for X, weights in weighted_blocks(site) if sparse is None else ():
        D = X - centre
        W = D if weights is None else weights[:, None] * D
        total += W.sum(axis=0)
        squares += np.einsum("ij,ij->j", W, D)
    return {"n": len(site), "weight": site_weight(site), "sum": total, "squares": squares}


@step("sums.centred_products", reveals="sums", moments=True, weighted=True, counts=["n"])
def local_centred_products(site: Site, centre: Vector) -> dict[str, Any]:
    """Leaves the site: number and weight of its rows, and sums and products of its columns about `centre`."""
    d = len(centre)
    total, products = np.zeros(d), np.zeros((d, d))
    for X, weights in weighted_blocks(site):
        D = X - centre
        total += D.sum(axis=0) if weights is None else weights @ D
        D = D if weights is None else np.sqrt(weights)[:, None] * D
        products += D.T @ D
    return {"n": len(site), "weight": site_weight(site), "sum": total, "products": packed(products)}


@step("sums.bad_values", reveals="sums", moments=True, weighted=True)
def local_bad_values(site: Site) -> dict[str, Any]:
    """Leaves the site: the number of values of each column that are not finite."""
    return {"bad": bad_values(site)}


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
    if fed.policy.secure_sum:
        found, sites, weighted = _moments_by_sums(fed, names, 0)
        return moments_of(found, sites, weighted=weighted)
    merged, _ = merged_moments(0, fed)
    return moments_of(learned(merged, fed, names), merged.sites, weighted=merged.columns.weighted)


def row_moments(
    fed: Federation, names: tuple[str, ...] | None = None, *, widest: int = 0
) -> tuple[RowMoments, tuple[str, ...]]:
    """Return the moments of all rows, and the sites that sent theirs: in one round, or two of secure sums.

    Tables of at most `widest` columns get all products about the mean, wider ones the squares.
    """
    if fed.policy.secure_sum:
        return _moments_by_sums(fed, names, widest)[:2]
    merged, _ = merged_moments(widest, fed)
    return learned(merged, fed, names), merged.sites


def learned(merged: MergedMoments, fed: Federation, names: tuple[str, ...] | None = None) -> RowMoments:
    """Return merged moments; refuse values that are not finite, by feature and site, and sites without rows."""
    _refuse_bad_values(fed, merged.bad, names)
    _refuse_no_rows(merged.rows.n, merged.rows.weight)
    return merged.rows


def moments_of(found: RowMoments, sites: tuple[str, ...] = (), *, weighted: bool = False) -> Moments:
    """Return mean and variance of each column."""
    return Moments(found.n, found.mean, found.variance, sites, counted(found), weighted)


def counted(found: RowMoments | Moments) -> float:
    """Return the weight of all rows: as their number, a whole one, where it is that up to rounding."""
    return counted_rows({"n": found.n, "weight": found.weight})


def counted_rows(total: Mapping[str, Any]) -> float:
    """Return the weight of all rows of a total with their number ``n`` and perhaps their ``weight``."""
    n: int = total["n"]
    weight: float = total.get("weight", n)
    return n if abs(weight - n) <= _ROUNDING * n else weight


def _moments_by_sums(
    fed: Federation, names: tuple[str, ...] | None, widest: int
) -> tuple[RowMoments, tuple[str, ...], bool]:
    """Return the moments of all rows from a round of sums, and one of sums about the mean."""
    first = fed.sum(local_sums)
    _refuse_bad_values(fed, first["bad"], names)
    _refuse_no_rows(first["n"], first["weight"])
    rows = CountedRows()
    rows.compare(first)
    centre, sites = first["sum"] / first["weight"], first.sites
    products = len(centre) <= widest
    second, key = (local_centred_products, "products") if products else (local_centred_sums, "squares")
    for _ in range(_MOST_ROUNDS):
        sums = fed.sum(second, centre=centre)
        rows.compare(sums)
        weight = sums["weight"]
        _refuse_no_rows(sums["n"], weight, "the sites that answered")
        shift = sums["sum"] / weight
        about = packed(np.outer(shift, shift)) if products else shift**2
        found = RowMoments(sums["n"], weight, centre, shift, sums[key] - weight * about)
        # The shift of the same sites is rounding. If that of others is large, repeat about their own mean.
        if sums.sites == sites or not np.any(shift**2 > _MOST_CANCELLED * found.variance):
            break
        centre, sites = found.mean, sums.sites
    return found, tuple(sums.sites), first["weighted"] > 0


def _refuse_no_rows(n: int, weight: float, sites: str = "the sites") -> None:
    if n == 0:
        raise InputError(f"{sites} have no rows: there is nothing to learn from")
    if not weight > 0.0:
        raise InputError(f"the weights of all {n} rows (sample_weight) are zero: there is nothing to learn from")


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
    raise InputError(f"X contains NaN or infinity: {first_of(found, 5)}; fill or drop them first")


def deviations(found: Moments) -> Vector:
    """Return the standard deviations, 1 for columns that are constant up to rounding (scikit-learn's rule)."""
    eps = np.finfo(np.float64).eps
    rounding = found.weight * eps * found.variance + (found.weight * found.mean * eps) ** 2
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
    """Sums over all rows by key, the number (or weight) of all rows, and that of each site in the first key."""

    sums: dict[str, Any]
    n: float
    weights: dict[str, float]


def row_totals(
    keys: Sequence[str], fed: Federation, step: StepLike, aggregator: Aggregator | None, **payload: object
) -> RowTotals:
    """Return the sums of `keys` over all rows: exact, or by `aggregator` the number of rows times its means per row."""
    if aggregator is None:
        total = fed.sum(step, **payload)
        return RowTotals({key: total[key] for key in keys}, counted_rows(total), site_weights(total.sites))
    replies = fed.totals(step, **payload)
    found, n = aggregated(replies, keys, aggregator)
    sums = {key: n * one.value for key, one in zip(keys, found, strict=True)}
    return RowTotals(sums, n, site_weights(replies, found[0].weights))


def site_weights(sites: Iterable[str], weights: Vector | None = None) -> dict[str, float]:
    """Return the weight of each site by name; ``None`` weighs all alike."""
    names = tuple(sites)
    return dict(zip(names, [1.0 / len(names)] * len(names) if weights is None else weights.tolist(), strict=True))
