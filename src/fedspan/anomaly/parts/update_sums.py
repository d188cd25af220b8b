"""What a detector learns from new rows, in one call: a site scores its rows once, and sends all sums of that pass.

Rows are scored by the model as it was before it learned from them: their scores are those of new rows. The same walk
down the trees and the same distances give the counts by leaf and the sums by centre.

Moments and counts by leaf are those of all rows. Of many rows, more than 16,384 at all sites, a sample is scored: one
row of each stretch of consecutive ones, which stands for these. The share of a sample above the threshold is off by
about .2 points.

Where sums are not secure a site packs its reply. Most leaves have no row: it sends a bit for each leaf, and the counts
of those that have some. The sums by centre are of distances from it, as whole numbers of at most 127 times a unit of
the centre's own: a centre's move is rounded by less than a hundredth part of what chance moves it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from fedspan.anomaly.parts.isolation_trees import Features, check_trees, of_leaves
from fedspan.arrays import Array
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.federation.outcomes import Failure, FailureKind
from fedspan.federation.site.parameters import MOST, Matrix, NotNegative, Positive, Vector, Whole
from fedspan.gateway.kept_sums import counts_of, leaf_counts, no_sums, sums_by
from fedspan.gateway.scorer import FORMAT, Scorer
from fedspan.sums.columns import Columns
from fedspan.sums.moments import learned
from fedspan.sums.one_round import MergedMoments
from fedspan.sums.plausible_totals import whole
from fedspan.sums.row_blocks import bad_values, blocks, n_columns, sampled_rows
from fedspan.sums.row_moments import RowMoments, packed
from fedspan.wire import Message

#: Rows times trees, or times centres, that are dealt with at once; at least some rows.
_CELLS, _FEWEST = 2**19, 64
#: Rows of all sites that are scored, at most; but at each site some.
_SCORED, _FEWEST_SCORED = 2**14, 64
_LARGEST, _MOST = 127.0, 1e30

#: The most rows of a site that are scored.
Scored = Annotated[int, Whole(_FEWEST_SCORED, MOST)]


class Model(TypedDict):
    """The arrays of an exported detector that scores need; ``None`` where it has no such member."""

    mean: Vector | None
    scale: Vector | None
    centers: Matrix | None
    features: Features | None
    cuts: Matrix | None
    depths: Matrix | None
    usual: Positive
    root: Matrix | None
    components: Matrix | None
    inside: Vector | None
    outside: NotNegative
    edges: Matrix
    ranks: Matrix
    high: Vector
    width: Vector
    sketch_edges: Vector


def of_parts(site: Site, most: int = 1, **model: Any) -> int:
    """Return the mean number of rows per leaf, or per centre, whichever is smaller."""
    cuts, centers, scored = model.get("cuts"), model.get("centers"), len(_scored_rows(len(site), max(1, most))[0])
    found = [scored]
    found += [] if cuts is None else [of_leaves(site, cuts=cuts)]
    found += [] if centers is None else [scored // max(1, len(centers))]
    return min(found)


def _merged(replies: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the sums of all rows, unpacked, from those of sites or of several sites."""
    own = [_unpacked(reply) for reply in replies]
    with np.errstate(over="ignore", invalid="ignore"):  # the federation refuses a total that is not finite
        found = RowMoments.merged([_moments(reply) for reply in own]).message()
    return {**found, **{key: sum(reply[key] for reply in own) for key in own[0] if key not in found}}


_RAGGED = ("leaves", "leaf_counts", "center_sums", "units")


