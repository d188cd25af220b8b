"""Agree on the columns of a federation: their number and their names."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedspan.errors import InputError
from fedspan.federation import Federation, Replies, Site, step
from fedspan.sums.row_blocks import n_columns, width
from fedspan.wire import Message


@step("sums.columns", reveals="nothing", ragged=["names"])
def local_columns(site: Site, text: bool) -> dict[str, Any]:
    """Leaves the site: its number of columns and, of a data frame, their names. Text is refused unless `text`."""
    names = site.feature_names
    return {
        "columns": width(site) if text else n_columns(site),
        "names": None if names is None else np.array(names, dtype=str),
    }


@dataclass(frozen=True)
class Columns:
    """The columns of a federation's tables; `names` is ``None`` where they have none."""

    count: int
    names: tuple[str, ...] | None


def agree_on_columns(fed: Federation, *, text: bool = False) -> tuple[Columns, Federation]:
    """Return the columns of most sites, and the federation without the sites that have other columns.

    A site with other columns fails, because its numbers would be added to those of other columns. The record shows it,
    and the quorum counts it. A site that does not answer stays: it may answer the next call. A table without names
    agrees with any names. `text` allows columns of text.
    """
    replies = fed.ask(local_columns, text=text)
    counts = Counter(reply["columns"] for reply in replies.values() if isinstance(reply["columns"], int))
    count = max(counts, key=lambda found: (counts[found], -found), default=0)
    names = Counter(_names(reply) for reply in replies.values() if len(_names(reply)) == count)
    common = max(names, key=lambda found: (names[found], found), default=())

    def check(reply: Message) -> Message:
        if reply["columns"] != count:
            raise InputError(f"this site has {reply['columns']} columns, most have {count}")
        if _names(reply) not in ((), common):
            raise InputError("this site's columns have other names, or another order, than those of most sites")
        return reply

    _, fed = without_refused(replies, fed, check, "their columns are not those of most sites")
    return Columns(count, common or None), fed


def without_refused(
    replies: Replies, fed: Federation, check: Callable[[Message], Message], why: str
) -> tuple[Replies, Federation]:
    """Return the replies that `check` accepts, and the federation without the sites whose replies it refuses."""
    accepted = fed.accept(replies, check)
    others = [name for name in replies.ok if name not in accepted.ok]
    if others:
        warnings.warn(f"left out, because {why}: {', '.join(others)}", stacklevel=3)
        fed = fed.subset(name for name in fed.sites if name not in others)
    return accepted, fed


def _names(reply: Message) -> tuple[str, ...]:
    names = reply["names"]
    return tuple(map(str, names)) if isinstance(names, np.ndarray) and names.ndim == 1 else ()
