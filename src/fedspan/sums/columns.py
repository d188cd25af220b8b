"""Agree on the columns of a federation: their number and their names."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from fedspan.checks import first_of, frames_inside, whole_number
from fedspan.errors import InputError
from fedspan.federation import Federation, Replies, Site, step, transform
from fedspan.federation.outcomes import by_reason
from fedspan.federation.site.parameters import Labels
from fedspan.sums.row_blocks import n_columns, width
from fedspan.wire import Message

WHY_LEFT_OUT = "their columns are not those of most sites"
HOW_TO_FIX = "; add, drop or rename columns there, or choose those that all sites have"


@step("sums.columns", reveals="nothing", ragged=["names"])
def local_columns(site: Site, text: bool) -> dict[str, Any]:
    """Leaves the site: its number of columns, of a data frame their names, and whether its rows have weights.

    Text is refused unless `text`.
    """
    return columns_of(site, width(site) if text else n_columns(site))


def columns_of(site: Site, count: int) -> dict[str, Any]:
    """Return a site's report on its `count` columns."""
    names = site.feature_names
    return {"columns": count, "names": None if names is None else np.array(names, dtype=str), "weighted": site.weighted}


@transform("sums.in_order", view=True, affine=True)
def in_order(site: Site, names: Labels) -> Site:
    """Show the columns of a data frame in the order of `names`; a site that has other names stays as it is."""
    return site.in_order(tuple(map(str, names)))


@dataclass(frozen=True)
class Columns:
    """The columns of a federation's tables; `names` is ``None`` where they have none.

    `weighted` states whether rows of some site have weights.
    """

    count: int
    names: tuple[str, ...] | None
    weighted: bool = False


def agree_on_columns(fed: Federation, *, text: bool = False) -> tuple[Columns, Federation]:
    """Return the columns of most sites, and the federation without the sites that have other columns.

    A site that has the same columns in another order sees them in that of most sites (`in_order`). A site with other
    columns fails, because its numbers would be added to those of other columns. The record shows it,
    and the quorum counts it. A site that does not answer stays: it may answer the next call. A table without names
    agrees with any names. `text` allows columns of text.
    """
    replies = fed.ask(local_columns, text=text)
    columns = columns_of_most(replies)

    def check(reply: Message) -> Message:
        reason = None if reordered(reply, columns) else other_columns(reply, columns)
        if reason is not None:
            raise InputError(reason)
        return reply

    accepted, fed = without_refused(replies, fed, check, WHY_LEFT_OUT, HOW_TO_FIX)
    if any(reordered(reply, columns) for reply in accepted.values()):
        fed = in_order_of(columns, fed)
    return replace(columns, weighted=any(reply.get("weighted") is True for reply in accepted.values())), fed


def in_order_of(columns: Columns, fed: Federation) -> Federation:
    """Return the federation whose sites see their columns in this order."""
    return fed.apply(in_order, names=np.array(columns.names, dtype=str))


def columns_of_most(replies: Mapping[Any, Message]) -> Columns:
    """Return the columns that most sites report."""
    counts = Counter(reply["columns"] for reply in replies.values() if isinstance(reply.get("columns"), int))
    count = max(counts, key=lambda found: (counts[found], -found), default=0)
    names = Counter(map(_names, replies.values()))
    fitting = (found for found in names if len(found) == count)
    return Columns(count, max(fitting, key=lambda found: (names[found], found), default=()) or None)


def reordered(reply: Message, columns: Columns) -> bool:
    """Return whether a site has the columns of most sites, each once, in another order."""
    own, common = _names(reply), columns.names or ()
    return own != common and len(set(own)) == len(own) == len(common) and set(own) == set(common)


def other_columns(reply: Message, columns: Columns) -> str | None:
    """Return how a site's columns differ from those of most sites; ``None`` if they do not."""
    own = _names(reply)
    if own and columns.names and own != columns.names:
        return _difference(own, columns.names)
    count = reply.get("columns")
    if type(count) is not int or count != columns.count:
        return f"it has {count!r:.40} columns, most sites have {columns.count}"
    return None


def left_out(refused: Mapping[str, str], fed: Federation, why: str, fix: str = "") -> Federation:
    """Return the federation without the sites that were refused, and warn of them."""
    if not refused:
        return fed
    warnings.warn(f"left out, because {why}: {by_reason(refused)}{fix}", stacklevel=frames_inside())
    return fed.subset(name for name in fed.sites if name not in refused)


def without_refused(
    replies: Replies, fed: Federation, check: Callable[[Message], Message], why: str, fix: str = ""
) -> tuple[Replies, Federation]:
    """Return the replies that `check` accepts, and the federation without the sites whose replies it refuses."""
    accepted = fed.accept(replies, check)
    others = {name: accepted.failed[name].detail for name in replies.ok if name not in accepted.ok}
    return accepted, left_out(others, fed, why, fix)


def _difference(own: tuple[str, ...], common: tuple[str, ...]) -> str:
    """Describe how the names of a site's columns differ from those of most sites."""
    lacks, more = [name for name in common if name not in own], [name for name in own if name not in common]
    if not lacks and not more:
        return "it has some of the columns of most sites twice"
    parts = [f"{verb} {first_of(map(repr, names))}" for verb, names in (("lacks", lacks), ("also has", more)) if names]
    return f"it {' and '.join(parts)}"


def column_number(what: str, value: Any, names: Sequence[Any] | None, columns: int) -> int:
    """Return the number of a column that a parameter gives by its name or number."""
    if not isinstance(value, str):
        return whole_number(what, value, 0, columns - 1, why=", the number of a column, or its name")
    known = list(map(str, names or ()))
    if known.count(value) != 1:
        number = "several columns" if value in known else "no column"
        shown = f"columns: {first_of(known, 20)}" if known else "the columns have no names"
        raise InputError(f"{what}={value!r} is the name of {number}; {shown}")
    return known.index(value)


def _names(reply: Message) -> tuple[str, ...]:
    names = reply.get("names")
    if not isinstance(names, np.ndarray) or names.ndim != 1:
        return ()
    return _texts(names.tobytes(), names.dtype.str) if names.dtype.kind == "U" else tuple(map(str, names))


@lru_cache(maxsize=64)
def _texts(data: bytes, dtype: str) -> tuple[str, ...]:
    """Return the names of an array's bytes: most sites send the same."""
    return tuple(map(str, np.frombuffer(data, dtype=dtype)))
