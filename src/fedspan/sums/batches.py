"""Batches of a stream: how much the rows before a batch still count, and whose rows of it have been counted.

A model that learns on keeps sums. Before those of a batch are added, the old ones are multiplied by a factor: `decay`,
or the factor that halves what rows count after `half_life` further rows. With 1 nothing is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.checks import real_number
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.sums.moments import local_sums
from fedspan.sums.row_moments import RowMoments

Vector = NDArray[np.float64]

#: A model remembers as many batches, to count none of them twice.
_REMEMBERED = 1000


def check_decay(decay: Any, half_life: Any) -> None:
    """Refuse a decay or half-life that is out of range, or both at once."""
    real_number("decay", decay, above=0, most=1)
    if half_life is not None:
        real_number("half_life", half_life, above=0, why=", the number of rows after which old ones count half")
        if decay != 1.0:
            raise InputError(f"decay={decay!r} and half_life={half_life!r} exclude each other: leave one of them out")


def factor_of(decay: float, half_life: float | None, fed: Federation) -> float:
    """Return the factor for old sums: `decay`, or that of `half_life` and the number of new rows."""
    if half_life is None:
        return float(decay)
    return float(0.5 ** (fed.sum(local_sums)["n"] / half_life))


def uncounted(batch: str | None, counted: Mapping[str, tuple[str, ...]], fed: Federation) -> Federation | None:
    """Return the federation of the sites whose rows of a batch are not yet counted; ``None`` if all are."""
    if batch is None:
        return fed
    if not isinstance(batch, str) or not batch:
        raise InputError(f"batch={batch!r} must be a name, such as '2026-11-16T18', or None")
    missing = [site for site in fed.sites if site not in counted.get(batch, ())]
    if not missing:
        return None
    return fed if len(missing) == len(fed.sites) else fed.subset(missing)


def with_batch(
    batch: str | None, counted: Mapping[str, tuple[str, ...]], sites: tuple[str, ...]
) -> dict[str, tuple[str, ...]]:
    """Return which sites' rows of which batches are counted, after those of `sites`."""
    found = dict(counted)
    if batch is not None:
        found[batch] = tuple(sorted({*found.pop(batch, ()), *sites}))
    return dict(list(found.items())[-_REMEMBERED:])


def kept_moments(rows: RowMoments) -> Vector:
    """Return moments as one array that a model keeps: number, weight, both parts of the mean, and products."""
    return np.concatenate([[float(rows.n), rows.weight], rows.centre, rows.shift, rows.scatter])


def known_moments(kept: Vector, d: int) -> RowMoments:
    """Undo `kept_moments`, of d columns."""
    return RowMoments(int(kept[0]), float(kept[1]), kept[2 : 2 + d], kept[2 + d : 2 + 2 * d], kept[2 + 2 * d :])


def learned_on(kept: Vector, d: int, new: RowMoments, factor: float) -> RowMoments:
    """Return the moments of rows before, which count by `factor`, and new ones."""
    return RowMoments.merged([known_moments(kept, d).scaled(factor), new])
