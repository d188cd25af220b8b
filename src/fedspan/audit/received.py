"""What a coordinator holds after a run, in the form that attacks start from.

`from_run` reads it from the journal of a run, `from_model` from a fitted or saved model. An attack on another kind of
message adds a field here.
"""

from __future__ import annotations

import os
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedspan.arrays import Array
from fedspan.audit.feddl_replay import replay_feddl
from fedspan.audit.k_means_attack import KMeansSums, k_means_sums
from fedspan.audit.sums_attack import Sums
from fedspan.errors import InputError
from fedspan.federation.calls.call import Collected
from fedspan.federation.journal import read_journal
from fedspan.linalg.kernels.landmark_form import FARTHEST, landmark_form

_NO_ROWS = np.empty(0, dtype=np.int32)


@dataclass(frozen=True)
class ReceivedMap:
    """A map of centres (L, m) with their numbers of rows (L,) and positions (L, 2).

    The map sees a row x as ``(x - mean) @ axes.T``, with `axes` (r, m). `place` gives the positions (n, 2) of rows
    (n, m), as the sites place theirs; `positions` (n, 2) are those of the sites' rows, where these were posted.
    """

    centres: Array = field(repr=False)
    counts: Array = field(repr=False)
    centre_positions: Array = field(repr=False)
    mean: Array = field(repr=False)
    axes: Array = field(repr=False)
    place: Callable[[Array], Array] = field(repr=False)
    positions: Array | None = field(default=None, repr=False)

    def seen(self, rows: Array) -> Array:
        """Return rows (n, m) along the axes (n, r)."""
        return np.asarray((rows - self.mean) @ self.axes.T)


@dataclass(frozen=True)
class Noise:
    """The noise of a run: the class of its mechanism, its epsilon (None where only the sites know it) and delta."""

    mechanism: str
    epsilon: float | None
    delta: float

    @property
    def on_rows(self) -> bool:
        """Whether rows had noise before anything was computed of them, so that the true ones can't be rebuilt."""
        return self.mechanism == "GaussianData"

    def __str__(self) -> str:
        size = "" if self.epsilon is None else f": epsilon {self.epsilon:.3g} at delta {self.delta:g}"
        return f"{self.mechanism}{size}"


@dataclass(frozen=True)
class Received:
    """What the coordinator holds.

    Attributes
    ----------
    what, where : str
        The estimator or protocol that ran, and where this was found: a journal or a model.
    sites, row_sites : tuple of str, array (n,)
        The sites, and the site of each row by its place among them.
    landmarks, distances : array (n_y, m), array (n, n_y), optional
        Landmarks, and the distances of rows to them.
    exact : bool
        Whether the distances are known to have neither noise nor rounding beyond double precision.
    noise, map, k_means_sums, sums : Noise, ReceivedMap, KMeansSums, Sums, optional
        `sums` are those of FedDL; `of_rows` states that those of k-means are of rows as they are, not along axes.
    histograms : tuple of arrays (g, g)
        Of the positions of all rows, one for each round.
    journals : tuple of paths
        Of all runs in the folder, whose messages can be searched.
    kept_positions : bool
        Whether the map's positions were not posted, but found in the sites' state, which an embedded run's journal has.
    """

    what: str
    where: str
    sites: tuple[str, ...] = ()
    row_sites: Array = field(default_factory=lambda: _NO_ROWS, repr=False)
    landmarks: Array | None = field(default=None, repr=False)
    distances: Array | None = field(default=None, repr=False)
    noise: Noise | None = None
    map: ReceivedMap | None = field(default=None, repr=False)
    histograms: tuple[Array, ...] = field(default=(), repr=False)
    k_means_sums: KMeansSums | None = field(default=None, repr=False)
    of_rows: bool = False
    kept_positions: bool = False
    sums: Sums | None = field(default=None, repr=False)
    journals: tuple[Path, ...] = ()
    exact: bool = False

    @property
    def columns(self) -> int | None:
        """The number of columns, where it is known."""
        if self.landmarks is not None:
            return int(self.landmarks.shape[1])
        if self.map is not None:
            return int(self.map.centres.shape[1])
        return None if self.sums is None else len(self.sums.centre)

    @property
    def has_rows(self) -> bool:
        """Whether there is a message about single rows or small groups of them."""
        return bool(self.histograms) or any(
            found is not None for found in (self.distances, self.map, self.k_means_sums)
        )

    def rows_of(self, truth: Array | Mapping[str, Array]) -> Array:
        """Return true rows in the order of those received; `truth` is in that order, or has the rows of each site."""
        n = len(self.row_sites)
        if not isinstance(truth, Mapping):
            rows = np.asarray(truth)
            if n and rows.shape[:1] != (n,):
                raise InputError(
                    f"truth has {len(rows)} rows, and {n} were received: give them by site, or in their order"
                )
            return rows
        parts = {name: np.asarray(rows) for name, rows in truth.items()}
        if not n:
            return np.concatenate([parts[name] for name in sorted(parts)])
        columns = next((rows.shape[1] for rows in parts.values() if rows.ndim == 2), 0)
        found = np.empty((n, columns))
        for number, name in enumerate(self.sites):
            mine = self.row_sites == number
            expected = (int(mine.sum()), columns)
            if mine.any() and (name not in parts or parts[name].shape != expected):
                has = f"the shape {parts[name].shape}" if name in parts else "nothing"
                raise InputError(f"truth has {has} for site {name!r}, which posted {expected[0]} rows")
            if mine.any():
                found[mine] = parts[name]
        return found


