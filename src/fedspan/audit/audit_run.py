"""One call that attacks what a coordinator received with everything there is."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.audit.leak_card import LeakCard
from fedspan.audit.received_run import Received, from_model, from_run
from fedspan.audit.row_attacks import ATTACKS, Case
from fedspan.audit.row_matching import matched_order
from fedspan.audit.row_measures import Bounds, check_bounds
from fedspan.audit.sums_attack import MOST_UNKNOWNS, Sums, small_enough
from fedspan.errors import InputError

Array = NDArray[Any]


def audit(
    source: Any,
    *,
    truth: Array | Mapping[str, Array] | None = None,
    public: Array | None = None,
    bounds: Bounds | None = None,
    image_shape: tuple[int, int] | None = None,
    landmarks: Array | None = None,
    model: Any = None,
    sums: Callable[[Path], Sums | None] | None = None,
    preprocess: Sequence[Any] = (),
) -> LeakCard:
    """Attack what the coordinator of a run received, and return what came of it.

    Parameters
    ----------
    source : fitted estimator, folder of a run, or Received
        A folder as a federation's ``run_dir`` has it: its journal holds what sites posted.
    truth : array (n, m) or dict of arrays by site, optional
        The true rows, to measure by: in the order of the model's rows (of a run, or of a model that was fitted on a
        federation: in site order, then row order). Of rows in another order, as those of the table that was split,
        rows that were rebuilt well are found by the nearest. Without them the card says what the attacker itself
        knows.
    public : array (k, m), optional
        Rows of the same kind that an attacker could have.
    bounds : (float, float), optional
        The least and the greatest value that the data may have. Rebuilt values are clipped to them, for PSNR. Default:
        those of the public rows; of images those of the true rows.
    image_shape : (int, int), optional
        Where a row is an image.
    landmarks : array (n_y, m), optional
        Of a folder: ``landmarks_`` of the model that the run made.
    model : fitted estimator, optional
        Of the folder of a map of centres: the model that the run made, which has them.
    sums : callable, optional
        Of a folder: `fedspan.audit.replayed_landmarks.replayed_sums`, which computes from a journal what FedDL's
        totals were about, so that they are attacked, too. ``fedspan audit`` does so.
    preprocess : sequence of fitted transformers, optional
        What rows went through before the model. `truth`, `public` and `bounds` are of rows before it. The coordinator
        knows these steps: where each can be undone, rebuilt rows are given, and PSNR is measured, as before it.

    Returns
    -------
    LeakCard
        Relative error and re-identification are of rows as the model saw them.

    Examples
    --------
    >>> import fedspan as fs
    >>> X = np.random.default_rng(0).normal(size=(60, 5))
    >>> model = fs.FedSpectralClustering(2, n_landmarks=20, rounds=5, random_state=0).fit(X, sites=np.arange(60) % 3)
    >>> card = audit(model, truth=X)
    >>> card.entries[0].attack, card.entries[0].measures["reidentified"]
    ('trilateration', 1.0)
    """
    if isinstance(source, Received):
        received = source
    elif isinstance(source, str | os.PathLike):
        received = from_run(source, landmarks, model, sums)
    else:
        received = from_model(source)
    case = _case(received, truth, public, bounds, image_shape, preprocess)
    entries = [entry for attack in ATTACKS if (entry := attack(case)) is not None]
    return LeakCard(received.what, received.where, tuple(entries), _remarks(case, bounds), order=case.order)


def _case(
    received: Received,
    truth: Any,
    public: Any,
    bounds: Bounds | None,
    image_shape: tuple[int, int] | None,
    preprocess: Sequence[Any],
) -> Case:
    """Check what is given, and settle the bounds."""
    undo = _undo(preprocess)
    if undo is None and preprocess and (bounds is not None or image_shape is not None):
        raise InputError("bounds and image_shape are of rows before preprocessing, which cannot be undone here")
    if bounds is not None:
        bounds = check_bounds(bounds)
    elif public is not None and np.size(public) and undo is not None:
        bounds = float(np.min(public)), float(np.max(public))
    rows = None if truth is None else _true_rows(received, truth, preprocess)
    if rows is not None and image_shape is not None and bounds is None:
        raw = rows if undo is None else undo(rows)
        bounds = float(raw.min()), float(raw.max())
    if image_shape is not None and received.columns is not None:
        pixels, columns = int(np.prod(image_shape)), received.columns
        if pixels != columns:
            raise InputError(f"image_shape={tuple(image_shape)} has {pixels} pixels, and rows have {columns} columns")
    if bounds is not None and not bounds[0] < bounds[1]:
        bounds = None
    case = Case(received, rows, None if public is None else _seen(public, preprocess), bounds, undo)
    if rows is None or isinstance(truth, Mapping) or case.rebuilt is None:
        return case
    order = matched_order(case.rebuilt.rows, rows)
    if order is None or np.array_equal(rows[order], rows):
        return case
    return replace(case, truth=rows[order], order=order)


def _seen(rows: Any, preprocess: Sequence[Any]) -> Array:
    """Return rows as the model sees them."""
    with _rows_without_names():
        for step in preprocess:
            rows = step.transform(rows)
    return np.asarray(rows)


def _undo(preprocess: Sequence[Any]) -> Callable[[Array], Array] | None:
    """Return what leads from rows as the model sees them to rows before preprocessing, or None."""
    if not all(hasattr(step, "inverse_transform") for step in preprocess):
        return None

    def undo(rows: Array) -> Array:
        with _rows_without_names():
            for step in reversed(preprocess):
                rows = step.inverse_transform(rows)
        return np.asarray(rows)

    return undo


@contextmanager
def _rows_without_names() -> Iterator[None]:
    """Say nothing of missing column names: rebuilt rows have none."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        yield


