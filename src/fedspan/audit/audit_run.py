"""Audits: every attack on what one coordinator received, and a search of all messages for rows, in one call."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedspan.arrays import Array
from fedspan.audit.attack_case import Case, case_of, through
from fedspan.audit.distance_attacks import on_distances, on_site_sums, on_totals
from fedspan.audit.k_means_attack import on_k_means_sums
from fedspan.audit.leak_card import LeakCard
from fedspan.audit.map_attacks import on_centres, on_histograms, on_positions
from fedspan.audit.received import Received, from_model, from_run
from fedspan.audit.row_measures import Bounds
from fedspan.audit.row_search import RowSearch
from fedspan.audit.sent_values import sent_values
from fedspan.audit.sums_attack import MOST_UNKNOWNS, small_enough
from fedspan.audit.true_table import NO_TABLE, true_table

#: All attacks, in the order of the card: functions of a `Case` that yield a `LeakEntry` for each way that has a target.
ATTACKS = (on_distances, on_totals, on_site_sums, on_positions, on_centres, on_histograms, on_k_means_sums)


def audit(
    source: Any,
    truth: Array | Mapping[str, Array] | None = None,
    *,
    public: Array | None = None,
    bounds: Bounds | None = None,
    image_shape: tuple[int, int] | None = None,
    landmarks: Array | None = None,
    model: Any = None,
    preprocess: Sequence[Any] = (),
) -> LeakCard:
    """Attack what the coordinator of a run received, and return what the attacks found.

    With the folder of a run and the `truth`, all messages in its journals are searched for rows, too, whatever protocol
    sent them (`fedspan.audit.row_search`).

    Parameters
    ----------
    source : fitted estimator, folder of a run, or Received
        A folder as a federation's ``run_dir`` has it: its journal holds what sites posted.
    truth : array (n, m) or dict of arrays by site, optional
        The true rows, to measure by, in the order of the model's rows. For a run, or a model that was fitted on a
        federation, they are in site order, then row order. Rows in another order, such as those of the table that was
        split, are matched with the nearest rebuilt ones, where these are good enough. Without the truth the card has
        what the attacker itself knows.
    public : array (k, m), optional
        Rows of the same kind that an attacker could have.
    bounds : (float, float), optional
        The least and the greatest value that the data may have. Rebuilt values are clipped to them, for PSNR. Default:
        those of the public rows; for images those of the true rows.
    image_shape : (int, int), optional
        Where a row is an image.
    landmarks : array (n_y, m), optional
        For a folder: ``landmarks_`` of the model that the run made. Default: computed from the journal, where possible.
    model : fitted estimator, optional
        For a folder: the model that the run made. A map of centres is attacked only with it.
    preprocess : sequence of fitted transformers, optional
        The steps before the model. `truth`, `public` and `bounds` are of rows before them. The coordinator knows these
        steps: where each can be undone, rows are rebuilt, and PSNR is measured, as they were before them.

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
        received = from_run(source, landmarks, model)
    else:
        received = from_model(source)
    known = (received.landmarks, received.sums)
    attacked = received.has_rows or bool(len(received.row_sites)) or any(found is not None for found in known)
    case = case_of(received, truth if attacked else None, public, bounds, image_shape, preprocess)
    entries = tuple(entry for attack in ATTACKS for entry in attack(case))
    remarks = [*_on_messages(case), *_on_totals(received), *_on_measures(case, given_bounds=bounds is not None)]
    if received.journals:
        search = _search(case, truth, preprocess)
        entries, remarks = (*entries, *search.entries), [*search.remarks, *remarks]
    return LeakCard(received.what, received.where, entries, tuple(remarks), order=case.order)


def _search(case: Case, truth: Any, preprocess: Sequence[Any]) -> RowSearch:
    """Search all messages of the run for the true rows, as they are and after each step of preprocessing."""
    sent = sent_values(case.received.journals)
    if truth is None:
        return RowSearch(sent, NO_TABLE, ())
    order = slice(None) if case.order is None else case.order
    table = true_table(truth).ordered(order, sent.sizes)
    tables = [table.numbers]
    for count in range(1, len(preprocess) + 1):
        parts = [truth[name] for name in sorted(truth)] if isinstance(truth, Mapping) else [truth]
        seen = np.concatenate([through(preprocess[:count], "transform", part) for part in parts])[order]
        tables += [seen.astype(np.float64)] if seen.ndim == 2 and seen.dtype.kind in "fiub" else []
    return RowSearch(sent, table, tables)


def _on_messages(case: Case) -> list[str]:
    """Return what was attacked, and what could not be."""
    received = case.received
    if received.map is not None or received.histograms:
        return _on_map(case)
    if received.k_means_sums is not None:
        return [
            "The attack is on the totals of k-means rounds. Parts of single sites, which the coordinator has where no "
            "secure sum hides them, reveal more."
        ]
    if received.distances is None:
        learned = ", and landmarks that were learned from sums" if received.landmarks is not None else ""
        none = f"No distances of rows to landmarks were found in {received.where}{learned}"
        if received.sums is not None or received.journals:
            return [f"{none}."]
        return [f"{none}. The messages of its run were not searched, which needs the run's folder (run_dir)."]
    return [] if case.truth is not None else ["The true rows were not given: the card has what the attacker can know."]


def _on_map(case: Case) -> list[str]:
    received = case.received
    found = []
    if received.map is None:
        where = "The centres are not in the journal"
        if received.k_means_sums is not None:
            where = "The centres are sums in the journal over their numbers of rows, along axes that follow from it"
        found.append(f"{where}: name the model of the run (--model, model=) to attack centres and positions, too.")
    elif received.kept_positions:
        found.append(
            "No positions were posted. But this journal was written where the sites are, and has their state: every "
            "row's position in every round. They were attacked like posted ones: protect the journal like the rows."
        )
    elif received.map.positions is None:
        found.append("No positions were posted: the attacks are on centres, k-means sums and histograms, if any.")
    missing = [name for name, rows in (("true", case.truth), ("public", case.public)) if rows is None]
    if missing:
        found.append(f"No {' and no '.join(missing)} rows were given: attacks that need them were left out.")
    return found


def _on_totals(received: Received) -> list[str]:
    """Return which of FedDL's totals were not attacked, which proves nothing."""
    sums = received.sums
    if sums is None:
        if received.landmarks is None or received.noise is not None:
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


def _on_measures(case: Case, *, given_bounds: bool) -> list[str]:
    """Return what limits the measures: noise, matched rows, missing public rows, the range of PSNR."""
    received, found = case.received, []
    if received.noise is not None:
        found.append(f"The run had noise, {received.noise}: its record states what that covers and what not.")
    if case.order is not None:
        found.append(
            "The true rows were given in another order than the rows were received in, which is site order, then row "
            "order. They were matched with the nearest rebuilt rows, and so measured."
        )
    if received.distances is not None and case.public is None:
        found.append("No public rows were given: an attacker that has some does better where rows are rebuilt in part.")
    if case.bounds is not None and not given_bounds and case.truth is not None:
        whose = "public" if case.public is not None else "true"
        step = 10.0 ** np.floor(np.log10(case.bounds[1] - case.bounds[0]) - 3)  # four digits of the range
        low, high = (f"{np.rint(bound / step) * step + 0.0:g}" for bound in case.bounds)
        found.append(f"PSNR is for values between {low} and {high}, the range of the {whose} rows.")
    return found
