"""Rows that are known by their posted distances: which site and which row of a table each of them is."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.base import FedEstimator
from fedspan.checks import frames_inside
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.federation.site_labels import site_rows
from fedspan.landmarks.feddl import Landmarks
from fedspan.landmarks.landmark_distances import landmark_distances
from fedspan.landmarks.parts.landmark_privacy import SpendsPrivacy, learned_landmarks, posting, seen_by
from fedspan.landmarks.parts.neighbor_hits import neighbor_hits
from fedspan.landmarks.parts.run_privacy import refuse_strict
from fedspan.linalg.kernels.landmark_form import FINE_ENOUGH, LandmarkForm, LowRankDistances, landmark_form
from fedspan.linalg.kernels.neighbors import nearest
from fedspan.privacy.mechanisms import GaussianGradient

Array = NDArray[Any]

#: Rows whose nearest ones tell whether single precision is enough, and how many of these.
_SAMPLE = 200
_NEAREST = 10
#: Share of true neighbours below which a warning tells that precision is lost.
_CONFUSED = 0.9


class PostedRows(SpendsPrivacy, FedEstimator):
    """Base of estimators with one result per row: fitted on a table in its order, else in site order, then row order.

    Attributes
    ----------
    row_sites_ : array (n,)
        Number of the site of each row, in ``sites_``.
    """

    row_sites_: NDArray[np.int32]

    def _rows_of(self, site: str) -> NDArray[np.bool_]:
        """Return which rows are those of a site."""
        if site not in self.sites_:
            raise InputError(f"site={site!r} must be one of {', '.join(map(repr, self.sites_[:10]))}")
        return np.asarray(self.row_sites_ == self.sites_.index(site))


@dataclass(frozen=True)
class Posted:
    """Landmarks, and the distances B (n, n_y) of all rows to them, in site order, then row order.

    Distances are in units of the landmarks' scale. Where neighbours are asked for, `form` and `rows` are what is made
    of them.
    """

    landmarks: Landmarks
    B: Array
    form: LandmarkForm
    rows: LowRankDistances


def posted_rows(model: PostedRows, fed: Federation, settings: dict[str, Any]) -> tuple[Landmarks, dict[str, Array]]:
    """Return landmarks and the distances (n_p, n_y) of each site's rows to them, in units of the landmarks' scale."""
    if isinstance(model.privacy, GaussianGradient):
        refuse_strict(fed, "maps and clusters need distances that GaussianGradient has no noise for")
    fed.log(phase="landmarks")
    found = learned_landmarks(fed, model.privacy, settings, model._names())
    fed.log(phase="distances")
    posted = landmark_distances(posting(fed, model.privacy), landmarks=found)
    _keep_row_sites(model, fed, posted)
    return found, posted


def posted_form(model: PostedRows, fed: Federation, settings: dict[str, Any], method: str) -> Posted:
    """Return the rows as `method` makes them of posted distances, for a search for neighbours.

    Distances are posted in single precision, and once more in double where the nearest ones could not be told apart
    otherwise. The record has `site_recall`, the share of true neighbours within the sites that are found.
    """
    found, posted = posted_rows(model, fed, settings)
    form = landmark_form((found.points - found.centre) / found.scale, method, None if settings["rounds"] else False)
    rows = form.of(B := np.concatenate(list(posted.values())))
    seen, precision = seen_by(model.privacy, fed), "single"
    if not _fine(rows, settings["device"]):
        fed.log(posted="double")
        posted, precision = landmark_distances(seen, landmarks=found, precision="double"), "double"
        _keep_row_sites(model, fed, posted)
        rows = form.of(B := np.concatenate(list(posted.values())), np.float64)
    share, of = neighbor_hits(seen, landmarks=found, method=method, residuals=form.residuals, precision=precision)
    if of:
        fed.log(site_recall=share, site_recall_of=of)
    if precision == "double" and share < _CONFUSED and not _fine(rows, settings["device"]):
        warnings.warn(
            f"rows are so near to their neighbours, beside the spread of all ({found.scale:.3g}), that distances to "
            f"landmarks hardly tell them apart: {100 * share:.0f} % of ten neighbours within the sites were found; "
            "leave out what is far out, scale the columns, or make maps of the groups one by one",
            stacklevel=frames_inside(),
        )
    return Posted(found, B, form, rows)


def _keep_row_sites(model: PostedRows, fed: Federation, posted: dict[str, Array]) -> None:
    counts = [len(posted.get(name, ())) for name in fed.sites]
    model.row_sites_ = np.repeat(np.arange(len(counts), dtype=np.int32), counts)


def _fine(rows: LowRankDistances, device: str | None) -> bool:
    """Return whether rounding is small beside the distances of some rows to their nearest ones."""
    if len(rows) < 2:
        return True
    some = np.unique(np.linspace(0, len(rows) - 1, min(_SAMPLE, len(rows))).astype(np.intp))
    k = min(_NEAREST, len(rows) - 1)
    here = None if rows.factor.dtype == np.float64 else device
    found = nearest(rows, k + 1, rows.rows(some), here)[0]
    others = np.array([[i for i in near if i != own][:k] for own, near in zip(some, found, strict=True)])
    return rows.fineness(some, others) >= FINE_ENOUGH


def row_order(X: Any, sites: Any, n: int) -> Array | None:
    """Return the table's row of each row in site order, where X is a table with sites."""
    if isinstance(X, Federation) or sites is None:
        return None
    return np.concatenate(list(site_rows(sites, n).values()))


def in_order(order: Array | None, values: Array) -> Array:
    """Return values per row, which are in site order, in the order of the table's rows."""
    if order is None:
        return values
    ordered = np.empty_like(values)
    ordered[order] = values
    return ordered
