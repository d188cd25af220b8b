"""The batch of each row: its site, or the value of a column, which is then no feature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Array
from fedspan.checks import first_of
from fedspan.errors import InputError, MessageError
from fedspan.federation import Federation, Replies, Site, step, transform
from fedspan.federation.outcomes import Failure, FailureKind
from fedspan.federation.site.parameters import Labels, Whole
from fedspan.wire import Message

Codes = NDArray[np.int64]
#: The number of the batch column; -1 where sites are batches.
Column = Annotated[int, Whole(-1, 2**40)]

#: The most batches of one site, and the longest name of one.
MOST_BATCHES, LONGEST = 10_000, 200


def sites_are_batches(payload: Mapping[str, Any]) -> bool:
    """Return whether each site is a batch: the sums of a batch are then those of one site."""
    return int(payload["column"]) < 0


@step("atlases.batch_names", reveals="rows", ragged=["names"])
def local_batch_names(site: Site, column: Column) -> dict[str, Any]:
    """Leaves the site: the different values of the batch column."""
    names = np.unique(labels_of(rows_of(site), column))
    if len(names) > MOST_BATCHES:
        raise InputError(f"column number {column} has {len(names)} values, and at most {MOST_BATCHES} can be batches")
    return {"names": names}


@step("atlases.batch_sizes", reveals="sums", by_site=sites_are_batches)
def local_batch_sizes(site: Site, column: Column, names: Labels) -> dict[str, Any]:
    """Leaves the site: its number of rows of each batch."""
    codes = batch_codes(rows_of(site), site.name, column, names)
    return {"sizes": np.bincount(codes, minlength=len(names))}


@transform("atlases.without_batch", frames=True)
def without_batch(X: Any, column: Column) -> Array:
    """Return the features of rows: all columns but the batch column."""
    return features_of(X, column)


def batch_names(fed: Federation, *, column: int) -> NDArray[np.str_]:
    """Return the names of the batches, sorted: those of the sites, or the values of a column."""
    if column < 0:
        return np.array(fed.sites, dtype=str)
    return names_in(fed, fed.ask(local_batch_names, column=column))


def names_in(run: Federation, replies: Replies) -> NDArray[np.str_]:
    """Return the different ``names`` in replies, sorted."""

    def check(reply: Message) -> Message:
        names = reply.get("names")
        if not isinstance(names, np.ndarray) or names.ndim != 1 or names.dtype.kind != "U":
            raise MessageError("names must be a list of texts")
        return reply

    accepted = run.accept(replies, check)
    refuse_failed_steps(accepted.failed)
    return np.unique(np.concatenate([reply["names"] for reply in accepted.ok.values()]))


def refuse_failed_steps(failed: Mapping[str, Failure]) -> None:
    """Refuse to go on without a site whose rows have no batch, or an unknown one: it would fail in every later call."""
    reasons = {site: failure.detail for site, failure in failed.items() if failure.kind is FailureKind.STEP_FAILED}
    if reasons:
        site, reason = next(iter(reasons.items()))
        more = f"; {len(reasons) - 1} more sites failed" if len(reasons) > 1 else ""
        raise InputError(f"the batches of site {site!r} can't be used: {reason}{more}")


def rows_of(site: Site) -> Any:
    """Return the rows of a site: its data frame, where it has one, or its values."""
    frame = site.frame
    return site.X if frame is None else frame


def features_of(X: Any, column: int) -> Array:
    """Return the columns of a table or frame but for the batch column, as numbers."""
    if hasattr(X, "iloc"):
        kept = [number for number in range(X.shape[1]) if number != column]
        frame = X.iloc[:, kept]
        try:
            return np.asarray(frame.to_numpy(dtype=np.float64, na_value=np.nan))
        except (TypeError, ValueError):
            texts = [str(name) for name, dtype in frame.dtypes.items() if getattr(dtype, "kind", "O") not in "buif"]
            raise InputError(f"the columns {', '.join(texts[:10])} hold text: leave them out, or encode them") from None
    return np.asarray(X) if column < 0 else np.delete(np.asarray(X), column, axis=1)


def labels_of(X: Any, column: int) -> NDArray[np.str_]:
    """Return the values of the batch column as text; whole numbers look alike whatever their type."""
    if column >= X.shape[1]:
        raise InputError(f"the batch column has the number {column}, and the rows have {X.shape[1]} columns")
    return texts_of(X.iloc[:, column].to_numpy() if hasattr(X, "iloc") else np.asarray(X)[:, column])


def texts_of(values: Array) -> NDArray[np.str_]:
    """Return values as text; whole numbers look alike whatever their type."""
    if values.dtype.kind in "fiub":
        numbers = values.astype(np.float64)
        if not np.isfinite(numbers).all():
            raise InputError(f"{(~np.isfinite(numbers)).sum()} rows have no batch: fill or drop them first")
        different, codes = np.unique(numbers, return_inverse=True)
        texts = [str(int(value)) if value == int(value) else repr(float(value)) for value in different]
        return np.array(texts, dtype=str)[codes]
    missing = sum(map(_missing, values.tolist()))
    if missing:
        raise InputError(f"{missing} rows have no batch: fill or drop them first")
    return np.array([str(value)[:LONGEST] for value in values.tolist()], dtype=str)


def batch_codes(X: Any, site: str, column: int, names: NDArray[np.str_]) -> Codes:
    """Return the number in `names` of the batch of each row: that of the site, or of its value in a column."""
    return codes_in(np.full(len(X), site) if column < 0 else labels_of(X, column), names)


def codes_in(labels: NDArray[np.str_], names: NDArray[np.str_]) -> Codes:
    """Return the number of each label in `names`."""
    known = {name: number for number, name in enumerate(names.tolist())}
    different, places = np.unique(labels, return_inverse=True)
    strangers = [name for name in different.tolist() if name not in known]
    if strangers:
        raise InputError(
            f"{len(strangers)} batches or labels of the rows are none of those that the model knows "
            f"({first_of(names)}): adapt(...) learns new ones"
        )
    return np.array([known[name] for name in different.tolist()], dtype=np.int64)[places]


def _missing(value: Any) -> bool:
    """Return whether a value is None, NaN, NaT or pandas.NA."""
    if isinstance(value, float):
        return bool(np.isnan(value))
    return value is None or type(value).__name__ in ("NaTType", "NAType")
