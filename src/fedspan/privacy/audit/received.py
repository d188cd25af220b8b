"""What a coordinator holds after a run, as far as attacks know what to do with it.

It is read from where it is kept: the journal of a run, or a fitted or saved model. A new attack on something else adds
a field here, and where that is found.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.federation.journal_reading import read_journal
from fedspan.linalg.landmark_form import FARTHEST, landmark_form

Array = NDArray[Any]


@dataclass(frozen=True)
class Received:
    """What the coordinator holds.

    Attributes
    ----------
    what : str
        The estimator or protocol that ran.
    where : str
        Where it was found: a journal or a model.
    sites : tuple of str
    row_sites : array (n,)
        Number of each row's site in `sites`.
    landmarks : array (n_y, m), optional
    distances : array (n, n_y), optional
        Of rows to landmarks.
    privacy : str
        The run's noise and its epsilon, in words; empty where there was none.
    """

    what: str
    where: str
    sites: tuple[str, ...] = ()
    row_sites: Array = field(default_factory=lambda: np.empty(0, dtype=np.int32), repr=False)
    landmarks: Array | None = field(default=None, repr=False)
    distances: Array | None = field(default=None, repr=False)
    privacy: str = ""

    @property
    def noise_on_rows(self) -> bool:
        """Whether rows had noise before anything was computed of them, so that nobody can rebuild the true ones."""
        return self.privacy.startswith("GaussianData")

    def rows_of(self, truth: Array | Mapping[str, Array]) -> Array:
        """Return true rows in the order of those received; `truth` is in that order, or has the rows of each site."""
        n = len(self.row_sites)
        if isinstance(truth, Mapping):
            return self._rows_by_site({name: np.asarray(rows) for name, rows in truth.items()})
        rows = np.asarray(truth)
        if self.distances is not None and rows.shape[:1] != (n,):
            raise InputError(f"truth has {len(rows)} rows, and {n} were received: give them by site, or in their order")
        return rows

    def _rows_by_site(self, truth: Mapping[str, Array]) -> Array:
        if self.distances is None:
            return np.concatenate([truth[name] for name in sorted(truth)])
        columns = next((rows.shape[1] for rows in truth.values() if rows.ndim == 2), 0)
        found = np.empty((len(self.row_sites), columns))
        for number, name in enumerate(self.sites):
            mine = self.row_sites == number
            expected = (int(mine.sum()), columns)
            if mine.any() and (name not in truth or truth[name].shape != expected):
                has = f"the shape {truth[name].shape}" if name in truth else "nothing"
                raise InputError(f"truth has {has} for site {name!r}, which posted {expected[0]} rows")
            if mine.any():
                found[mine] = truth[name]
        return found


def from_model(model: Any) -> Received:
    """Return what a fitted estimator holds of the rows.

    The arrays of a map or clustering by landmarks are those from which new rows are compared with old ones, in
    whatever method's form; each form gives the distances to the landmarks back.
    """
    name = type(model).__name__
    sites = getattr(model, "sites_", None)
    if sites is None:
        raise InputError(f"{name} is neither a fitted estimator nor the folder of a run")
    what = Received(name, "the model", tuple(sites), privacy=_privacy_words(getattr(model, "privacy_", None)))
    if not hasattr(model, "landmarks_"):
        return what
    row_sites = np.asarray(getattr(model, "row_sites_", np.empty(0, dtype=np.int32)))
    landmarks = np.asarray(model.landmarks_)
    if not hasattr(model, "factor_"):
        return replace(what, row_sites=row_sites, landmarks=landmarks)
    return replace(what, row_sites=row_sites, landmarks=landmarks, distances=_distances(model))


def _privacy_words(spent: Any) -> str:
    return "" if spent is None else f"{spent.mechanism}: epsilon {spent.worst:.3g} at delta {spent.delta:g}"


def _distances(model: Any) -> Array:
    Y = (model.landmarks_ - model.centre_) / model.scale_
    form = landmark_form(Y, model.method, model.residuals_)
    factor = np.asarray(model.factor_, dtype=np.float64)
    if model.method == "coordinates":
        inner = factor @ np.linalg.pinv(form.matrix)  # (x - ybar)'(y_j - ybar)
        squares = np.asarray(model.offset_, dtype=np.float64)[:, None] + form.squares - 2 * inner
        return np.asarray(np.sqrt(np.maximum(squares, 0)) * model.scale_)
    back = factor @ np.linalg.pinv(form.matrix)
    return np.asarray((np.sqrt(np.maximum(back, 0)) if model.method == "squared" else back) * model.scale_)


def from_run(folder: str | os.PathLike[str], landmarks: Array | Callable[[Path], Array] | None = None) -> Received:
    """Return what the journal of a run holds; `folder` has it, or has folders of runs (the last that posted counts).

    Distances are in the journal, landmarks are not: the coordinator computed them. They are in the model that the
    run made, and given as `landmarks`; or that is a function which finds them for the journal that it is told.
    """
    folder = Path(folder)
    journals = [folder / "journal"] if (folder / "journal").is_file() else sorted(folder.glob("run-*/journal"))
    if not journals:
        raise InputError(f"{folder} is no folder of a run: there is no journal in it")
    found = {path: _from_journal(path) for path in journals}
    path = next((path for path in reversed(journals) if found[path].distances is not None), journals[-1])
    last = found[path]
    if last.distances is None:
        return last
    if callable(landmarks):
        landmarks = landmarks(path)
    if landmarks is None:
        raise InputError(
            f"{folder} has distances to landmarks but not the landmarks, which the coordinator computed itself: they "
            "are in the model that the run made (landmarks=model.landmarks_)"
        )
    Y = np.asarray(landmarks)
    if Y.ndim != 2 or len(Y) != last.distances.shape[1]:
        raise InputError(
            f"landmarks has the shape {Y.shape}, and the run posted distances to {last.distances.shape[1]} landmarks"
        )
    return replace(last, landmarks=Y)


def _from_journal(path: Path) -> Received:
    """Return the distances in a journal, of each site in the order of its rows, in the unit of the data."""
    head, entries = read_journal(path)
    parts: dict[str, list[Array]] = {}
    for entry in entries:
        for site, reply in entry.replies.items():
            D, n, unit = reply.get("distances"), reply.get("n"), reply.get("unit", 1.0)
            if site and isinstance(D, np.ndarray) and D.ndim == 2 and D.dtype.kind == "f" and isinstance(n, int):
                before = parts.setdefault(site, [])
                # A reply that the protocol refused stands in the journal, too. Journals of old have no unit.
                unit = unit if isinstance(unit, float) and 0 < unit < np.inf else 0.0
                farthest = FARTHEST if "unit" in reply else np.inf
                if unit and len(D) <= n - sum(map(len, before)) and ((D >= 0) & (farthest >= D)).all():
                    before.append(D.astype(np.float64) * unit)
    privacy = str(head.get("settings", {}).get("privacy", "None"))
    found = Received(
        str(head["what"]),
        f"{path.parent.name}/{path.name}",
        tuple(head["sites"]),
        privacy="" if privacy == "None" else privacy,
    )
    if not parts:
        return found
    sites = tuple(sorted(parts))
    counts = [sum(map(len, parts[name])) for name in sites]
    widths = {part.shape[1] for name in sites for part in parts[name]}
    if len(widths) > 1:
        raise InputError(f"{path} has distances to {' and to '.join(map(str, sorted(widths)))} landmarks")
    rows = np.repeat(np.arange(len(sites), dtype=np.int32), counts)
    B = np.concatenate([part for name in sites for part in parts[name]])
    return replace(found, sites=sites, row_sites=rows, distances=B)
