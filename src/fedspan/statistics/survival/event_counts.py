"""Rows with a time and an event on a public grid of times: what each site counts.

An event counts at the first grid point that is not before it. A censored row is at risk at the grid points up to its
time. So on a grid that has all times of events the counts are those of the rows as they are. On a coarser grid they are
those of rows with events moved up, and censored times moved down, to the grid. An event after the last grid point is a
row that is at risk at all of them.

A site sends, by grid point, how many rows leave there and how many of them have the event. No time of a row leaves it,
unless the grid itself is to be found out (`event_times`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Array
from fedspan.checks import held, list_of
from fedspan.errors import InputError, MessageError, QuorumError
from fedspan.federation import Federation, Site, step
from fedspan.federation.outcomes import FailureKind
from fedspan.federation.site.parameters import ArrayOf, Vector
from fedspan.statistics.regression.parts.design_rows import Column
from fedspan.sums.plausible_totals import whole
from fedspan.tables.parts.category_union import Lines, category_union
from fedspan.tables.parts.cells import column, names, tables

Whole = NDArray[np.int64]

MOST_GROUPS = 100
MOST_TIMES = 1_000_000


class _Grid:
    """Rising, finite times."""

    @staticmethod
    def check(name: str, value: object) -> Vector:
        grid = ArrayOf("float", 1).check(name, value)
        if not (np.diff(grid) > 0).all() or len(grid) > MOST_TIMES:
            raise MessageError(f"{name} must be at most {MOST_TIMES} times, each after the previous one")
        return grid


Grid = Annotated[NDArray[np.float64], _Grid()]


def times_and_events(y: Array | None) -> tuple[Vector, Vector]:
    """Return times and events (1, or 0 where censored; NaN is neither) of targets, or refuse them."""
    if y is None:
        raise InputError("the site has no y: survival needs the time and the event of each row, as in federate(X, y)")
    if y.dtype.names is not None:
        y = pair(y)
    if y.ndim != 2 or y.shape[1] != 2:
        raise InputError(f"y must have two columns, time and event, and has the shape {y.shape}")
    try:
        values = y.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError("y holds text, and must hold times and events (1, censored 0)") from None
    return values[:, 0], values[:, 1]


def pair(y: Array) -> Vector:
    """Return a structured array of two fields as columns of time and event; the field of truth values is the event."""
    fields = list(y.dtype.names or ())
    if len(fields) != 2:
        raise InputError(f"y has the fields {fields}, and must have two: a time and an event")
    fields.sort(key=lambda name: y.dtype[name].kind == "b")
    return np.column_stack([y[name].astype(np.float64) for name in fields])


def usable(times: Vector, events: Vector) -> NDArray[np.bool_]:
    """Return which rows have a finite time of at least 0, and an event or none."""
    return np.asarray(np.isfinite(times) & (times >= 0) & np.isin(events, (0.0, 1.0)))


def last_at_risk(times: Vector, events: Vector, grid: Vector) -> tuple[Whole, NDArray[np.bool_]]:
    """Return the last grid point at which each row is at risk, -1 for none, and which rows have their event there."""
    happens = (events == 1) & (times <= grid[-1]) if len(grid) else np.zeros(len(times), dtype=np.bool_)
    at = np.where(happens, np.searchsorted(grid, times, "left"), np.searchsorted(grid, times, "right") - 1)
    return at.astype(np.int64), happens


def group_codes(site: Site, by: int, groups: str) -> Whole:
    """Return the position of each row's group among the names, one a line, -1 for others; 0 without groups."""
    if by < 0:
        return np.zeros(len(site), dtype=np.int64)
    known = {text: k for k, text in enumerate(groups.split("\n"))}
    found = [np.zeros(0, dtype=np.int64)]
    for rows in tables(site):
        texts, codes = names(column(rows, by))
        found.append(np.array([known.get(text, -1) for text in texts], dtype=np.int64)[codes])
    return np.concatenate(found)


def smallest_cell(site: Site, grid: Vector, by: int = -1, groups: str = "") -> int:
    """Return the fewest rows of a site that leave at one grid point, in one group, where any do."""
    at, happens = last_at_risk(*times_and_events(site.y), grid)
    code = group_codes(site, by, groups)
    _, counts = np.unique(np.column_stack([code, at, happens]), axis=0, return_counts=True)
    return int(counts.min(initial=len(site)))


@step("survival.event_times", reveals="rows", weighted=True, ragged=["times"])
def local_event_times(site: Site) -> dict[str, Any]:
    """Leaves the site: the times at which its rows have events, each once."""
    times, events = times_and_events(site.y)
    return {"times": np.unique(times[(events == 1) & np.isfinite(times)])}