def from_model(model: Any) -> Received:
    """Return what a fitted estimator holds of the rows.

    A map or clustering by landmarks keeps arrays to compare new rows with old ones. Whatever the method, the distances
    to the landmarks can be computed from them.
    """
    name = type(model).__name__
    sites = getattr(model, "sites_", None)
    if sites is None:
        raise InputError(f"{name} is neither a fitted estimator nor the folder of a run")
    spent = getattr(model, "privacy_", None)
    noise = None if spent is None else Noise(type(model.privacy).__name__, spent.worst, spent.delta)
    found = Received(name, "the model", tuple(sites), noise=noise)
    centres = _map_of(model)
    if centres is not None:
        rows = _NO_ROWS if centres.positions is None else np.asarray(model.row_sites_)
        return replace(found, what=_shared(name, model.share), row_sites=rows, map=centres)
    if not hasattr(model, "landmarks_"):
        return found
    return replace(
        found,
        row_sites=np.asarray(getattr(model, "row_sites_", _NO_ROWS)),
        landmarks=np.asarray(model.landmarks_),
        distances=_distances(model) if hasattr(model, "factor_") else None,
    )


def from_run(folder: str | os.PathLike[str], landmarks: Array | None = None, model: Any = None) -> Received:
    """Return what the journal of a run holds; of several runs, that of the last one with messages about rows.

    The journal has distances, but not the `landmarks` (n_y, m), which the coordinator computed. Default: those of the
    `model` that the run made, or those that FedDL computes again from the sums in the journal. For a map of centres it
    has positions and histograms, and the model has the centres.
    """
    folder = Path(folder)
    journals = [folder / "journal"] if (folder / "journal").is_file() else sorted(folder.glob("run-*/journal"))
    if not journals:
        raise InputError(f"{folder} is not the folder of a run: there is no journal in it")
    centres = _map_of(model)
    read = ((path, _from_journal(path, centres)) for path in reversed(journals))
    last = next(read)
    path, found = last if last[1].has_rows else next((one for one in read if one[1].has_rows), last)
    found = replace(found, journals=tuple(journals))
    if landmarks is None:
        landmarks = getattr(model, "landmarks_", None)
    if found.map is None and not found.histograms:
        try:
            again, sums = replay_feddl(path)
        except InputError:  # another protocol, or noise on gradients
            if landmarks is None and found.distances is not None:
                raise
        else:
            landmarks = again if landmarks is None else landmarks
            found = replace(found, sums=sums)
    if landmarks is None:
        return found
    Y = np.asarray(landmarks)
    if found.distances is not None and (Y.ndim != 2 or len(Y) != found.distances.shape[1]):
        raise InputError(
            f"landmarks has the shape {Y.shape}, and the run posted distances to {found.distances.shape[1]} landmarks"
        )
    return replace(found, landmarks=Y)


@contextmanager
def without_names() -> Iterator[None]:
    """Silence the warning about missing column names: rebuilt rows have none."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        yield


def _map_of(model: Any) -> ReceivedMap | None:
    """Return what a fitted map of centres holds; ``None`` for other models."""
    if not hasattr(model, "center_positions_"):
        return None

    def place(rows: Array) -> Array:
        with without_names():
            return np.asarray(model.transform(np.asarray(rows, dtype=np.float64)))

    return ReceivedMap(
        np.asarray(model.centers_),
        np.asarray(model.center_counts_),
        np.asarray(model.center_positions_),
        np.asarray(model.mean_),
        np.asarray(model.axes_),
        place,
        np.asarray(model.embedding_) if "embedding_" in vars(model) else None,
    )


def _distances(model: Any) -> Array:
    """Return the distances to landmarks that a model's low-rank form stands for."""
    form = landmark_form((model.landmarks_ - model.centre_) / model.scale_, model.method, model.residuals_)
    back = np.asarray(model.factor_, dtype=np.float64) @ np.linalg.pinv(form.matrix)
    if model.method == "coordinates":  # back is (x - ybar)'(y_j - ybar)
        back = np.asarray(model.offset_, dtype=np.float64)[:, None] + form.squares - 2 * back
    roots = back if model.method == "paper" else np.sqrt(np.maximum(back, 0))
    return np.asarray(roots * model.scale_)


