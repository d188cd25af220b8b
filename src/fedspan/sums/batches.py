"""Batches of a stream: how much the rows before a batch still count, and whose rows of it have been counted.

A model that learns on keeps sums. Before those of a batch are added, the old ones are multiplied by a factor: `decay`,
or the factor that halves what rows count after `half_life` further rows, or after that time. With 1 nothing is
forgotten.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from fedspan.arrays import Matrix, Vector
from fedspan.checks import duration, real_number
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.sums.moments import local_sums
from fedspan.sums.row_moments import RowMoments, packed, unpacked

#: The number of batches that a model remembers, so that it counts none twice.
_REMEMBERED = 1000
#: Half-lives after which late rows count no less: a millionth part.
_LATEST = 20.0


@dataclass(frozen=True)
class Fading:
    """What rows before a batch count from now on: by a factor, by a number of rows, or by seconds.

    `at` is the time of the batch in seconds since 1970; ``None`` where time does not matter.
    """

    decay: float = 1.0
    rows: float | None = None
    seconds: float | None = None
    at: float | None = None

    @classmethod
    def of(cls, decay: Any = 1.0, half_life: Any = None, at: Any = None) -> Fading:
        """Return it from the parameters of ``partial_fit``; refuse what is not a factor, number of rows or time."""
        real_number("decay", decay, above=0, most=1)
        if half_life is not None and decay != 1.0:
            raise InputError(f"decay={decay!r} and half_life={half_life!r} exclude each other: leave one of them out")
        when = None if at is None else _seconds(at)
        if isinstance(half_life, str | timedelta):
            return cls(seconds=duration("half_life", half_life), at=time.time() if when is None else when)
        if half_life is not None:
            why = ", the number of rows after which old ones count half, or a time such as '6h'"
            return cls(rows=real_number("half_life", half_life, above=0, why=why), at=when)
        return cls(float(decay), at=when)

    def factor(self, fed: Federation, before: float | None, *, begun: bool = False) -> float:
        """Return the factor for old sums, the newest of which are of the time `before`; above 1 for a late batch.

        So late rows count as if they had come in time: sums are in weights of the time of the last batch.
        `begun`: other sites have sent their rows of this batch before, and `decay` counts once for each batch.
        """
        if self.rows is not None:
            return float(0.5 ** (fed.sum(local_sums)["n"] / self.rows))
        if self.seconds is None or self.at is None or before is None:
            return 1.0 if begun else self.decay
        return float(0.5 ** ((self.counted_at(before) - before) / self.seconds))

    def counted_at(self, before: float) -> float:
        """Return the time of the sums after this batch; rows that are later than 20 half-lives count as if of these."""
        assert self.at is not None
        return max(self.at, before - _LATEST * self.seconds) if self.seconds else max(self.at, before)

    def latest(self, before: float | None) -> float | None:
        """Return the time of the sums, after this batch."""
        return before if self.at is None else self.at if before is None else self.counted_at(before)


def _seconds(at: Any) -> float:
    """Return a time as seconds since 1970; a time without a zone is local."""
    try:
        if isinstance(at, str):
            return datetime.fromisoformat(at).timestamp()
        return float(at.timestamp()) if hasattr(at, "timestamp") else real_number("at", at)
    except (ValueError, OverflowError):
        raise InputError(f"at={at!r} must be a time, such as '2026-11-16T18:00', or seconds since 1970") from None


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
        counted_sites = tuple(sorted({*found.pop(batch, ()), *sites}))
        last = next(reversed(found.values()), ())
        found[batch] = last if last == counted_sites else counted_sites  # one object for many batches
    return dict(list(found.items())[-_REMEMBERED:])


def kept_moments(rows: RowMoments) -> Vector:
    """Return moments as one array that a model keeps: number, weight, both parts of the mean, and products."""
    return np.concatenate([[float(rows.n), rows.weight], rows.centre, rows.shift, rows.scatter])


def known_moments(kept: Vector, d: int) -> RowMoments:
    """Undo `kept_moments`, of d columns."""
    return RowMoments(int(kept[0]), float(kept[1]), kept[2 : 2 + d], kept[2 + d : 2 + 2 * d], kept[2 + 2 * d :])


def in_other_units(kept: Vector, d: int, factor: Vector, shift: Vector) -> Vector:
    """Return kept moments of d columns as those of ``factor x + shift``."""
    rows = known_moments(kept, d)
    scatter = rows.scatter * (packed(np.outer(factor, factor)) if rows.has_products else factor**2)
    moved = RowMoments(rows.n, rows.weight, factor * rows.centre + shift, factor * rows.shift, scatter)
    return kept_moments(moved)


def mixed_columns(kept: Vector, mixing: Matrix, shift: Vector) -> Vector:
    """Return kept moments of rows x as those of ``mixing x + shift``, if they have products of columns."""
    rows = known_moments(kept, len(shift))
    if not rows.has_products:
        return kept
    scatter = packed(mixing @ unpacked(rows.scatter) @ mixing.T)
    return kept_moments(RowMoments(rows.n, rows.weight, mixing @ rows.centre + shift, mixing @ rows.shift, scatter))


def learned_on(kept: Vector, d: int, new: RowMoments, factor: float) -> RowMoments:
    """Return the moments of rows before, which count by `factor`, and new ones."""
    return RowMoments.merged([known_moments(kept, d).scaled(factor), new])