@step("survival.counts", reveals="sums", counts=["n"], fewest=smallest_cell, fewest_in_sums=False)
def local_counts_on_grid(site: Site, grid: Grid, by: Column, groups: Lines) -> dict[str, Any]:
    """Leaves the site: by group and grid point, the rows that leave and those that have the event; rows of no use."""
    times, events = times_and_events(site.y)
    good = usable(times, events)
    at, happens = last_at_risk(times, events, grid)
    code = group_codes(site, by, groups)
    g, m = groups.count("\n") + 1, len(grid)
    leaving, happened, rows = np.zeros((g, m + 1), dtype=np.int64), np.zeros((g, m), dtype=np.int64), good & (code >= 0)
    np.add.at(leaving, (code[rows], at[rows] + 1), 1)
    np.add.at(happened, (code[rows & happens], at[rows & happens]), 1)
    bad = int((~good).sum())
    return {"n": int(rows.sum()), "leaving": leaving, "events": happened, "bad": bad, "others": int((code < 0).sum())}


@dataclass(frozen=True)
class EventCounts:
    """Counts by group and grid point: the grid (m,), names of the groups, rows at risk and events (g, m), rows (g,)."""

    grid: Vector
    groups: tuple[str, ...]
    at_risk: Whole
    events: Whole
    rows: Whole


def event_counts(
    fed: Federation, *, times: Vector | None = None, by: int = -1, groups: tuple[str, ...] | None = None
) -> EventCounts:
    """Return the rows at risk and the events on a grid, by group.

    Parameters
    ----------
    times : array (m,), optional
        The grid. Default: all times of events, which the sites then send.
    by : int, default=-1
        The column of the group; -1: all rows are one.
    groups : tuple of str, optional
        Names of the groups. Default: found out, which needs single replies.
    """
    grid = event_grid(times, fed)
    if by >= 0 and groups is None:
        found, fed = category_union(fed, wanted=np.array([by]), max_categories=MOST_GROUPS)
        groups = found[0]
        if not 0 < len(groups) <= MOST_GROUPS:
            raise InputError(f"the column of groups has {len(groups)} names, and must have 1 to {MOST_GROUPS}")
    known = groups if by >= 0 and groups is not None else ("all",)
    total = fed.sum(local_counts_on_grid, grid=grid, by=by, groups="\n".join(known))
    whole(total, leaving=(len(known), len(grid) + 1), events=(len(known), len(grid)))
    refuse_bad_events(total["bad"])
    if not total["n"] > 0:
        raise InputError("the sites have no rows of these groups: there is nothing to count")
    at_risk = np.cumsum(total["leaving"][:, :0:-1], axis=1)[:, ::-1]
    return EventCounts(grid, known, at_risk, total["events"], total["leaving"].sum(axis=1))


def event_grid(times: Vector | None, fed: Federation) -> Vector:
    """Return the grid that was named, or all times of events of the sites."""
    if times is not None:
        return checked_grid(times)
    fed.need_single_replies("times=None, which collects the times of all events,")
    try:
        replies = fed.ask(local_event_times)
    except QuorumError as error:
        if not any(failure.kind is FailureKind.REFUSED for failure in fed.record.calls[-1].failed.values()):
            raise
        raise InputError(
            f"times=None requests the times of all events, and sites refuse it: name a public grid, times=... ({error})"
        ) from None
    found = [np.asarray(reply["times"], dtype=np.float64) for reply in replies.values()]
    grid = np.unique(np.concatenate([np.zeros(0), *(one for one in found if one.ndim == 1)]))
    return grid if np.isfinite(grid).all() else grid[np.isfinite(grid)]


def checked_grid(times: Any) -> Vector:
    """Return times that were named as a grid, or refuse them."""
    try:
        grid = np.unique(np.asarray(times, dtype=np.float64))
    except (TypeError, ValueError):
        raise InputError(f"times={times!r} must be numbers, such as range(0, 1000, 7)") from None
    if grid.ndim != 1 or not len(grid) or not np.isfinite(grid).all():
        raise InputError("times must be one or more finite numbers, such as range(0, 1000, 7)")
    return grid


def refuse_bad_events(bad: int) -> None:
    """Refuse rows whose time is below 0 or not finite, or whose event is neither 0 nor 1."""
    if bad:
        raise InputError(
            f"y has {bad} rows whose time is below 0 or no finite number, or whose event is neither 1 nor 0 "
            "(censored): correct them, or leave them out"
        )


def checked_target(y: Any, n: int) -> Vector:
    """Return the targets of a table as columns of time and event, or refuse them."""
    if y is None:
        raise InputError("y is None, and must have the time and the event of each row: two columns, or two fields")
    array = np.asarray(held("y", y))
    times, events = times_and_events(array if array.dtype.names is None else pair(array))
    if len(times) != n:
        raise InputError(f"y has {len(times)} rows, and X has {n}")
    return np.column_stack([times, events])


def group_names(groups: Any) -> tuple[str, ...]:
    """Return names of groups as text, as cells of a table are named."""
    found = tuple(f"{one:g}" if isinstance(one, float) else str(one) for one in list_of("groups", groups, "names"))
    if not found or len(set(found)) < len(found):
        raise InputError(f"groups={groups!r} must be different names, one or more")
    return found