def _shared(what: str, share: str) -> str:
    """Return the name of what ran, with what its sites shared."""
    return f"{what}(share={share!r})"


def _from_journal(path: Path, centres: ReceivedMap | None) -> Received:
    head, entries = read_journal(path)
    calls = [entry.collected for entry in entries]
    settings, sites = head["settings"], tuple(head["sites"])
    privacy = settings.get("privacy")
    noise = None
    if isinstance(privacy, dict):
        fields = privacy["fields"]
        noise = Noise(privacy["class"].rpartition(".")[2], fields.get("epsilon"), fields["delta"])
    found = Received(head["what"], f"{path.parent.name}/{path.name}", sites, noise=noise)
    if settings.get("share") in ("sums", "centers"):
        return _with_map(replace(found, what=_shared(found.what, settings["share"])), calls, centres)
    posted = _posted_distances(calls)
    if not posted:
        of_rows = found.what == "FedKMeans"
        return replace(found, k_means_sums=k_means_sums(calls), of_rows=True) if of_rows else found
    widths = sorted({part.shape[1] for part in posted.values()})
    if len(widths) > 1:
        raise InputError(f"{path} has distances to {' and to '.join(map(str, widths))} landmarks: audit one run")
    distances = np.concatenate(list(posted.values()))
    return replace(found, sites=tuple(posted), row_sites=_row_sites(posted), distances=distances)


def _posted_distances(calls: Sequence[Collected]) -> dict[str, Array]:
    """Return the distances in a journal, by site, in the unit of the data.

    The journal also has replies that the protocol rejected, so each is checked as the protocol does.
    """
    parts: dict[str, list[Array]] = defaultdict(list)
    for site, reply in ((site, reply) for call in calls for site, reply in call.replies.items()):
        D, n, unit = (reply.get(name) for name in ("distances", "n", "unit"))
        if not (site and isinstance(D, np.ndarray) and D.ndim == 2 and D.dtype.kind == "f"):
            continue
        if not (isinstance(n, int) and isinstance(unit, float) and 0 < unit < np.inf):
            continue
        before = parts[site]
        if D.dtype == np.float64 and before and before[0].shape[1:] == D.shape[1:] and sum(map(len, before)) == n:
            before.clear()  # posted again, in double precision
        if len(D) <= n - sum(map(len, before)) and ((D >= 0) & (D <= FARTHEST)).all():
            before.append(D.astype(np.float64) * unit)
    return {site: np.concatenate(found) for site, found in sorted(parts.items()) if found}


def _with_map(received: Received, calls: Sequence[Collected], centres: ReceivedMap | None) -> Received:
    """Add the last positions of every site, the summed histograms of the rounds, and the sums of k-means."""
    posted: dict[str, Array] = {}
    kept: dict[str, Array] = {}
    histograms = []
    for call in calls:
        for site, reply in call.replies.items():
            Y, H = reply.get("positions"), reply.get("histogram")
            if site and isinstance(Y, np.ndarray) and Y.ndim == 2 and Y.shape[1] == 2 and Y.dtype.kind == "f":
                posted[site] = Y
            if not site and isinstance(H, np.ndarray) and H.ndim == 2 and H.sum() > 0:
                histograms.append(H)
        kept |= {site: np.asarray(changes.put["Y"]) for site, changes in call.changes.items() if "Y" in changes.put}
    found = dict(sorted((posted or kept).items()))
    positions = np.concatenate(list(found.values())) if found else None
    return replace(
        received,
        sites=tuple(found or received.sites),
        row_sites=_NO_ROWS if centres is None else _row_sites(found),
        map=None if centres is None else replace(centres, positions=positions),
        histograms=tuple(histograms),
        k_means_sums=k_means_sums(calls),
        kept_positions=bool(kept) and not posted,
    )


def _row_sites(parts: Mapping[str, Array]) -> Array:
    return np.repeat(np.arange(len(parts), dtype=np.int32), [len(part) for part in parts.values()])
