"""What the sites' tables have in common: the number of columns and their names."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedspan.federation import Federation, Site, step
from fedspan.protocols.blocks import n_columns


@step(ragged=["names"])
def local_columns(site: Site) -> dict[str, Any]:
    """Leaves the site: its number of columns and, for a data frame, their names."""
    names = site.feature_names
    return {"columns": n_columns(site), "names": None if names is None else np.array(names, dtype=str)}


@dataclass(frozen=True)
class Columns:
    """The columns of a federation's tables; `names` is ``None`` where they have none."""

    count: int
    names: tuple[str, ...] | None


def agree_on_columns(fed: Federation) -> tuple[Columns, Federation]:
    """Return the columns that most sites have, and the federation without the sites that say they have others.

    A site that does not answer stays: it may answer the next call. One that has other columns is left out with a
    warning, because its numbers would be added to those of other columns.
    """
    replies = fed.ask(local_columns)
    said: dict[str, Columns] = {}
    for name, reply in replies.ok.items():
        count, names = reply["columns"], reply["names"]
        if isinstance(count, int):
            said[name] = Columns(count, tuple(map(str, names)) if isinstance(names, np.ndarray) else None)
    common = Counter(said.values()).most_common(1)[0][0]
    others = [name for name, columns in said.items() if columns != common]
    if not others:
        return common, fed
    warnings.warn(f"left out, because their columns are not those of most sites: {', '.join(others)}", stacklevel=3)
    return common, fed.subset(name for name in fed.sites if name not in others)
