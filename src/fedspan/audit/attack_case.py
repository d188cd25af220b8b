"""One case for the attacks: what was received, what the attacker knows besides, and the truth to measure by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from fedspan.arrays import Array
from fedspan.audit.leak_card import LeakEntry
from fedspan.audit.received import Received, without_names
from fedspan.audit.row_measures import Bounds, check_bounds, matched_order, psnr, reidentified, relative_error
from fedspan.audit.trilateration import Rebuilt, trilaterate
from fedspan.errors import InputError
from fedspan.linalg.kernels.gaussian_kernel import squared_distances

#: The attacker's own estimate of its error, as a part of the measured error, below which the two contradict each other.
_DOUBTFUL = 0.8


@dataclass(frozen=True)
class Case:
    """What was received, and what is known besides it (`case_of` makes one).

    Attributes
    ----------
    received : Received
    truth, public : array (n, m), array (k, m), optional
        The true rows, to measure by (no attack uses them), and the attacker's own rows; both as the model sees them.
    bounds : (float, float), optional
        The least and the greatest value of the data, before any preprocessing.
    undo : callable, optional
        From rows as the model saw them to rows before preprocessing, where that is possible.
    order : array (n,), optional
        Where the truth was given in another order: its row that each row of `truth` is.
    """

    received: Received
    truth: Array | None = field(default=None, repr=False)
    public: Array | None = field(default=None, repr=False)
    bounds: Bounds | None = None
    undo: Callable[[Array], Array] | None = field(default=None, repr=False)
    order: Array | None = field(default=None, repr=False)

    @cached_property
    def rebuilt(self) -> Rebuilt | None:
        """Rows by trilateration, from which several attacks start."""
        found = self.received
        if found.distances is None or found.landmarks is None:
            return None
        return trilaterate(found.distances, found.landmarks, cut=0.0 if found.exact else "auto")

    @cached_property
    def in_doubt(self) -> bool:
        """Whether rows fit their distances and are far from the true ones, so that these may be in another order.

        Noise on the rows has the same effect, and is no reason for doubt.
        """
        found, noise = self.rebuilt, self.received.noise
        if found is None or self.truth is None or (noise is not None and noise.on_rows):
            return False
        error = relative_error(found.rows, self.truth)
        return error >= 1 and found.outside < _DOUBTFUL * error

    def entry(self, rows: Array, attack: str, target: str, knows: str, verdict: str = "", **facts: Any) -> LeakEntry:
        """Return the entry of an attack that rebuilt `rows`, measured where the truth is known."""
        known = self.truth is not None
        found, base = (self._measures(rows), self.baseline) if known else ({}, {})
        doubtful = found.get("relative_error", 0.0) >= 1 and self.in_doubt
        verdict = verdict or _verdict(found, facts, doubtful=doubtful)
        return LeakEntry(attack, target, knows, verdict, found, base, facts, self.raw(rows))

    def raw(self, rows: Array) -> Array:
        """Return rows in the units that they had before preprocessing, where that can be undone."""
        return rows if self.undo is None or not len(rows) else self.undo(rows)

    @cached_property
    def baseline(self) -> dict[str, float]:
        """Measures of the mean row as a guess for all."""
        assert self.truth is not None
        return self._measures(np.tile(self.truth.mean(axis=0), (len(self.truth), 1)))

    def _measures(self, rows: Array) -> dict[str, float]:
        assert self.truth is not None
        found = {"relative_error": relative_error(rows, self.truth)}
        if self.bounds is not None:
            found["psnr"] = psnr(self.raw(rows), self.raw(self.truth), self.bounds)
        return {**found, "reidentified": self._recognised(rows)}

    def _recognised(self, rows: Array) -> float:
        """Return the share of rows that a list of candidates recognises, by what was rebuilt or by their distances.

        What was rebuilt lacks a row's part outside the landmarks, whose length distances have.
        """
        assert self.truth is not None
        named, found, own = reidentified(rows, self.truth), self.received, self.rebuilt
        if own is None or rows is not own.rows:
            return named
        assert found.landmarks is not None
        assert found.distances is not None
        apart = np.sqrt(squared_distances(self.truth - own.centre, found.landmarks - own.centre))
        return max(named, reidentified(found.distances, self.truth, apart))


def case_of(
    received: Received,
    truth: Any = None,
    public: Any = None,
    bounds: Bounds | None = None,
    image_shape: tuple[int, int] | None = None,
    preprocess: Sequence[Any] = (),
) -> Case:
    """Check what the caller gave (see `fedspan.audit.audit`), and settle the bounds and the order of the true rows."""
    can_undo = all(hasattr(step, "inverse_transform") for step in preprocess)
    undo = partial(through, tuple(reversed(preprocess)), "inverse_transform") if preprocess and can_undo else None
    if not can_undo and (bounds is not None or image_shape is not None):
        raise InputError(
            "bounds and image_shape are of rows before preprocessing, which can't be undone here: leave them out"
        )
    if image_shape is not None and received.columns not in (None, int(np.prod(image_shape))):
        raise InputError(
            f"image_shape={tuple(image_shape)} has {int(np.prod(image_shape))} pixels, and rows have "
            f"{received.columns} columns"
        )
    rows = None if truth is None else _true_rows(received, truth, preprocess)
    if bounds is not None:
        bounds = check_bounds(bounds)
    elif public is not None and np.size(public) and can_undo:
        bounds = _range_of(np.asarray(public))
    elif rows is not None and image_shape is not None:
        bounds = _range_of(rows if undo is None else undo(rows))
    seen = None if public is None else through(preprocess, "transform", public)
    case = Case(received, rows, seen, bounds, undo)
    if rows is None or isinstance(truth, Mapping) or case.rebuilt is None:
        return case
    order = matched_order(case.rebuilt.rows, rows)
    if order is None or np.array_equal(rows[order], rows):
        return case
    return replace(case, truth=rows[order], order=order)


def through(steps: Sequence[Any], method: str, rows: Any) -> Array:
    """Return rows after each step of a pipeline has applied its `method` to them."""
    with without_names():
        for step in steps:
            rows = getattr(step, method)(rows)
    return np.asarray(rows)


def _range_of(rows: Array) -> Bounds | None:
    low, high = float(np.min(rows)), float(np.max(rows))
    return (low, high) if low < high else None


def _true_rows(received: Received, truth: Any, preprocess: Sequence[Any]) -> Array:
    if isinstance(truth, Mapping):
        rows = received.rows_of({name: through(preprocess, "transform", part) for name, part in truth.items()})
    else:
        rows = received.rows_of(through(preprocess, "transform", truth))
    columns = rows.shape[-1] if received.columns is None else received.columns
    if rows.ndim != 2 or rows.shape[1] != columns or rows.dtype.kind not in "fiub":
        raise InputError(f"truth has the shape {rows.shape}, and must have rows of {columns} numbers")
    rows = np.asarray(rows, dtype=np.float64)
    if not np.isfinite(rows).all():
        raise InputError("truth must hold finite numbers only")
    return np.ascontiguousarray(rows)


def _verdict(found: Mapping[str, float], facts: Mapping[str, Any], *, doubtful: bool) -> str:
    """State what an attack means for the rows."""
    if not found:
        if facts.get("determined"):
            return "The distances fix every row: the coordinator has the rows, up to rounding and noise."
        share = facts.get("estimated_relative_error")
        if share is None:
            return "Rows were rebuilt; without the true ones their error is unknown."
        return (
            f"Rows are rebuilt in {facts['directions']} of at most {facts['columns']} directions; from the distances "
            f"alone the attacker knows to be off by {share:.2g} of the rows' spread."
        )
    error, named = found["relative_error"], found["reidentified"]
    if doubtful:
        return (
            f"Nothing can be concluded: the rebuilt rows agree with the distances, and are {error:.2g} of the spread "
            "off the given true rows. Are these the rows of this run, in site order, then row order? Give them by site "
            "(the study, or truth={site: rows})."
        )
    if error < 1e-3:
        return f"Every row is rebuilt, to {error:.1g} of the rows' spread: the coordinator has the data."
    if named >= 0.5:
        return f"{named:.1%} of the rows are recognised among all ({error:.2g} of the spread off)."
    if error < 0.9:
        return f"Rows are rebuilt in part ({error:.2g} of the spread off), and {named:.1%} of them are recognised."
    if error < 1:
        return f"Little more than the mean row was found ({error:.2g} of the spread off; {named:.1%} recognised)."
    return (
        f"The attack failed: the mean row is a better guess. {named:.1%} are recognised; another attack may do better."
    )
