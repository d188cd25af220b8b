"""What a coordinator holds of a map of centres."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class ReceivedMap:
    """A map of centres.

    Attributes
    ----------
    centres, counts : array (L, m), array (L,)
        And how many rows each has.
    centre_positions : array (L, 2)
    mean, axes : array (m,), array (r, m)
        Rows are seen as ``(x - mean) @ axes.T``.
    place : callable
        From rows (n, m) to positions (n, 2), as the sites place theirs.
    positions : array (n, 2), optional
        Of the sites' rows, where these were posted.
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

    def posted(self, positions: Array | None) -> ReceivedMap:
        """Return it with posted positions."""
        return replace(self, positions=positions)


def map_of(model: Any) -> ReceivedMap | None:
    """Return what a fitted map of centres holds; ``None`` for other models."""
    if not hasattr(model, "center_positions_"):
        return None
    return ReceivedMap(
        np.asarray(model.centers_),
        np.asarray(model.center_counts_),
        np.asarray(model.center_positions_),
        np.asarray(model.mean_),
        np.asarray(model.axes_),
        lambda rows: _placed(model, rows),
        np.asarray(model.embedding_) if "embedding_" in vars(model) else None,
    )


def _placed(model: Any, rows: Array) -> Array:
    """Return the positions of rows, which have no names here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        return np.asarray(model.transform(np.asarray(rows, dtype=np.float64)))


def map_messages(entries: Iterable[Any]) -> tuple[dict[str, Array], dict[str, Array], tuple[Array, ...]]:
    """Return the positions in a journal, by site (the last ones of each), and the summed histograms of the rounds.

    First those that were posted, then those in the sites' own state, which the journal of an embedded run keeps.
    """
    posted: dict[str, Array] = {}
    kept: dict[str, Array] = {}
    histograms = []
    for entry in entries:
        for site, reply in entry.collected.replies.items():
            Y, H = reply.get("positions"), reply.get("histogram")
            if site and isinstance(Y, np.ndarray) and Y.ndim == 2 and Y.shape[1] == 2 and Y.dtype.kind == "f":
                posted[site] = Y
            if not site and isinstance(H, np.ndarray) and H.ndim == 2 and H.sum() > 0:
                histograms.append(H)
        kept |= {
            site: np.asarray(changes.put["Y"])
            for site, changes in entry.collected.changes.items()
            if "Y" in changes.put
        }
    return dict(sorted(posted.items())), dict(sorted(kept.items())), tuple(histograms)
