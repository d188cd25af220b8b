"""FedTSNE: a t-SNE map of rows that stay at their sites."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.checks import real_number, whole_number
from fedspan.federation import Federation
from fedspan.landmarks.parts.neighbor_search import packages
from fedspan.maps.parts.private_tsne import PrivateMaps
from fedspan.maps.parts.round_index import Turns

Array = NDArray[Any]

#: Iterations between two signs of life.
_EVERY = 25


class FedTSNE(PrivateMaps):
    """Map by t-SNE, from distances to landmarks that the sites post, or from sums alone.

    **Not private against the coordinator** with ``share="distances"``: posted distances let it rebuild the rows. See
    ``docs/maps.md``. With ``share="sums"`` rows and their positions stay at the sites. See ``docs/private-map.md``.

    Parameters
    ----------
    n_landmarks : int, default=500
        Fewer give a rougher map, and leak less of a row: its projection on their span.
    rounds : int, default=50
        Of FedDL, which learns the landmarks; 0: random ones with the mean and variances of the rows.
    method : {"coordinates", "squared", "paper"}, default="coordinates"
        How distances between rows follow from those to landmarks: by landmark coordinates and residuals, by the
        Nystrom form of squared distances, or by that of distances, as the paper has it.
    share : {"distances", "sums", "centers"}, default="distances"
        What leaves the sites: distances to landmarks; or sums alone, in every round of the layout, as the map is made
        by all of them; or, in one shot, only the sums that make centres, around which the coordinator lays out made-up
        rows. The last two use `sums_settings`, `random_state` and `verbose`, and refuse other values of what they do
        not use.
    post_positions : bool, default=False
        Whether the sites of a federation post the positions of their rows (``share="sums"`` or ``"centers"``). That
        needs single replies.
    sums_settings : dict, optional
        Settings of maps of sums: ``rounds=300``, ``exaggeration_rounds`` (a quarter of them), ``grid=64``,
        ``neighbours=30``, ``perplexity=10.0``, ``own_neighbours=15``, ``own_perplexity=10.0``, ``own_share=0.25`` (see
        `fedspan.maps.by_sums.Layout`), ``codebooks=8``, ``rows_per_centre=17.0``, ``least_rows=5``,
        ``axes=50``, ``k_means_rounds=3`` (see `fedspan.maps.parts.map_centres.Codebooks`). With `privacy` the latter
        are ``centres`` and ``axes`` (default: by the number of rows and the budget), ``k_means_rounds=5`` and
        ``least_rows=5`` (see `fedspan.maps.parts.noisy_centres.NoisyBook`).
    n_components : int, default=2
    perplexity : float, default=30.0
        At most a third of the number of other rows; where it is more, that.
    early_exaggeration_iter, n_iter : int, default=250, 500
        Iterations with exaggerated attraction, and after them.
    neighbors : {"auto", "exact", "descent"}, default="auto"
        How neighbours are searched: exactly, or by NN-descent (``"auto"``: above 100,000 rows).
    landmark_settings : dict, optional
        More of FedDL's settings: ``gamma``, ``momentum``, ``step_size``, ``local_steps``, ``upload``, ``precision``,
        ``n_frequencies``, see `FedLandmarks`.
    privacy : optional
        Noise that the sites add: `fedspan.privacy.GaussianData` covers all that is posted, `GaussianGradient` only the
        landmarks, and not the distances. With ``share="centers"`` `fedspan.privacy.GaussianCenters` covers all sums,
        but not posted positions. See ``docs/privacy.md``.
    device : str, optional
        Where landmarks' gradients (at sites that have it) and neighbours are computed, as torch names it: ``"cuda"``
        (extra ``gpu``). Default: numpy.
    n_jobs : int, default=1
        Threads of the layout. With more than one a map may differ in its last digits from run to run.
    random_state : int, optional
        Seed of the run.
    verbose : int, default=0
        1 shows a progress bar for landmarks, neighbours and layout.

    Attributes
    ----------
    embedding_ : array (n, n_components)
        Fitted on a table, in the order of its rows; on a federation, in site order, then row order (sites that did not
        post are left out, with a warning). With ``share="sums"`` or ``"centers"`` of a federation only where positions
        were posted.
    row_sites_ : array (n,)
        Number of each row's site in ``sites_``.
    kl_divergence_ : float
    landmarks_, gamma_, mmd2_, centre_, scale_, precision_, privacy_
        Of the landmarks, as in `FedLandmarks`.
    factor_, offset_, residuals_ : array (n, r), array (n,), bool
        The rows' low-rank distances, for new rows. They hold what the coordinator knows of the rows: a saved map
        does, too.
    centers_, center_counts_, center_positions_ : array (L, d), array (L,), array (L, 2)
        With ``share="sums"`` or ``"centers"``: the centres of all codebooks, how many rows each has, and where they are
        on the map.
    density_, density_extent_ : array (g, g), tuple of 4 floats
        Likewise: how many rows are around each node of a grid, ``density_[i, j]`` at the i-th place to the right and
        the j-th up, and the places of the first and last nodes: left, right, bottom, top.
    mean_, axes_ : array (d,), array (r, d)
        Likewise: rows are seen as ``(x - mean_) @ axes_.T``.
    sites_ : tuple of str
    run_ : RunRecord
        Metrics: ``mmd2`` per round, ``search`` and its ``recall``, ``kl_divergence``, and ``preserved``: the share of
        the ten nearest rows, by landmark distances, that are nearest on the map, of up to 1000 rows.

    Notes
    -----
    Up per site: `rounds` times n_landmarks m numbers, then n_p n_landmarks in single precision. Memory at the
    coordinator: three arrays n x n_landmarks in single precision; never one of n x n.

    Needs openTSNE: ``pip install "fedspan[maps]"``.

    Examples
    --------
    >>> import fedspan as fs
    >>> X = np.random.default_rng(0).normal(size=(60, 5))
    >>> model = FedTSNE(20, rounds=5, n_iter=50, random_state=0).fit(X, sites=np.arange(60) % 3)
    >>> model.embedding_.shape, model.embedding_at("2").shape, model.transform(X[:4]).shape
    ((60, 2), (20, 2), (4, 2))
    >>> private = FedTSNE(share="sums", sums_settings={"rounds": 20, "exaggeration_rounds": 5}, random_state=0)
    >>> private.fit(fs.federate(X, sites=np.arange(60) % 3)).density_.shape
    (64, 64)
    """

    needs = ("openTSNE",)

    def __init__(
        self,
        n_landmarks: int = 500,
        *,
        rounds: int = 50,
        method: str = "coordinates",
        share: str = "distances",
        post_positions: bool = False,
        sums_settings: Mapping[str, Any] | None = None,
        n_components: int = 2,
        perplexity: float = 30.0,
        early_exaggeration_iter: int = 250,
        n_iter: int = 500,
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
        self.method = method
        self.share = share
        self.post_positions = post_positions
        self.sums_settings = sums_settings
        self.n_components = n_components
        self.perplexity = perplexity
        self.early_exaggeration_iter = early_exaggeration_iter
        self.n_iter = n_iter
        self.neighbors = neighbors
        self.landmark_settings = landmark_settings
        self.privacy = privacy
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _check_layout(self) -> None:
        real_number("perplexity", self.perplexity, least=1)
        whole_number("early_exaggeration_iter", self.early_exaggeration_iter, 0)
        whole_number("n_iter", self.n_iter, 0)

    def _n_neighbors(self, n: int) -> int:
        return min(n - 1, max(1, int(3 * self.perplexity)))

    def _layout(self, fed: Federation, indices: Array, distances: Array, start: Array) -> Array:
        opentsne, affinity, nearest = packages("openTSNE", "openTSNE.affinity", "openTSNE.nearest_neighbors")

        def tell(iteration: int, error: float, embedding: Array) -> None:
            turns.next()
            fed.log(kl_divergence=float(error))

        affinities = affinity.PerplexityBasedNN(
            perplexity=min(float(self.perplexity), max(1.0, indices.shape[1] / 3)),
            knn_index=nearest.PrecomputedNeighbors(indices.astype(np.int64), distances.astype(np.float64)),
            n_jobs=self.n_jobs,
        )
        with Turns(fed, (self.early_exaggeration_iter + self.n_iter) // _EVERY) as turns:
            found = opentsne.TSNE(
                n_components=self.n_components,
                early_exaggeration_iter=self.early_exaggeration_iter,
                n_iter=self.n_iter,
                negative_gradient_method="auto" if self.n_components <= 2 else "bh",
                callbacks=tell,
                callbacks_every_iters=_EVERY,
                n_jobs=self.n_jobs,
                random_state=int(fed.rng.integers(2**31)),
            ).fit(affinities=affinities, initialization=1e-4 * start)
        self.kl_divergence_ = float(found.kl_divergence)
        return np.asarray(found)