@step(
    "anomaly.update_sums",
    reveals="sums",
    counts=["n"],
    ragged=_RAGGED,
    merge=_merged,
    fewest=of_parts,
    fewest_in_sums=False,
)
def local_update_sums(
    site: Site, pack: bool, products: bool, most: Scored, centre: Vector, **model: Unpack[Model]
) -> dict[str, Any]:
    """Leaves the site: what a detector learns from its rows: their moments, and counts of their scores.

    With trees also counts by leaf, with centres counts and sums by nearest centre; numbers of values that are not
    finite. The moments are sums about `centre`, or with `pack` the mean and products about it; of the columns alone
    without `products`. Where there are more than `most` rows, counts of scores and sums by centre are of a sample.
    """
    d = n_columns(site)
    scorer = _scorer(d, model)
    found, sums = RowMoments.of_no_rows(d, products=products), _no_sums(scorer, d)
    cells = max(len(own) for own in (scorer.arrays.get("cuts", ()), scorer.arrays.get("centers", ()), [0]))
    chosen, times = _scored_rows(len(site), most)
    at = 0
    with np.errstate(over="ignore", invalid="ignore"):
        for X in _parts(site, max(_FEWEST, _CELLS // cells)):
            new = RowMoments.of_rows(X, products=products)
            found = RowMoments.merged([found, new]) if found.n else new
            own = slice(*np.searchsorted(chosen, [at, at + len(X)]))
            if np.isfinite(new.scatter).all():
                _add(sums, X, chosen[own] - at, times[own], scorer)
            at += len(X)
    bad = np.zeros(d, dtype=np.int64)
    if not np.isfinite(found.scatter).all():  # or it overflows, and the federation refuses it
        bad = bad_values(site)
        found = RowMoments.of_no_rows(d, products=products, n=found.n) if bad.any() else found
    if pack:
        return {**found.message(), "bad": bad, **_packed(sums)}
    apart = found.mean - centre
    about = packed(np.outer(apart, apart)) if products else apart**2
    moments = {"n": found.n, "sum": found.n * apart, "products": found.scatter + found.n * about}
    return {**moments, "bad": bad, **sums}


def _parts(site: Site, rows: int) -> Iterator[Array]:
    for block in blocks(site):
        for start in range(0, len(block), rows):
            yield block[start : start + rows]


@lru_cache(maxsize=8)
def _scored_rows(n: int, most: int) -> tuple[NDArray[np.int64], Vector]:
    """Return the numbers of the rows that are scored, of n, and the rows that each stands for."""
    every = -(-n // most)
    chosen = sampled_rows(n, every)
    return chosen, np.minimum(every, n - every * np.arange(len(chosen))).astype(np.float64)


def _add(sums: dict[str, Array], X: Array, chosen: NDArray[np.int64], times: Vector, scorer: Scorer) -> None:
    """Add the counts of rows, and of the `chosen` ones the counts of scores and distances from the nearest centre."""
    few = len(chosen) < len(X)
    leaves = scorer.leaves(X) if few and "leaf_counts" in sums else None
    if leaves is not None:
        sums["leaf_counts"] += leaf_counts(leaves, scorer)
        leaves = leaves[:, chosen]
    seen = scorer.seen(X[chosen] if few else X, leaves)
    for name, counts in counts_of(seen, scorer.joined(seen.members), scorer, times if few else None).items():
        sums[name] += counts
    if seen.nearest is not None and seen.standard is not None:
        centers = scorer.arrays["centers"]
        apart = seen.standard - centers[seen.nearest]
        sums["center_sums"] += sums_by(seen.nearest, times[:, None] * apart if few else apart, len(centers))


def _scorer(d: int, model: Mapping[str, Any]) -> Scorer:
    """Return what scores rows of d columns; refuse a model that does not fit them."""
    arrays = {name: value for name, value in model.items() if value is not None}
    wanted = {"mean": (d,), "scale": (d,), "root": (d, d), "components": (-1, d), "centers": (-1, d)}
    m = sum(name in arrays for name in ("centers", "features")) + ("root" in arrays or "components" in arrays)
    edges = np.shape(arrays["edges"])
    inside = (len(arrays.get("components", ())),)
    wanted |= {"edges": (m, -1), "ranks": edges, "high": (m,), "width": (m,), "inside": inside}
    for name, shape in wanted.items():
        found = np.shape(arrays.get(name, np.empty([max(size, 0) for size in shape])))
        if len(found) != len(shape) or any(size not in (given, -1) for given, size in zip(found, shape, strict=True)):
            raise InputError(f"{name} has the shape {found}, which does not fit rows of {d} columns")
    whole_trees = ("features" in arrays) == ("cuts" in arrays) == ("depths" in arrays)
    if not m or not whole_trees or (set(arrays) & {"centers", "root", "components"} and "mean" not in arrays):
        raise InputError("the parameters of a member are not complete")
    if "centers" in arrays and not len(arrays["centers"]):
        raise InputError("there are no centres")
    if "features" in arrays:
        check_trees(arrays["features"], arrays["cuts"], d, arrays["depths"])
    return Scorer({**arrays, "format": np.array(FORMAT), "threshold": np.array(0.0), "columns": np.arange(d)})


def _no_sums(scorer: Scorer, d: int) -> dict[str, Array]:
    """Return the sums of no rows, as a gateway keeps them, but for their moments."""
    found = no_sums(scorer)
    return {name: array for name, array in found.items() if name not in ("n", "mean", "products", "edges_sum")}


def _packed(sums: dict[str, Array]) -> dict[str, Any]:
    """Return sums in fewer bytes: see above."""
    found: dict[str, Any] = {}
    for name in ("counts", "member_counts", "center_counts"):
        if name in sums:
            found[name] = _small(sums[name])
    if "leaf_counts" in sums:
        counts = sums["leaf_counts"].ravel()
        found |= {"leaves": np.packbits(counts > 0), "leaf_counts": _small(counts[counts > 0])}
    if "center_sums" in sums:
        own = sums["center_sums"][sums["center_counts"] > 0]
        units = np.minimum(np.abs(own).max(axis=1, initial=0.0) / _LARGEST, _MOST).astype(np.float32)
        steps = own / np.where(units > 0, units, 1.0)[:, None]
        found |= {"units": units, "center_sums": np.clip(np.rint(steps), -_LARGEST, _LARGEST).astype(np.int8)}
    return found


def _small(counts: Array) -> Array:
    return counts.astype(np.min_scalar_type(int(counts.max(initial=0))))


def _unpacked(reply: Mapping[str, Any]) -> dict[str, Any]:
    """Undo `_packed`; a reply that is unpacked stays as it is. Leaves come in one row, perhaps with some more."""
    found = {name: value for name, value in reply.items() if name not in ("leaves", "units")}
    for name in ("counts", "member_counts", "center_counts"):
        if name in found:
            found[name] = np.asarray(found[name], dtype=np.int64)
    if "leaves" in reply:
        some = np.unpackbits(reply["leaves"]).view(np.bool_)
        found["leaf_counts"] = np.zeros(len(some), dtype=np.int64)
        found["leaf_counts"][some] = reply["leaf_counts"]
    if "units" in reply:
        some = found["center_counts"] > 0
        sums = np.zeros((len(some), reply["center_sums"].shape[1]))
        sums[some] = reply["units"][:, None] * reply["center_sums"].astype(np.float64)
        found["center_sums"] = sums
    return found


def _wrong(reply: Mapping[str, Any], like: Mapping[str, Array], wanted: Mapping[str, tuple[int, ...]]) -> str | None:
    """Return what is wrong with a packed reply that no honest site sends; ``None`` if nothing is."""
    shapes = {**wanted, **{name: own.shape for name, own in like.items() if name not in ("leaf_counts", "center_sums")}}
    kinds = dict.fromkeys((*wanted, "units"), "f") | {"bad": "iu", "center_sums": "i"}
    if "leaf_counts" in like:
        bits, size = reply.get("leaves"), -(-like["leaf_counts"].size // 8)
        if not isinstance(bits, np.ndarray) or bits.dtype != np.uint8 or bits.shape != (size,):
            return f"it sent other sums than most sites: 'leaves' must be {size} bytes"
        shapes["leaf_counts"] = (int(np.unpackbits(bits).sum()),)
    if "center_sums" in like:
        counts = reply.get("center_counts")
        some = np.count_nonzero(counts) if isinstance(counts, np.ndarray) else 0
        shapes |= {"center_sums": (some, like["center_sums"].shape[1]), "units": (some,)}
    for name, shape in shapes.items():
        value = reply.get(name)
        if not isinstance(value, np.ndarray) or value.shape != shape or value.dtype.kind not in kinds.get(name, "u"):
            return f"it sent other sums than most sites: {name!r} must have the shape {shape}"
    return None


def update_sums(
    fed: Federation, *, model: Mapping[str, Any], names: tuple[str, ...] | None = None, products: bool = True
) -> tuple[RowMoments, dict[str, Array]]:
    """Return the moments of new rows, and the other sums that a detector learns from, which has these arrays.

    They are those of an exported detector. Without `products` the moments are those of the columns alone.
    """
    parameters = {name: model.get(name) for name in Model.__annotations__} | {
        name: float(model.get(name, 1.0)) for name in ("usual", "outside")
    }
    d = len(model["columns"])
    centre, like = np.asarray(model.get("mean", np.zeros(d))), _no_sums(Scorer(model), d)
    most = max(_FEWEST_SCORED, _SCORED // len(fed.sites))
    call: dict[str, Any] = {"centre": centre, "products": products, "most": most, **parameters}
    entries = d * (d + 1) // 2 if products else d
    if fed.policy.secure_sum:
        total = fed.sum(local_update_sums, pack=False, **call)
        whole(total, sum=(d,), products=(entries,), **{name: own.shape for name, own in like.items()})
        shift = total["sum"] / max(total["n"], 1)
        scatter = total["products"] - total["n"] * (packed(np.outer(shift, shift)) if products else shift**2)
        rows = RowMoments(total["n"], float(total["n"]), centre, shift, scatter)
    else:
        shapes = {"centre": (d,), "shift": (d,), "scatter": (entries,), "bad": (d,)}

        def check(replies: Mapping[str, Message]) -> Mapping[str, Failure]:
            found = {site: _wrong(reply, like, shapes) for site, reply in replies.items()}
            return {site: Failure(FailureKind.MISSHAPEN, why) for site, why in found.items() if why is not None}

        total = fed.merge(local_update_sums, check, pack=True, **call)
        rows = _moments(total)
    found = {name: np.asarray(total[name]) for name in like}
    if "leaf_counts" in found:
        shape = like["leaf_counts"].shape
        found["leaf_counts"] = found["leaf_counts"].ravel()[: shape[0] * shape[1]].reshape(shape)
    if "center_sums" in found:  # of rows as they are
        scale = model.get("scale", 1.0)
        found["center_sums"] = scale * found["center_sums"] + found["center_counts"][:, None] * (
            model["centers"] * scale + centre
        )
    return learned(MergedMoments(rows, total.sites, Columns(d, names), total["bad"]), fed, names), found


def _moments(reply: Mapping[str, Any]) -> RowMoments:
    return RowMoments(*(reply[name] for name in RowMoments._fields))
