"""The log-rank test: whether groups of rows survive alike, by counts on a grid of times.

N. Mantel, "Evaluation of survival data and two new rank order statistics" (1966).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fedspan.arrays import Floats
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.statistics.describe.parts.table_columns import federation_of
from fedspan.statistics.survival.event_counts import EventCounts, checked_grid, event_counts, group_names
from fedspan.sums.columns import agree_on_columns, column_number


@dataclass(frozen=True)
class LogRank:
    """The result of a log-rank test: chi-square, degrees of freedom, p-value; by group observed and expected events."""

    statistic: float
    df: int
    p_value: float
    groups: tuple[str, ...]
    observed: Floats
    expected: Floats
    rows: NDArray[np.int64]


def log_rank(
    fed: Federation, *, by: int | str = 0, times: Sequence[float] | None = None, groups: Sequence[Any] | None = None
) -> LogRank:
    """Return the log-rank test of the groups in a column.

    Parameters
    ----------
    fed : Federation
        Its sites have times and events in ``y``.
    by : int or str, default=0
        The column of the groups, of numbers or text.
    times : sequence of numbers, optional
        The public grid; default: all times of events, which the sites then send: for embedded federations.
    groups : sequence, optional
        Names of the groups. Default: found out; secure sums need them here. Other rows are left out.

    Examples
    --------
    >>> import fedspan as fs
    >>> arm, y = np.repeat([0.0, 1.0], 4)[:, None], np.column_stack([np.arange(1.0, 9.0), np.ones(8)])
    >>> round(log_rank(fs.federate(arm, y, sites=[0, 1] * 4)).p_value, 4)
    0.0067
    """
    with federation_of(fed, "log_rank").begin("log_rank", {"by": by}) as run:
        columns, agreed = agree_on_columns(run, text=True)
        found = event_counts(
            agreed,
            times=None if times is None else checked_grid(times),
            by=column_number("by", by, columns.names, columns.count),
            groups=None if groups is None else group_names(groups),
        )
    return compared(found)


def compared(found: EventCounts) -> LogRank:
    """Return the test of counts; groups without rows take no part."""
    some = found.rows > 0
    if some.sum() < 2:
        raise InputError(
            f"the log-rank test compares two groups or more, and {some.sum()} has rows: name another column"
        )
    n, d = found.at_risk[some].astype(np.float64), found.events[some].astype(np.float64)
    every, deaths = n.sum(axis=0), d.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(every > 0, n / every, 0.0)
        # At the last row no event is a surprise: the variance there is zero.
        factor = np.where(every > 1, deaths * (every - deaths) / (every - 1), 0.0)
    expected = share @ deaths
    V = np.diag(share @ factor) - (share * factor) @ share.T
    left = (d.sum(axis=1) - expected)[:-1]
    statistic = float(left @ np.linalg.pinv(V[:-1, :-1], hermitian=True) @ left)
    df = int(some.sum()) - 1
    names = tuple(np.array(found.groups, dtype=object)[some])
    return LogRank(statistic, df, float(stats.chi2.sf(statistic, df)), names, d.sum(axis=1), expected, found.rows[some])
