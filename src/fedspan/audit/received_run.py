"""What a coordinator holds after a run, as far as attacks know what to do with it.

It is read from where it is kept: the journal of a run, or a fitted or saved model. A new attack on something else adds
a field here, and where that is found.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.audit.k_means_attack import GivenSums, given_sums
from fedspan.audit.received_map import ReceivedMap, map_messages, map_of
from fedspan.audit.sums_attack import Sums
from fedspan.errors import InputError
from fedspan.federation.journal import read_journal
from fedspan.linalg.kernels.landmark_form import FARTHEST, landmark_form

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
    map : ReceivedMap, optional
        Of centres.
    histograms : tuple of arrays (g, g)
        Of the positions of all rows, one for each round.
    k_means_sums : GivenSums, optional
        Of k-means rounds.
    of_rows : bool
        Whether these are sums of rows as they are, not along axes.
    kept_positions : bool
        Whether the positions of the map were not posted, but found in the state of sites that a journal keeps.
    sums : Sums, optional
        Of FedDL, over all rows.
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
    map: ReceivedMap | None = field(default=None, repr=False)
    histograms: tuple[Array, ...] = field(default=(), repr=False)
    k_means_sums: GivenSums | None = field(default=None, repr=False)
    of_rows: bool = False
    kept_positions: bool = False
    sums: Sums | None = field(default=None, repr=False)

    @property
    def columns(self) -> int | None:
        """How many columns rows have, as far as it is known."""
        known = self.landmarks if self.landmarks is not None else None if self.map is None else self.map.centres
        if known is None:
            return None if self.sums is None else len(self.sums.centre)
        return int(known.shape[1])

    @property
    def says_anything(self) -> bool:
        """Whether an attack has anything to begin with."""
        return (
            any(found is not None for found in (self.distances, self.map, self.k_means_sums))
            or len(self.histograms) > 0
        )

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
        if n and rows.shape[:1] != (n,):
            raise InputError(f"truth has {len(rows)} rows, and {n} were received: give them by site, or in their order")
        return rows

    def _rows_by_site(self, truth: Mapping[str, Array]) -> Array:
        if not len(self.row_sites):
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
    found = map_of(model)
    if found is not None:
        rows = np.empty(0, dtype=np.int32) if found.positions is None else np.asarray(model.row_sites_)
        return replace(what, what=_named(name, model.share), row_sites=rows, map=found)
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


def from_run(
    folder: str | os.PathLike[str],
    landmarks: Array | Callable[[Path], Array] | None = None,
    model: Any = None,
    sums: Callable[[Path], Sums | None] | None = None,
) -> Received:
    """Return what the journal of a run holds; `folder` has it, or has folders of runs (the last that posted counts).

    Distances are in the journal, landmarks are not: the coordinator computed them. They are in the model that the
    run made, and given as `landmarks`; or that is a function which finds them for the journal that it is told. Of a map
    of centres positions and histograms are in the journal, and the centres in the `model`. `sums` is a function which
    finds those of FedDL, in the same way; without it they are not looked for.
    """
    folder = Path(folder)
    journals = [folder / "journal"] if (folder / "journal").is_file() else sorted(folder.glob("run-*/journal"))
    if not journals:
        raise InputError(f"{folder} is no folder of a run: there is no journal in it")
    known = None if model is None else map_of(model)
    found = {path: _from_journal(path, known) for path in journals}
    path = next((path for path in reversed(journals) if found[path].says_anything), journals[-1])
    last = found[path]
    if sums is not None and last.map is None and not last.histograms:
        with suppress(InputError):  # of another protocol, or with noise
            last = replace(last, sums=sums(path))
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


def _named(what: str, share: str) -> str:
    """Return what ran, with what its sites shared."""
    return f"{what}(share={share!r})"


def _from_journal(path: Path, known: ReceivedMap | None) -> Received:
    """Return the distances in a journal, by site and row, in the unit of the data; or the positions and histograms."""
    head, calls = read_journal(path)
    entries = list(calls)
    if head["settings"].get("share") in ("'sums'", "'centers'"):
        posted, kept, histograms = map_messages(entries)
        unposted = bool(kept) and not posted
        posted = posted or kept
        what = _named(head["what"], head["settings"]["share"])
        rows = np.repeat(np.arange(len(posted), dtype=np.int32), [len(Y) for Y in posted.values()])
        positions = np.concatenate(list(posted.values())) if posted else None
        seen = None if known is None else known.posted(positions)
        rows = rows if seen is not None else rows[:0]
        where = f"{path.parent.name}/{path.name}"
        sites = tuple(posted or head["sites"])
        found = Received(
            what, where, sites, rows, privacy=mechanism_of(head["settings"]), map=seen, histograms=histograms
        )
        return replace(found, k_means_sums=given_sums(entries), kept_positions=unposted)
    parts: dict[str, list[Array]] = {}
    for entry in entries:
        for site, reply in entry.collected.replies.items():
            D, n, unit = reply.get("distances"), reply.get("n"), reply.get("unit", 1.0)
            if site and isinstance(D, np.ndarray) and D.ndim == 2 and D.dtype.kind == "f" and isinstance(n, int):
                before = parts.setdefault(site, [])
                # A reply that the protocol refused stands in the journal, too. Journals of old have no unit.
                unit = unit if isinstance(unit, float) and 0 < unit < np.inf else 0.0
                farthest = FARTHEST if "unit" in reply else np.inf
                if (
                    D.dtype == np.float64
                    and before
                    and before[0].shape[1:] == D.shape[1:]
                    and sum(map(len, before)) == n
                ):
                    before.clear()  # posted once more, in double precision
                if unit and len(D) <= n - sum(map(len, before)) and ((D >= 0) & (farthest >= D)).all():
                    before.append(D.astype(np.float64) * unit)
    where = f"{path.parent.name}/{path.name}"
    found = Received(str(head["what"]), where, tuple(head["sites"]), privacy=mechanism_of(head["settings"]))
    if not parts:
        return replace(found, k_means_sums=given_sums(entries), of_rows=True) if head["what"] == "FedKMeans" else found
    sites = tuple(sorted(parts))
    counts = [sum(map(len, parts[name])) for name in sites]
    widths = {part.shape[1] for name in sites for part in parts[name]}
    if len(widths) > 1:
        raise InputError(f"{path} has distances to {' and to '.join(map(str, sorted(widths)))} landmarks")
    rows = np.repeat(np.arange(len(sites), dtype=np.int32), counts)
    B = np.concatenate([part for name in sites for part in parts[name]])
    return replace(found, sites=sites, row_sites=rows, distances=B)


def mechanism_of(settings: Mapping[str, Any]) -> str:
    """Return the name of the privacy mechanism in recorded settings; empty where there is none."""
    privacy = settings.get("privacy")
    return "" if not isinstance(privacy, dict) else str(privacy.get("class", "")).rpartition(".")[2]
