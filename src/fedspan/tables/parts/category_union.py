"""The names in text columns: the union of what the sites have, capped by federated count.

Sums cannot give a union: names leave the sites, and the coordinator sees which site sent which. Each site sends the
names that at least `min_count` of its rows hold, at most 256 (or 8 `max_categories`) of them, the most frequent ones.
None has more than `LONGEST` characters. Then the rows of every name are counted, as a sum over the sites. A column with
more than `max_categories` names is an identifier rather than a kind. It keeps its most frequent names, and of these
only those that a share `rare` of the rows holds. All others are "other".

The result is that of the pooled rows, whatever the split, where ``min_count=1`` and no site has more names than it may
send. With `votes`, where some sites may be malicious, each site's counts are divided by their sum: it has one vote to
share among the names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import ArrayOf, Count, Text, Vector
from fedspan.gateway.cell_text import name
from fedspan.sums.columns import without_refused
from fedspan.tables.parts.cells import column, names, tables
from fedspan.tables.parts.column_kinds import by_site_or_sum
from fedspan.wire import Message

Names = tuple[tuple[str, ...], ...]
#: Column numbers, or lengths of lists, in a payload.
Naturals = Annotated[NDArray[np.int64], ArrayOf("whole", 1, least=0)]
#: Lists of names, one name a line (see `packed`), in a payload.
Lines = Annotated[str, Text(2**30)]

LONGEST = 200
_MOST_CANDIDATES = 4096


@dataclass(frozen=True)
class Categories:
    """The names kept of each text column, and the share of each, and of all others, among the cells not missing."""

    names: Names
    shares: tuple[Vector, ...]


@step("tables.category_names", reveals="rows")
def local_names(site: Site, wanted: Naturals, min_count: Count, most: Count) -> dict[str, Any]:
    """Leaves the site: of each wanted column, up to `most` names that at least `min_count` of its rows hold."""
    found = []
    for counts in _counted(site, wanted):
        fit = {text: n for text, n in counts.items() if n >= min_count and 0 < len(text) <= LONGEST}
        found.append(_largest(fit, most))
    return packed(found)


@step("tables.category_counts", reveals="sums")
def local_counts(site: Site, wanted: Naturals, names: Lines, sizes: Naturals) -> dict[str, Any]:
    """Leaves the site: of each wanted column, the rows that hold each of `names`, another name, or no name."""
    counts: list[int] = []
    for known, found in zip(unpacked(names, sizes), _counted(site, wanted), strict=True):
        mine = [found[text] for text in known]
        missing = 0 if "" in known else found[""]
        counts += [*mine, len(site) - missing - sum(mine), missing]
    return {"counts": np.array(counts, dtype=np.int64)}


def category_union(
    fed: Federation, *, wanted: Naturals, max_categories: int, min_count: int = 1
) -> tuple[Names, Federation]:
    """Return the sorted names of the columns `wanted`, and the federation without sites that broke the rules.

    These are candidates: `most_frequent` keeps `max_categories` of each column.
    """
    most = max(256, 8 * max_categories)
    replies = fed.ask(local_names, wanted=wanted, min_count=min_count, most=most)
    why = "they sent names of categories that they may not send"
    replies, fed = without_refused(replies, fed, lambda reply: _checked_names(reply, len(wanted), most), why)
    sent = [unpacked(reply["names"], reply["sizes"]) for reply in replies.values()]
    union = []
    for number in range(len(wanted)):
        sites = Counter(text for lists in sent for text in lists[number])
        # Bounded, so that the request of counts stays short with any number of sites: names of many sites first.
        union.append(tuple(sorted(_largest(sites, _MOST_CANDIDATES))))
    return tuple(union), fed


def most_frequent(
    fed: Federation,
    *,
    wanted: Naturals,
    candidates: Names,
    max_categories: int,
    rare: float = 0.0,
    fixed: Sequence[bool] = (),
    votes: bool = False,
) -> Categories:
    """Return the `candidates` of each column that are kept, and their shares; `fixed` columns keep all of them."""
    counts = by_site_or_sum(votes, fed, local_counts, wanted=wanted, **packed(candidates))["counts"]
    kept, shares, at = [], [], 0
    for number, known in enumerate(candidates):
        mine = np.maximum(counts[:, at : at + len(known) + 2], 0).astype(np.float64)
        mine = mine[mine.sum(axis=1) > 0]
        # The mean over the sites of the share of each name, of other names, and of missing cells.
        share = (mine / mine.sum(axis=1, keepdims=True)).mean(axis=0) if len(mine) else np.zeros(mine.shape[1])
        at += len(known) + 2
        chosen = np.arange(len(known))
        if len(known) > max_categories and not (fixed and fixed[number]):
            order = np.argsort(-share[: len(known)], kind="stable")[:max_categories]
            chosen = np.sort(order[share[order] >= rare])
        kept.append(tuple(known[i] for i in chosen))
        present = 1.0 - share[-1] or 1.0
        shares.append(np.append(share[chosen], max(0.0, present - share[chosen].sum())) / present)
    return Categories(tuple(kept), tuple(shares))


def packed(lists: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Return lists of names as a message: one text with a line for each name, and the length of each list."""
    sizes = np.array([len(texts) for texts in lists], dtype=np.int64)
    return {"names": "\n".join(text for texts in lists for text in texts), "sizes": sizes}


def unpacked(names: str, sizes: Naturals) -> Names:
    """Undo `packed`."""
    lines = iter(names.split("\n"))
    return tuple(tuple(next(lines) for _ in range(int(size))) for size in sizes)


def _counted(site: Site, wanted: Naturals) -> list[Counter[str]]:
    """Return the number of rows of each name, column by column; missing cells have the name ""."""

    def count() -> list[Counter[str]]:
        found: list[Counter[str]] = [Counter() for _ in wanted]
        for rows in tables(site):
            for counter, j in zip(found, wanted.tolist(), strict=True):
                texts, codes = names(column(rows, j))
                counter.update(dict(zip(texts, np.bincount(codes, minlength=len(texts)).tolist(), strict=True)))
        return found

    return site.cached(f"names in columns {wanted.tolist()}", count)


def _largest(counts: Mapping[str, int], most: int) -> list[str]:
    """Return the `most` names with the largest counts, the largest first; equal ones in the order of the text."""
    return sorted(counts, key=lambda text: (-counts[text], text))[:most]


def _checked_names(reply: Message, lists: int, most: int) -> Message:
    sizes, text = reply["sizes"], reply["names"]
    right = isinstance(text, str) and isinstance(sizes, np.ndarray) and sizes.shape == (lists,)
    if not right or sizes.dtype.kind not in "iu" or sizes.min(initial=0) < 0:
        raise InputError("this site's names of categories are not a text and the number of names of each column")
    if sizes.max(initial=0) > most:
        raise InputError(f"this site sent {sizes.max()} names of one column, and may send {most}")
    lines = text.split("\n") if text else []
    if len(lines) != sizes.sum() or any(not line or name(line) != line for line in lines):
        raise InputError("this site sent other names of categories than it announced, or names that no cell can have")
    if max(map(len, lines), default=0) > LONGEST:
        raise InputError(f"this site sent a name of more than {LONGEST} characters")
    return reply
