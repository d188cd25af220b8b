"""Rows that are known by their posted distances: which site and which row of a table each of them is."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.engines.local import site_rows
from fedspan.errors import InputError
from fedspan.estimators.base import FedEstimator
from fedspan.estimators.privacy import SpendsPrivacy, learned_landmarks, posting
from fedspan.federation import Federation
from fedspan.protocols.feddl import Landmarks
from fedspan.protocols.landmark_distances import landmark_distances

Array = NDArray[Any]


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


def posted_rows(model: PostedRows, fed: Federation, settings: dict[str, Any]) -> tuple[Landmarks, Array]:
    """Return landmarks and the distances (n, n_y) of all rows of all sites to them, in site order, then row order.

    Distances are in units of the landmarks' scale.
    """
    fed.log(phase="landmarks")
    found = learned_landmarks(fed, model.privacy, settings, model._names())
    fed.log(phase="distances")
    posted = landmark_distances(posting(fed, model.privacy), landmarks=found)
    counts = [len(posted.get(name, ())) for name in fed.sites]
    model.row_sites_ = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    return found, np.concatenate(list(posted.values()))


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
