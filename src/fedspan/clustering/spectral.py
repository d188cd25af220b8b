"""FedSpectralClustering: normalised spectral clustering of rows that stay at their sites."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackNoConvergence, eigsh
from sklearn.cluster import KMeans
from sklearn.utils.validation import check_is_fitted

from fedspan.arrays import Array, Matrix
from fedspan.checks import frames_inside, one_of, real_number, whole_number
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.landmarks.landmark_distances import distances_to, drawn_in
from fedspan.landmarks.parts.landmark_models import LabelledRows
from fedspan.landmarks.parts.neighbor_search import find_neighbors
from fedspan.linalg.kernels.gaussian_kernel import kernel_matrix, spectral_factor, spectral_places
from fedspan.linalg.kernels.landmark_form import landmark_form
from fedspan.linalg.kernels.neighbors import nearest
from fedspan.linalg.subspaces import with_fixed_signs

#: Rows times starts of k-means: more rows have fewer starts.
_ROWS_TO_START = 200_000
#: Parameters that only the other affinity uses.
_UNUSED = {"kernel": ("n_neighbors", "method", "neighbors"), "neighbors": ("gamma",)}


@dataclass(eq=False, repr=False)
class FedSpectralClustering(LabelledRows):
    """Spectral clustering, from distances to landmarks that the sites post.

    **Not private against the coordinator**: posted distances let it rebuild the rows. See ``docs/maps.md``.

    Parameters
    ----------
    n_clusters : int, default=8
    n_landmarks, rounds, landmark_settings, device, privacy, random_state, verbose
        As in `FedTSNE`.
    affinity : {"neighbors", "kernel"}, default="neighbors"
        The graph of nearest neighbours, or the Gaussian kernel by its Nystrom form: O(n n_landmarks^2).
    n_neighbors : int, default=10
        Of the graph; only with ``"neighbors"``.
    gamma : float, default=1.0
        Of the kernel between rows, in units of one over their mean squared distance; only with ``"kernel"``. A large
        value makes the true kernel nearly diagonal, which a low-rank form does not follow.
    method, neighbors
        Of the graph, as in `FedTSNE`; only with ``"neighbors"``.
    share : {"distances"}, default="distances"
        What sites post.

    Attributes
    ----------
    labels_, row_sites_ : array (n,)
        Fitted on a table, in the order of its rows; on a federation, in site order, then row order.
    landmarks_, gamma_, mmd2_, centre_, scale_, precision_, privacy_, sites_, run_
        As in `FedLandmarks`.
    eigenvalues_ : array (n_clusters,)
        Of the normalised affinity, falling from 1: the gap after them shows how clear the clusters are.
    cluster_centers_ : array (n_clusters, n_clusters)
        In the spectral embedding.
    spectral_embedding_ : array (n, n_clusters)
        With ``"kernel"``: the rows of the leading eigenvectors, scaled to length 1, as k-means sees them.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 3)) + 9 * (np.arange(60) % 2)[:, None]
    >>> labels = FedSpectralClustering(2, n_landmarks=20, random_state=0).fit(X, sites=np.arange(60) // 20).labels_
    >>> len(set(labels[::2])), len(set(labels[1::2])), bool(labels[0] != labels[1])
    (1, 1, True)
    """

    n_clusters: int = 8
    _: KW_ONLY
    n_landmarks: int = 500
    rounds: int = 50
    affinity: str = "neighbors"
    n_neighbors: int = 10
    gamma: float = 1.0
    method: str = "coordinates"
    neighbors: str = "auto"
    share: str = "distances"
    landmark_settings: Mapping[str, Any] | None = None
    device: str | None = None
    privacy: Any = None

    def _single_replies(self) -> str | None:
        return f"(share={self.share!r})"

    def fit(self, X: Any, y: Any = None, *, sites: Any = None) -> Self:
        """Cluster the rows of a table (with ``sites``) or a federation."""
        settings = self._distance_settings()
        whole_number("n_clusters", self.n_clusters, 1)
        one_of("affinity", self.affinity, ("neighbors", "kernel"))
        whole_number("n_neighbors", self.n_neighbors, 1)
        real_number("gamma", self.gamma, above=0)
        self._refuse_unused(_UNUSED[self.affinity], f"affinity={self.affinity!r}")
        self._forget()
        with self._fitting(X, y, sites, ensure_min_samples=2) as fed:
            embed = self._by_kernel if self.affinity == "kernel" else self._by_neighbors
            vectors = embed(fed, settings)
            means = spectral_clusters(vectors, self.n_clusters, int(fed.rng.integers(2**31)))
            fed.stop(f"{len(vectors)} rows in {self.n_clusters} clusters")
        self.cluster_centers_, self.labels_ = means.cluster_centers_, means.labels_
        if self.affinity == "kernel":
            self.spectral_embedding_ = unit_rows(vectors).astype(np.float32)
            self._in_table_order(X, sites, "labels_", "spectral_embedding_")
        else:
            self._in_table_order(X, sites, "labels_", "factor_", "offset_")
        return self

    def predict(self, X: Any) -> Array:
        """Return the clusters of new rows: by their spectral coordinates, or by a vote of their neighbours."""
        check_is_fitted(self)
        X = self._validated(X)
        near = drawn_in(X, self.centre_, self.scale_)
        B = distances_to(near, self.landmarks_, self.centre_, self.scale_) / self.scale_
        if self.affinity == "kernel":
            K = np.exp(-0.5 * self.gamma * B**2)
            places = unit_rows(spectral_places(K, self.axes_, self.degrees_))
            apart = np.linalg.norm(places[:, None] - self.cluster_centers_, axis=2)
            return np.asarray(apart.argmin(axis=1))
        form = landmark_form((self.landmarks_ - self.centre_) / self.scale_, self.method, self.residuals_)
        known = form.form_of(self.factor_, self.offset_)
        indices, _ = nearest(known, min(self.n_neighbors, len(known)), form.of(B, self.factor_.dtype))
        votes = np.zeros((len(X), self.n_clusters), dtype=int)
        np.add.at(votes, (np.arange(len(X))[:, None], self.labels_[indices]), 1)
        return np.asarray(votes.argmax(axis=1))

    def _by_kernel(self, fed: Federation, settings: dict[str, Any]) -> Matrix:
        """Return the leading eigenvectors of the Nystrom kernel."""
        found, B = self._posted(fed, settings)
        self._check_clusters(len(B))
        K = np.square(B, dtype=np.float64)
        K *= -0.5 * self.gamma
        np.exp(K, out=K)
        factor = spectral_factor(K, kernel_matrix(found.reduced, found.reduced, 0.5 * self.gamma), self.n_clusters)
        self.eigenvalues_, self.axes_, self.degrees_ = factor.eigenvalues, factor.axes, factor.degrees
        return factor.vectors

    def _by_neighbors(self, fed: Federation, settings: dict[str, Any]) -> Matrix:
        """Return the leading eigenvectors of the normalised graph of nearest neighbours."""
        posted = self._posted_form(fed, settings)
        rows = posted.rows
        self._check_clusters(len(rows))
        indices, _ = find_neighbors(fed, rows, min(self.n_neighbors, len(rows) - 1), self.neighbors, device=self.device)
        self.residuals_, self.factor_, self.offset_ = posted.form.residuals, rows.factor, rows.offset
        self.eigenvalues_, vectors = graph_eigenvectors(indices, self.n_clusters, fed.rng)
        return vectors

    def _check_clusters(self, n: int) -> None:
        whole_number("n_clusters", self.n_clusters, 1, n, why=f", the number of rows (n_samples={n})")


def spectral_clusters(vectors: Matrix, k: int, seed: int) -> KMeans:
    """Return k-means of the rows of leading eigenvectors (n, k), each scaled to length 1.

    Ten starts often end in a poor optimum (on the mice proteins most do), a hundred seldom: few rows have more starts.
    """
    rows = unit_rows(vectors)
    starts = max(10, min(100, _ROWS_TO_START // len(rows)))
    return KMeans(k, n_init=starts, random_state=seed).fit(rows)


def unit_rows(vectors: Matrix) -> Matrix:
    """Return rows, each scaled to length 1.

    Examples
    --------
    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8], [0. , 0. ]])
    """
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(float).tiny))


def graph_eigenvectors(indices: Array, k: int, rng: np.random.Generator) -> tuple[Matrix, Matrix]:
    """Return the k leading eigenpairs of ``D^-1/2 A D^-1/2``, A being the mean of a neighbour graph and its reverse."""
    n, width = indices.shape
    graph = csr_array((np.full(n * width, 0.5), indices.ravel(), np.arange(0, n * width + 1, width)), shape=(n, n))
    A = graph + graph.T
    parts = connected_components(A, directed=False, return_labels=False)
    if parts > k:
        warnings.warn(
            f"the neighbour graph has {parts} parts without any neighbours in common, more than n_clusters={k}: use "
            "more n_neighbors, or more clusters",
            UserWarning,
            stacklevel=frames_inside(),
        )
    root = 1 / np.sqrt(np.asarray(A.sum(axis=1)).ravel())
    A = A.multiply(root[:, None]).multiply(root).tocsr()
    if n <= max(4 * k, 100):
        values, vectors = np.linalg.eigh(A.toarray())
    else:
        try:
            values, vectors = eigsh(A, k, which="LA", v0=rng.standard_normal(n), ncv=max(4 * k, 40), maxiter=5000)
        except ArpackNoConvergence:
            raise InputError(
                f"the {k} leading eigenvectors of the neighbour graph were not found: use more n_neighbors or fewer "
                "n_clusters"
            ) from None
    top = np.argsort(values)[::-1][:k]
    return values[top], with_fixed_signs(vectors[:, top])
