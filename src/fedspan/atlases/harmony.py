"""FedHarmony: remove the effects of sites, instruments or donors from rows that stay at their sites."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data

from fedspan.arrays import Matrix
from fedspan.atlases.harmony_by_sums import Harmonized, HarmonySettings, harmony
from fedspan.atlases.new_batches import harmonized, new_effects, placed
from fedspan.atlases.parts.batch_labels import batch_codes, batch_names, features_of
from fedspan.atlases.parts.soft_clusters import Rounds, corrected
from fedspan.base import FedEstimator, FedTransformer
from fedspan.checks import list_of, real_number, whole_number
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.federation.site_labels import site_rows
from fedspan.sums.columns import column_number


@dataclass(eq=False, repr=False)
class FedHarmony(FedTransformer, FedEstimator):
    """Harmony: rows of different batches that are alike come to lie together. Rows stay at their sites.

    After Korsunsky et al. (Nature Methods 2019). Use it on principal components, ``FedPCA(30).transform(fed)``. Soft
    clusters on the unit sphere, in which a batch avoids clusters that hold too much of it. Then a ridge regression in
    each cluster gives the effects of each batch, which are taken from its rows.

    **What leaves a site**: sums over its rows. For the start those of k-means. In each pass the sums of the rows in
    each cluster, and the number of rows that move from cluster to cluster in each block. In each round the number and
    sum of the rows of each batch in each cluster. With ``Policy(secure_sum=True)`` the coordinator sees totals alone.

    **The effects of each batch are part of the model.** Where sites are batches, the coordinator learns each site's
    shift in each cluster, also under secure sums. In a cluster that has one row of a batch, that shift is this row.

    Parameters
    ----------
    theta : float, default=2.0
        Weight of the penalty on clusters that hold too much of a batch. 0: none.
    lamb : float, default=1.0
        Ridge penalty on effects.
    sigma : float, default=0.1
        Width of soft clusters.
    n_clusters : int, optional
        Default: one for each 30 rows, at most 100.
    batch : str or int, optional
        The column that holds the batch of each row, by its name or number; it is then no feature. Its values may span
        sites. Default: each site is a batch.
    batches : sequence of str, optional
        The values of that column. Default: sites report theirs, which needs single replies.
    block_size : float, default=0.1
        Share of the rows that are assigned at once: ten blocks cost ten sums in each pass. The original has 0.05.
    max_iter : int, default=10
        Rounds of clustering and correction.
    max_iter_cluster : int, default=20
        Passes of clustering in each round.
    tol, tol_cluster : float, default=1e-4
        The relative decrease of the objective at which rounds end, and the passes of a round.
    n_init : int, default=4
        Clusterings, each from a start of its own; they share their calls. A row's correction is the mean of theirs,
        which depends less on the starts. The original has one, the best of ten starts.
    least_rows : int, default=1
        The start requests no sum of fewer rows, and no two that differ by fewer. With 1, the k-means of the paper, the
        directions of single rows can be among its sums.
    random_state, verbose : int, optional
        Seed of the start and of the blocks; 1 shows a progress bar when the fit takes longer than two seconds.

    Attributes
    ----------
    batches_ : tuple of str
        Names of the batches.
    batch_sizes_ : array (B,)
    cluster_centers_ : array (T, K, d)
        Centres on the unit sphere, in each of T rounds. K counts the clusters of all `n_starts_` clusterings, one after
        another.
    penalties_ : array (T, B, K)
    effects_ : array (T, B, K, d)
        What each round takes from the rows of a batch, in each cluster.
    references_ : array (T, K, d)
        What all batches share.
    cluster_sizes_ : array (K,)
    n_starts_ : int
    objective_ : array (T,)
    n_iter_ : int
    sites_, run_ : tuple of str, RunRecord
        Metrics: ``objective`` and ``change`` (of the rows, relative) per round.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.repeat([[9.0, 0.0], [0.0, 9.0]], 60, axis=0) + rng.normal(size=(120, 2))
    >>> site = np.arange(120) % 2
    >>> X[site == 1] += [2.0, 2.0]
    >>> model = FedHarmony(n_clusters=2, random_state=0).fit(X, sites=site)
    >>> Z = model.transform(X, sites=site)
    >>> np.abs(X[site == 1].mean(axis=0) - X[site == 0].mean(axis=0)).round(1)
    array([1.8, 2.1])
    >>> np.abs(Z[site == 1].mean(axis=0) - Z[site == 0].mean(axis=0)).round(1)
    array([0.1, 0.1])
    """

    batches_: tuple[str, ...] = field(init=False)
    batch_sizes_: NDArray[np.int64] = field(init=False)
    cluster_centers_: Matrix = field(init=False)
    penalties_: Matrix = field(init=False)
    effects_: Matrix = field(init=False)
    references_: Matrix = field(init=False)
    n_starts_: int = field(init=False)

    theta: float = 2.0
    lamb: float = 1.0
    sigma: float = 0.1
    n_clusters: int | None = None
    _: KW_ONLY
    batch: str | int | None = None
    batches: Any = None
    block_size: float = 0.1
    max_iter: int = 10
    max_iter_cluster: int = 20
    tol: float = 1e-4
    tol_cluster: float = 1e-4
    n_init: int = 4
    least_rows: int = 1

    def fit(self, X: Any, y: Any = None, *, sites: Any = None) -> Self:
        """Learn the effects of the batches of a table (with ``sites``) or a federation."""
        settings, given = self._settings(), self._given_batches()
        with self._fitting(X, y, sites) as fed:
            column = self._column()
            names = batch_names(fed, column=column) if given is None else given
            found = harmony(fed, column=column, names=names, settings=settings, feature_names=self._features(column))
        self._keep(found)
        return self

    def transform(self, X: Any, *, sites: Any = None) -> Any:
        """Correct rows; for a federation, return one whose sites do so locally.

        Of a table, ``sites`` names the site of each row, where sites are batches. Without it the rows are one new
        batch, whose effects are estimated from these rows, unless the model knows one batch only.
        """
        check_is_fitted(self)
        column = self._column()
        if isinstance(X, Federation):
            if sites is not None:
                raise InputError("sites=... goes with a table: a federation has its sites already")
            return X.apply(harmonized, columns=self._names(), **self._parameters(column))
        table = self._validated(X)
        features = features_of(table, column)
        codes, rounds = self._codes(table, column, sites), self._rounds
        if codes is None:
            codes = np.zeros(len(features), dtype=np.int64)
            rounds = placed(features, rounds.Y, self.references_, self.lamb, self.sigma, self.n_starts_)
        kept = np.float32 if features.dtype == np.float32 else np.float64
        return corrected(features, codes, rounds, self.sigma).astype(kept, copy=False)

    def fit_transform(self, X: Any, y: Any = None, *, sites: Any = None) -> Any:
        """Fit to `X` and return its corrected rows, or the federation whose sites see them."""
        fitted = self.fit(X, y, sites=sites)
        return fitted.transform(X) if isinstance(X, Federation) else fitted.transform(X, sites=sites)

    def adapt(self, X: Any, *, sites: Any = None, batches: Any = None) -> Self:
        """Learn the effects of batches that the model does not know, of a table (with ``sites``) or a federation.

        The clusters and the effects of known batches stay, so that rows that were corrected before do not move. One sum
        for each round of the model. Leaves a site: the number and sum of its rows of each new batch in each cluster.

        ``batches`` are values of the batch column, new ones among them. Default: the parameter ``batches``; without
        that, sites report theirs, which needs single replies.
        """
        check_is_fitted(self)
        column, given = self._column(), self._given_batches(batches)
        fed = self._later_rows(X, sites)
        if given is None and column >= 0:
            fed.need_single_replies("adapt without batches=[...], the column's values,")
        with fed.begin("FedHarmony.adapt", self._settings_that_count(), self._seed()) as run:
            found = batch_names(run, column=column) if given is None else given
            names = np.array(sorted(set(found.tolist()) - set(self.batches_)), dtype=str)
            if not len(names):
                raise InputError(f"there is no new batch: the model knows {', '.join(map(repr, found[:10].tolist()))}")
            rounds, sizes = new_effects(
                run,
                column=column,
                names=names,
                Y=self.cluster_centers_,
                references=self.references_,
                lamb=float(self.lamb),
                sigma=float(self.sigma),
                starts=self.n_starts_,
            )
        there = sizes > 0
        self.batches_ += tuple(names[there].tolist())
        self.batch_sizes_ = np.concatenate([self.batch_sizes_, sizes[there]])
        self.penalties_ = np.concatenate([self.penalties_, rounds.penalties[:, there]], axis=1)
        self.effects_ = np.concatenate([self.effects_, rounds.effects[:, there]], axis=1)
        return self

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the columns but for that of the batch."""
        check_is_fitted(self)
        names, column = _check_feature_names_in(self, input_features), self._column()
        return np.asarray(names if column < 0 else np.delete(names, column))

    @property
    def takes_text(self) -> bool:  # type: ignore[override]
        """Whether the batch column may hold text."""
        return self.batch is not None

    @property
    def _rounds(self) -> Rounds:
        return Rounds(self.cluster_centers_, self.penalties_, self.effects_, self.n_starts_)

    def _parameters(self, column: int) -> dict[str, Any]:
        T, B, K, d = self.effects_.shape
        return {
            "column": column,
            "names": np.array(self.batches_, dtype=str),
            "Y": self.cluster_centers_,
            "penalties": self.penalties_,
            "effects": self.effects_.reshape(T, B, K * d),
            "sigma": float(self.sigma),
            "starts": self.n_starts_,
        }

    def _codes(self, table: Any, column: int, sites: Any) -> NDArray[np.int64] | None:
        """Return the batch of each row, or ``None`` for rows of a batch that the model does not know."""
        names = np.array(self.batches_, dtype=str)
        if column >= 0:
            if sites is not None:
                raise InputError(f"sites=... has no effect: batch={self.batch!r} names the column that holds the batch")
            return batch_codes(table, "", column, names)
        if sites is None:
            return np.zeros(len(table), dtype=np.int64) if len(names) == 1 else None
        codes = np.empty(len(table), dtype=np.int64)
        for site, rows in site_rows(sites, len(table)).items():
            codes[rows] = batch_codes(table[rows], site, column, names)
        return codes

    def _keep(self, found: Harmonized) -> None:
        self.batches_, self.batch_sizes_ = tuple(found.names.tolist()), found.sizes
        self.cluster_centers_, self.penalties_, self.effects_ = (
            found.rounds.Y,
            found.rounds.penalties,
            found.rounds.effects,
        )
        self.references_, self.objective_, self.cluster_sizes_ = found.references, found.objective, found.cluster_sizes
        self.n_iter_, self.n_starts_ = len(found.objective), found.rounds.starts

    def _column(self) -> int:
        """Return the number of the batch column, or -1."""
        return -1 if self.batch is None else column_number("batch", self.batch, self._names(), self.n_features_in_)

    def _features(self, column: int) -> tuple[str, ...] | None:
        names = self._names()
        return names if names is None or column < 0 else names[:column] + names[column + 1 :]

    def _settings(self) -> HarmonySettings:
        """Return the settings, checked."""
        real_number("theta", self.theta, least=0)
        for name in ("lamb", "sigma"):
            real_number(name, getattr(self, name), above=0)
        real_number("block_size", self.block_size, least=1e-4, most=1)
        for name in ("tol", "tol_cluster"):
            real_number(name, getattr(self, name), least=0)
        for name in ("max_iter", "max_iter_cluster", "n_init", "least_rows"):
            whole_number(name, getattr(self, name), 1)
        if self.n_clusters is not None:
            whole_number("n_clusters", self.n_clusters, 1)
        if self.batch is not None and (
            isinstance(self.batch, bool) or not isinstance(self.batch, str | int | np.integer)
        ):
            raise InputError(f"batch={self.batch!r} must be the name or number of a column, or None")
        return HarmonySettings(
            float(self.theta), float(self.lamb), float(self.sigma), self.n_clusters, float(self.block_size),
            self.max_iter, self.max_iter_cluster, float(self.tol), float(self.tol_cluster), self.n_init,
            self.least_rows,
        )  # fmt: skip

    def _given_batches(self, later: Any = None) -> NDArray[np.str_] | None:
        batches = self.batches if later is None else later
        if batches is None:
            return None
        if self.batch is None:
            raise InputError("batches=... goes with a batch column: without one each site is a batch")
        names = np.unique(np.array([str(name) for name in list_of("batches", batches, "values")], dtype=str))
        if not len(names):
            raise InputError("batches=[] names no batch: list the values of the batch column")
        return names

    def _single_replies(self) -> str | None:
        named = self.batch is not None and self.batches is None
        return f"(batch={self.batch!r}) without batches=[...], the column's values," if named else None

    def _validated(self, X: Any, *, reset: bool = False, **checks: Any) -> Any:
        """Return a table of numbers, or a data frame as it is where a column holds batches."""
        if self.batch is None or not hasattr(X, "iloc"):
            return super()._validated(X, reset=reset, **checks)
        validate_data(self, X, reset=reset, skip_check_array=True)
        if 0 in X.shape:
            raise InputError(f"the table has the shape {X.shape}, and must have at least one row and one column")
        return X
