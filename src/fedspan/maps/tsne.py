"""FedTSNE: a t-SNE map of rows that stay at their sites, from posted distances or from sums alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, fields
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fedspan.arrays import Array
from fedspan.checks import dict_of, one_of, real_number, true_or_false, whole_number
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.landmarks.parts.card_rows import double_device
from fedspan.landmarks.parts.neighbor_search import packages
from fedspan.linalg.array_backend import to_device, to_numpy
from fedspan.linalg.layout.grid_repulsion import Grid
from fedspan.linalg.layout.tsne_layout import joint_shares, tsne_layout
from fedspan.maps.by_centers import one_shot_map, place_by_centres, placing_parameters
from fedspan.maps.by_sums import Layout, PrivateMap, private_map
from fedspan.maps.parts.map_centres import Codebooks
from fedspan.maps.parts.map_estimator import FedMap, counted_rounds
from fedspan.maps.parts.noisy_centres import NoisyBook
from fedspan.privacy.mechanisms import GaussianCenters

#: Iterations of a round, as progress and record show them.
_EVERY = 25
#: Parameters that only maps of sums use, and those that all maps use.
_OF_SUMS = ("post_positions", "sums_settings")
_OF_ALL = ("share", "privacy", "random_state", "verbose")


@dataclass(eq=False, repr=False)
class FedTSNE(FedMap):
    """Map by t-SNE, from distances to landmarks that the sites post, or from sums alone.

    **Not private against the coordinator** with ``share="distances"``: posted distances let it rebuild the rows. See
    ``docs/maps.md``. With ``share="sums"`` rows and their positions stay at the sites. See ``docs/private-map.md``.

    Parameters
    ----------
    n_landmarks : int or "auto", default="auto"
        Fewer landmarks give a rougher map, and reveal less of a row: its projection on their span. ``"auto"``: two for
        each column or axis, at least 50 and at most 500. The paper has 500.
    rounds : int or "auto", default="auto"
        Rounds of FedDL, which learns the landmarks; 0: random ones with the mean and variances of the rows.
        ``"auto"``: until MMD^2 has settled, at most 50, which is the paper's number.
    reduce : int, float, "auto" or None, default="auto"
        Before it, exact federated PCA. The map is one of the coordinates along this number of axes, or along those that
        hold this share of the variance. ``"auto"``, above 100 columns: 95 %, or 80 axes if these hold 90 % (30 to 100).
        ``None``, as in the paper, and always with `privacy`: the columns themselves.
    method : {"coordinates", "squared", "paper"}, default="coordinates"
        How distances between rows follow from those to landmarks: by landmark coordinates and residuals, or by the
        Nystrom form of squared distances. The paper takes the Nystrom form of distances.
    share : {"distances", "sums", "centers"}, default="distances"
        What leaves the sites: distances to landmarks; sums alone, in every round of the layout; or, in one shot, only
        the sums that make centres. Around these the coordinator lays out drawn rows.
    post_positions : bool, default=False
        With ``share="sums"`` or ``"centers"``: whether the sites of a federation post the positions of their rows.
    sums_settings : dict, optional
        Likewise: settings of `fedspan.maps.by_sums.Layout` (such as ``rounds=300``, ``grid=64``) and of
        `fedspan.maps.parts.map_centres.Codebooks` (such as ``codebooks=8``, ``least_rows=5``); with `privacy` of
        `fedspan.maps.parts.noisy_centres.NoisyBook` instead.
    n_components : int, default=2
    perplexity : float, default=30.0
        Reduced to a third of the number of other rows, if it is larger.
    early_exaggeration_iter, n_iter : int, default=250, 500
        Iterations with exaggerated attraction, and after them.
    neighbors : {"auto", "exact", "descent"}, default="auto"
        Exact search for neighbours, or NN-descent (``"auto"``: above 100,000 rows).
    landmark_settings : dict, optional
        More of FedDL's settings, such as ``gamma`` or ``precision``, see `FedLandmarks`.
    privacy : optional
        Noise that the sites add: `fedspan.privacy.GaussianData` covers all that is posted, `GaussianGradient` only the
        landmarks, and not the distances. With ``share="centers"`` `fedspan.privacy.GaussianCenters` covers all sums,
        but not posted positions. See ``docs/privacy.md``.
    device : str, optional
        Where landmarks' gradients (at sites that have it), neighbours and the layout in the plane are computed, as
        torch names it: ``"cuda"`` (extra ``gpu``). A seed gives the same map again on the same device; it is another
        map than the processor's. Default: numpy and openTSNE.
    n_jobs : int, default=1
        Threads of the layout; -1 for one per processor. With more than one a map may differ in its last digits from
        run to run.
    random_state, verbose : int, optional
        Seed of the run; 1 shows a progress bar for landmarks, neighbours and layout.

    Attributes
    ----------
    embedding_ : array (n, n_components)
        In the order of a table's rows; of a federation, in site order, then row order. Sites that did not post are left
        out, with a warning. With ``share="sums"`` or ``"centers"`` only if positions were posted.
    row_sites_ : array (n,)
        Number of each row's site in ``sites_``.
    kl_divergence_ : float
    landmarks_, gamma_, mmd2_, centre_, scale_, precision_, privacy_, sites_, run_
        As in `FedLandmarks`; landmarks are in the span of the axes, if there are any, and ``scale_`` is the spread
        along these. ``run_`` has ``preserved``: the share of the ten nearest rows, by landmark distances, that
        are nearest on the map, of up to 1000 rows.
    factor_, offset_, residuals_ : array (n, r), array (n,), bool
        The rows' low-rank distances, for new rows: all that the coordinator knows of the rows. A saved map has them.
    centers_, center_counts_, center_positions_ : array (L, d), array (L,), array (L, 2)
        With ``share="sums"`` or ``"centers"``: the centres of all codebooks, their numbers of rows, and positions.
    density_, density_extent_ : array (g, g), tuple of 4 floats
        Likewise: the number of rows around each node of a grid, ``density_[i, j]`` at the i-th place to the right and
        the j-th up. The extent has the places of the first and last nodes: left, right, bottom, top.
    mean_ : array (d,)
        Likewise: rows are seen as ``(x - mean_) @ axes_.T``.
    axes_ : array (r, d) or None
        Principal axes along which rows are seen, about ``mean_`` or ``centre_``; ``None`` without them.

    Notes
    -----
    Up per site: `rounds` times n_landmarks m numbers, m being the number of axes or columns, then n_p n_landmarks in
    single precision; for the axes d (d + 1) / 2 once. The record has `estimated_bytes`, and a run that will move more
    than the rows warns. Memory at the coordinator: three arrays n x n_landmarks in single precision. Needs openTSNE:
    ``pip install ".[maps]"``.

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
    _if_posted = (
        ("embedding_", "row_sites_"),
        "center_positions_",
        "fit with post_positions=True, or let the sites place their rows by transform(federation)",
    )

    _: KW_ONLY
    post_positions: bool = False
    sums_settings: Mapping[str, Any] | None = None
    perplexity: float = 30.0
    early_exaggeration_iter: int = 250
    n_iter: int = 500

    def fit(self, X: Any, y: Any = None, *, sites: Any = None) -> Self:
        """Make a map of the rows of a table (with ``sites``) or a federation."""
        one_of("share", self.share, ("distances", "sums", "centers"))
        true_or_false("post_positions", self.post_positions)
        hint = "" if self.share == "distances" else " (use sums_settings)"
        self._refuse_unused(self._unused(), f"share={self.share!r}{hint}")
        if self.share == "distances":
            return super().fit(X, y, sites=sites)
        self._check_privacy()
        layout, books = self._settings()
        make = private_map if self.share == "sums" else partial(one_shot_map, privacy=self.privacy)
        post = self.post_positions or not isinstance(X, Federation)  # rows of a table are the caller's own
        self._forget()
        with self._fitting(X, y, sites, ensure_min_samples=books.least_rows) as fed:
            found: PrivateMap = make(fed, layout=layout, books=books, post_positions=post, names=self._names())
            self._keep_map(found)
            if found.embedding is not None:
                self._keep_row_sites(found.embedding)
                self.embedding_ = np.concatenate(list(found.embedding.values())).astype(np.float64)
                self._in_table_order(X, sites, "embedding_")
        return self

    def transform(self, X: Any) -> Any:
        """Place new rows on the map; of a federation, at its sites.

        With ``share="sums"`` or ``"centers"`` centres, their positions and the density go to the sites: nothing about a
        single row. With ``"distances"`` landmarks go there, and the landmark coordinates and positions of *all* rows of
        the map, of any site. Do so only where the sites may see each other's rows.
        """
        check_is_fitted(self)
        if self.share == "distances":
            return super().transform(X)
        left, right, bottom, _ = self.density_extent_
        size = len(self.density_)
        grid = Grid(np.array([left, bottom]), (right - left) / (size - 1), size)
        centres = (self.centers_ - self.mean_) @ self.axes_.T
        placing = placing_parameters(
            self.mean_, self.axes_, centres, self.center_positions_, self.density_, grid, self._settings()[0]
        )
        return self._applied(X, place_by_centres, **placing)

    def _unused(self) -> tuple[str, ...]:
        """Return the parameters that have no effect with this share."""
        if self.share == "distances":
            return _OF_SUMS
        return tuple(name for name in inspect.signature(type(self)).parameters if name not in _OF_SUMS + _OF_ALL)

    def _settings_that_count(self) -> dict[str, Any]:
        return {name: value for name, value in super()._settings_that_count().items() if name not in self._unused()}

    def _single_replies(self) -> str | None:
        if self.share == "distances":
            return super()._single_replies()
        return "(post_positions=True)" if self.post_positions else None

    def _check_privacy(self) -> None:
        """Refuse a mechanism that does not cover the sums of the map."""
        if self.privacy is not None and (self.share == "sums" or not isinstance(self.privacy, GaussianCenters)):
            raise InputError(
                f"privacy={self.privacy!r} does not go with share={self.share!r}: GaussianCenters goes with "
                "share='centers', other noise with share='distances', and none covers the rounds of share='sums'"
            )
        if self.privacy is not None:
            self.privacy.check()

    def _settings(self) -> tuple[Layout, Any]:
        """Return the settings of a map of sums: a layout, and codebooks with or without noise."""
        kinds = (Layout, Codebooks if self.privacy is None else NoisyBook)
        kind_of = {field.name: kind for kind in kinds for field in fields(kind)}
        given: dict[Any, dict[str, Any]] = {kind: {} for kind in kinds}
        for name, value in dict_of("sums_settings", self.sums_settings, "settings", kind_of).items():
            given[kind_of[name]][name] = value
        layout, books = (kind(**settings) for kind, settings in given.items())
        return layout, books

    def _keep_map(self, made: PrivateMap) -> None:
        found = made.found
        self.mean_, self.axes_ = found.mean, found.axes
        # The axes are orthogonal and all of one length: this is the inverse of the projection.
        self.centers_ = found.mean + found.centres @ found.axes / float(np.vdot(found.axes[0], found.axes[0]))
        self.center_counts_, self.center_positions_, self.density_ = found.counts, made.positions, made.density
        high = made.low + made.cell * (len(made.density) - 1)
        self.density_extent_ = (float(made.low[0]), float(high[0]), float(made.low[1]), float(high[1]))

    def _check_layout(self) -> None:
        if self.device is not None and self.n_components != 2:
            raise InputError(f"n_components={self.n_components}: on a device a t-SNE map has 2; device=None has others")
        real_number("perplexity", self.perplexity, least=1)
        whole_number("early_exaggeration_iter", self.early_exaggeration_iter, 0)
        whole_number("n_iter", self.n_iter, 0)

    def _n_neighbors(self, n: int) -> int:
        return min(n - 1, max(1, int(3 * self.perplexity)))

    def _layout(self, fed: Federation, indices: Array, distances: Array, start: Array) -> Array:
        with counted_rounds(fed, (self.early_exaggeration_iter + self.n_iter) // _EVERY) as rounds:

            def report(iteration: int, error: float, embedding: Array) -> None:
                next(rounds, None)
                fed.log(kl_divergence=float(error))

            perplexity = min(float(self.perplexity), max(1.0, indices.shape[1] / 3))
            lay_out = self._on_processor if self.device is None else self._on_device
            found, self.kl_divergence_ = lay_out(fed, indices, distances, 1e-4 * start, perplexity, report)
        return found

    def _on_processor(
        self, fed: Federation, indices: Array, distances: Array, start: Array, perplexity: float, report: Any
    ) -> tuple[Array, float]:
        """Return the positions, and their KL divergence, by openTSNE."""
        opentsne, affinity, nearest = packages("openTSNE", "openTSNE.affinity", "openTSNE.nearest_neighbors")
        affinities = affinity.PerplexityBasedNN(
            perplexity=perplexity,
            knn_index=nearest.PrecomputedNeighbors(indices.astype(np.int64), distances.astype(np.float64)),
            n_jobs=self.n_jobs,
        )
        found = opentsne.TSNE(
            n_components=self.n_components,
            early_exaggeration_iter=self.early_exaggeration_iter,
            n_iter=self.n_iter,
            negative_gradient_method="auto" if self.n_components <= 2 else "bh",
            callbacks=report,
            callbacks_every_iters=_EVERY,
            n_jobs=self.n_jobs,
            random_state=int(fed.rng.integers(2**31)),
        ).fit(affinities=affinities, initialization=start)
        return np.asarray(found), float(found.kl_divergence)

    def _on_device(
        self, fed: Federation, indices: Array, distances: Array, start: Array, perplexity: float, report: Any
    ) -> tuple[Array, float]:
        """Return the same by fedspan's own layout, on the device."""
        device = double_device(self.device) or "cpu"
        shares = joint_shares(to_device(indices, device), to_device(distances, device), perplexity)

        def after_step(steps: int, divergence: Callable[[], float]) -> None:
            if steps % _EVERY == 0:
                report(steps, divergence(), start)

        found, divergence = tsne_layout(
            shares,
            to_device(start, device),
            early=self.early_exaggeration_iter,
            later=self.n_iter,
            after_step=after_step,
        )
        return to_numpy(found), divergence
