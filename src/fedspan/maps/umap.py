"""FedUMAP: a UMAP map of rows that stay at their sites."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass

import numpy as np
from scipy.sparse.linalg import ArpackError

from fedspan.arrays import Array
from fedspan.checks import frames_inside, real_number, whole_number
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.landmarks.parts.card_rows import double_device
from fedspan.linalg.array_backend import to_device, to_numpy
from fedspan.linalg.layout.fuzzy_graph import FuzzyGraph, fuzzy_graph, graph_parts, spectral_start
from fedspan.linalg.layout.umap_layout import TURNS, layout_curve, umap_layout
from fedspan.maps.parts.map_estimator import FedMap, counted_rounds

#: Rounds of the layout, as progress and record show them.
_ROUNDS = 20
#: The fewest and the most rows of a graph whose leading eigenvectors are searched: they take longer than the layout.
_FEWEST_FOR_SPECTRA, _MOST_FOR_SPECTRA = 100, 20_000
#: Up to this number of rows there are 500 epochs, as in UMAP.
_FEW_ROWS = 10_000


@dataclass(eq=False, repr=False)
class FedUMAP(FedMap):
    """Map by UMAP, from distances to landmarks that the sites post.

    **Not private against the coordinator**: posted distances let it rebuild the rows. See ``docs/maps.md``.

    Parameters
    ----------
    n_landmarks, rounds, reduce, method, n_components, neighbors, landmark_settings, privacy, device, random_state, \
verbose
        As in `FedTSNE`.
    share : {"distances"}, default="distances"
        What sites post.
    n_neighbors : int, default=15
        Of each row, itself included; at most the number of rows.
    min_dist, spread : float, default=0.1, 1.0
        How near rows may get to each other on the map, and its scale.
    n_epochs : int, optional
        Default: 500, and 200 for more than 10,000 rows.
    n_jobs : int, default=1
        Threads of NN-descent, -1 for one per processor.

    Attributes
    ----------
    embedding_, row_sites_, landmarks_, gamma_, mmd2_, centre_, scale_, precision_, axes_, factor_, \
offset_, residuals_, privacy_, sites_, run_
        As in `FedTSNE`.

    Notes
    -----
    Graph and layout are fedspan's own (`fedspan.linalg.layout.umap_layout`), on numpy or on the `device`: they need
    neither umap-learn nor numba. Starts from the graph's leading eigenvectors, or, if it has few rows, more than 20,000
    or several parts, from the principal components of the landmark coordinates. Messages and memory are those of
    `FedTSNE`.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(60, 5))
    >>> FedUMAP(20, rounds=5, n_epochs=20, random_state=0).fit(X, sites=np.arange(60) % 3).embedding_.shape
    (60, 2)
    """

    _: KW_ONLY
    n_neighbors: int = 15
    min_dist: float = 0.1
    spread: float = 1.0
    n_epochs: int | None = None

    def _check_layout(self) -> None:
        whole_number("n_neighbors", self.n_neighbors, 2)
        real_number("min_dist", self.min_dist, least=0)
        real_number("spread", self.spread, above=0)
        if self.min_dist > self.spread:
            raise InputError(f"min_dist={self.min_dist} must be at most spread={self.spread}")
        if self.n_epochs is not None:
            whole_number("n_epochs", self.n_epochs, 1)

    def _n_neighbors(self, n: int) -> int:
        return min(n, self.n_neighbors) - 1

    def _layout(self, fed: Federation, indices: Array, distances: Array, start: Array) -> Array:
        device = double_device(self.device)
        graph = fuzzy_graph(to_device(indices, device), to_device(distances, device))
        n = len(indices)
        epochs = self.n_epochs or (500 if n <= _FEW_ROWS else 200)
        begin = to_device(_start(graph, start, fed.rng).astype(np.float32), device)
        every = max(1, -(-epochs * TURNS // _ROUNDS))
        turns = 0

        def count(_: int) -> None:
            nonlocal turns
            if turns % every == 0:
                next(rounds, None)
            turns += 1

        with counted_rounds(fed, _ROUNDS) as rounds:
            curve = layout_curve(self.spread, self.min_dist)
            return to_numpy(umap_layout(graph, begin, fed.rng, epochs=epochs, curve=curve, after_turn=count))


def _start(graph: FuzzyGraph, start: Array, rng: np.random.Generator) -> Array:
    """Return the graph's leading eigenvectors, or the principal components for small, large or disconnected graphs.

    Ten units wide, with a little noise, so that no two rows start at one place.
    """
    n, q = start.shape
    parts = graph_parts(graph)
    if parts > 1:
        warnings.warn(
            f"the neighbour graph has {parts} parts without any neighbours in common: their places on the map relative "
            "to one another come from the start alone; more n_neighbors join them",
            UserWarning,
            stacklevel=frames_inside(),
        )
    if parts == 1 and max(_FEWEST_FOR_SPECTRA, q + 2) <= n <= _MOST_FOR_SPECTRA:
        with suppress(ArpackError):
            start = spectral_start(graph, q, rng)
    wide: Array = 10 * start / np.abs(start).max()
    return wide + 1e-4 * rng.standard_normal(start.shape)