def _true_rows(received: Received, truth: Any, preprocess: Sequence[Any]) -> Array:
    if isinstance(truth, Mapping):
        truth = {name: _seen(part, preprocess) for name, part in truth.items()}
    else:
        truth = _seen(truth, preprocess)
    rows = received.rows_of(truth)
    columns = rows.shape[-1] if received.columns is None else received.columns
    if rows.ndim != 2 or rows.shape[1] != columns or rows.dtype.kind not in "fiub":
        raise InputError(f"truth has the shape {rows.shape}, and must have rows of {columns} numbers")
    rows = np.asarray(rows, dtype=np.float64)
    if not np.isfinite(rows).all():
        raise InputError("truth must hold finite numbers only")
    return rows


def _of_maps(case: Case) -> list[str]:
    received = case.received
    found = []
    if received.map is None:
        has = (
            "The centres are the sums in the journal over their numbers of rows, along axes that follow from its sum "
            "of products"
            if received.k_means_sums is not None
            else "The centres are not in the journal"
        )
        found.append(
            f"{has}: name the model that the run made (--model, model=), and centres and positions are attacked, too."
        )
    elif received.kept_positions:
        found.append(
            "No positions were posted. But this journal was written where the sites are, and has their state: every "
            "row's position in every round. They were attacked like posted ones; who may not see them may not see this "
            "journal."
        )
    elif received.map.positions is None:
        sums = ", k-means sums" if received.k_means_sums is not None else ""
        found.append(
            f"No positions were posted: what is attacked are centres{sums}, and histograms where there are any."
        )
    if case.truth is None or case.public is None:
        missing = [name for name, rows in (("true", case.truth), ("public", case.public)) if rows is None]
        found.append(f"No {' and no '.join(missing)} rows were given: attacks that need them were left out.")
    return found


def _of_sums(received: Received) -> list[str]:
    """Say which of FedDL's totals were not attacked, and that this proves nothing."""
    sums = received.sums
    if sums is None:
        if received.landmarks is None or received.privacy:
            return []
        return [
            "The totals of FedDL's rounds are in the run's journal and not here, and were not attacked: of few rows "
            "they give away the rows, also under a secure sum."
        ]
    if small_enough(sums):
        return []
    return [
        f"FedDL's totals hold {sums.equations} numbers about {sums.n} rows, which have {sums.unknowns}: they were not "
        f"attacked. The attack on totals is for up to {MOST_UNKNOWNS}, of fewer than the totals hold; it rebuilds few "
        "rows exactly, and a stronger one may do more."
    ]


def _remarks(case: Case, given: Any) -> tuple[str, ...]:
    found = []
    received = case.received
    if received.map is not None or received.histograms:
        found += _of_maps(case)
    elif received.k_means_sums is not None:
        found.append(
            "What is attacked are the totals of k-means rounds; parts of single sites, which the coordinator has where "
            "no secure sum hides them, say more."
        )
    elif received.distances is None:
        kept = ", and landmarks that were learned from sums" if received.landmarks is not None else ""
        found.append(
            f"No distances of rows to landmarks were found in {received.where}{kept}: nothing that this audit knows to "
            "rebuild rows from. Other messages were not attacked, and this is no proof that they are harmless."
            if received.sums is None
            else f"No distances of rows to landmarks were found in {received.where}{kept}."
        )
    elif case.truth is None:
        found.append("The true rows were not given: what is said is what the attacker itself can know.")
    found += _of_sums(received)
    if received.privacy:
        found.append(f"The run had noise, {received.privacy}: what it covers and what not is in the run's record.")
    if case.order is not None:
        found.append(
            "The true rows were given in another order than the rows were received in, which is site order, then row "
            "order. They were found by the nearest rebuilt rows, and the measures are of rows so matched."
        )
    if received.distances is not None and case.public is None:
        found.append("No public rows were given: an attacker who has some does better where rows are rebuilt in part.")
    if case.bounds is not None and given is None and case.truth is not None:
        whose = "public" if case.public is not None else "true"
        low, high = _rounded(*case.bounds), _rounded(*case.bounds[::-1])
        found.append(f"PSNR is for values between {low} and {high}, the range of the {whose} rows.")
    return tuple(found)


def _rounded(bound: float, other: float) -> str:
    """Return a bound to four digits of the range; what rounding left of 0 is 0."""
    step = 10.0 ** np.floor(np.log10(abs(bound - other)) - 3)
    return f"{np.rint(bound / step) * step + 0.0:g}"
