"""FedUMAP: a UMAP map of rows that stay at their sites."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from fedspan.checks import frames_inside, real_number, whole_number
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.landmarks.parts.neighbor_search import packages
from fedspan.maps.parts.map_estimator import FedMap, counted_rounds

Array = NDArray[Any]

#: Rounds of the layout, as progress and record show them.
_ROUNDS = 20
#: The fewest rows of a graph whose leading eigenvectors are searched.
_FEWEST_FOR_SPECTRA = 100


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
        Threads of NN-descent, -1 for one per processor; the layout has one, so that a seed decides it.

    Attributes
    ----------
    embedding_, row_sites_, landmarks_, gamma_, mmd2_, centre_, scale_, precision_, axes_, factor_, \
offset_, residuals_, privacy_, sites_, run_
        As in `FedTSNE`.

    Notes
    -----
    Starts from the graph's leading eigenvectors, or, if it is small or in several parts, from the principal components
    of the landmark coordinates. Messages and memory are those of `FedTSNE`. Needs umap-learn: ``pip install
    "fedspan[maps]"``.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(60, 5))
    >>> FedUMAP(20, rounds=5, n_epochs=20, random_state=0).fit(X, sites=np.arange(60) % 3).embedding_.shape
    (60, 2)
    """

    needs = ("umap.umap_",)

    def __init__(
        self,
        n_landmarks: int | str = "auto",
        *,
        rounds: int | str = "auto",
        reduce: int | float | str | None = "auto",
        method: str = "coordinates",
        share: str = "distances",
        n_components: int = 2,
        n_neighbors: int = 15,
        min_dist: float = 0.1,
        spread: float = 1.0,
        n_epochs: int | None = None,
        neighbors: str = "auto",
        landmark_settings: Mapping[str, Any] | None = None,
        privacy: Any = None,
        device: str | None = None,
        n_jobs: int = 1,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_landmarks = n_landmarks
        self.rounds = rounds
        self.reduce = reduce
        self.method = method
        self.share = share
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.min_dist = min_dist
        self.spread = spread
        self.n_epochs = n_epochs
        self.neighbors = neighbors
        self.landmark_settings = landmark_settings
        self.privacy = privacy
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

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
        (umap,) = packages("umap.umap_")
        n = len(indices)
        seed = np.random.RandomState(int(fed.rng.integers(2**31)))
        # UMAP expects each row as its own first neighbour.
        indices = np.column_stack([np.arange(n, dtype=np.int32), indices])
        distances = np.column_stack([np.zeros(n, dtype=np.float32), distances])
        graph, _, _ = umap.fuzzy_simplicial_set(
            start, indices.shape[1], seed, "euclidean", knn_indices=indices, knn_dists=distances
        )
        epochs = self.n_epochs or (500 if n <= 10_000 else 200)
        a, b = umap.find_ab_params(self.spread, self.min_dist)
        plain = {"metric": "euclidean", "metric_kwds": {}, "densmap": False, "densmap_kwds": {}, "output_dens": False}
        with counted_rounds(fed, _ROUNDS) as rounds:
            bar = {"disable": False, "file": _Epochs(rounds), "bar_format": "{n}", "mininterval": 0}
            positions, _ = umap.simplicial_set_embedding(
                data=start,
                graph=graph,
                n_components=self.n_components,
                initial_alpha=1.0,
                a=a,
                b=b,
                gamma=1.0,
                negative_sample_rate=5,
                n_epochs=epochs,
                init=_start(graph, start),
                random_state=seed,
                parallel=False,
                tqdm_kwds={**bar, "miniters": max(1, epochs // _ROUNDS)},
                **plain,
            )
        return np.asarray(positions)


def _start(graph: Any, start: Array) -> Any:
    """Return UMAP's own spectral start, or the principal components for small or disconnected graphs."""
    parts = connected_components(graph, directed=False, return_labels=False)
    if parts > 1:
        warnings.warn(
            f"the neighbour graph has {parts} parts without any neighbours in common: their places on the map relative "
            "to one another come from the start alone; more n_neighbors join them",
            UserWarning,
            stacklevel=frames_inside(),
        )
    if len(start) >= _FEWEST_FOR_SPECTRA and parts == 1:
        return "spectral"
    return (10 * start / np.abs(start).max()).astype(np.float32)


class _Epochs:
    """A file to which UMAP's progress bar writes, and which counts rounds of the run instead."""

    def __init__(self, rounds: Iterator[int]) -> None:
        self._rounds = rounds

    def write(self, text: str) -> None:
        """Begin a round with an epoch's number."""
        if text.strip().isdigit() and int(text):
            next(self._rounds, None)

    def flush(self) -> None:
        """Do nothing: nothing is buffered."""
