"""FedKMeans: k-means on rows that stay at their sites, by sums alone."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from fedspan.arrays import Array, Matrix
from fedspan.base import Learner, LearnsOn, WeightedTransformer, in_single_precision
from fedspan.checks import frames_inside, held, true_or_false
from fedspan.clustering.federated_k_means import check_k_means, federated_k_means
from fedspan.clustering.noisy_k_means import noisy_k_means
from fedspan.clustering.parts.rows_by_centre import centre_labels, closest_labels, distances_to_centres, moved_centres
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.federation.site_labels import site_rows
from fedspan.landmarks.parts.landmark_models import LabelledRows
from fedspan.privacy.mechanisms import GaussianMoments, check_moments
from fedspan.sums.moments import refuse_bad_values
from fedspan.sums.row_blocks import dense_parts


@dataclass(eq=False, repr=False)
class FedKMeans(ClassNamePrefixFeaturesOutMixin, WeightedTransformer, LabelledRows, LearnsOn):
    """k-means by Lloyd's algorithm. From the same start any split of the rows gives the centres of the pooled rows.

    **What leaves a site**: sums over its rows. First sums and squares of the columns. Then in each round the number of
    rows closest to each centre, and their sums and squared distances. With ``Policy(secure_sum=True)`` the coordinator
    sees only totals over all sites. Labels leave a site with `post_labels` alone.

    **These sums reveal single rows**, even as totals. Where a centre gains or loses one row in a round, the difference
    of its two sums is that row. Lloyd's algorithm needs them. ``least_rows=5`` guards the sums: none is of fewer than 5
    rows, and no two differ by fewer; ``docs/leaks.md`` shows what an attack gains from both. That is not differential
    privacy: a centre is a mean of few rows.

    Parameters
    ----------
    n_clusters : int, default=8
    init : "split" or array (n_clusters, d), default="split"
        The start: centres split by sums where squared distances are large, beginning with the mean; or given ones.
    n_init : int, default=1
        Starts, whose rounds share their calls; the one with the least inertia is kept. 1 with a given start.
    max_iter : int, default=300
    tol : float, default=1e-4
        A start ends when its centres hardly move: the sum of their squared moves is at most this part of the mean
        variance of the columns, as in scikit-learn.
    least_rows : int, default=1
        1: Lloyd's algorithm. More: no sum of fewer rows is requested, and no two sums that differ by fewer, of any
        rounds, starts and centres. A centre that would need such a sum stays where it is. The start is around draws.
    post_labels : bool, default=False
        Whether the sites of a federation post the labels of their rows. That needs single replies.
    privacy : fedspan.privacy.GaussianMoments, optional
        Differential privacy: all sums have noise (see ``docs/privacy.md``). Then `max_iter` rounds are made, at most 7;
        the default start is drawn with noisy means and variances; `n_init`, `tol` and `least_rows` have no effect.
    random_state, verbose : int, optional
        Seed of the start; 1 shows a progress bar when the fit takes longer than two seconds.

    Attributes
    ----------
    cluster_centers_ : array (n_clusters, d)
        In single precision after a fit on a table of float32.
    cluster_sizes_ : array (n_clusters,)
        Rows closest to each centre, or the sum of their weights; with noise under `privacy`.
    inertia_ : float
        Sum of the rows' squared distances to the closest centre; an estimate under `privacy`.
    privacy_ : PrivacySpent or None
        What the fit has spent of the sites' privacy, with the accountant's figure.
    n_iter_ : int
    labels_, row_sites_ : array (n,)
        The closest centre of each row, and the number of its site in ``sites_``. Fitted on a table, in the order of its
        rows; on a federation only with `post_labels`, in site order, then row order.
    sites_ : tuple of str
    run_ : RunRecord
        Metrics: ``inertia`` (of the best start) and ``small_centres`` per round.

    Notes
    -----
    ``partial_fit`` is one round: each centre becomes the mean of its rows before, which count by ``cluster_sizes_``,
    and of the new rows closest to it. That is not Lloyd's algorithm on all rows: rows do not change their centres
    later. Labels of rows are not kept, and ``inertia_`` is that of the new rows before the move.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(60, 2)) + 9 * (np.arange(60) % 2)[:, None]
    >>> model = FedKMeans(2, random_state=0).fit(X, sites=np.arange(60) % 3)
    >>> np.sort(model.cluster_centers_[:, 0]).round(), model.cluster_sizes_
    (array([0., 9.]), array([30, 30]))
    """

    _if_posted = (
        ("labels_", "row_sites_"),
        "cluster_centers_",
        "fit with post_labels=True, or call predict at the sites",
    )

    takes_sparse = True

    n_clusters: int = 8
    _: KW_ONLY
    init: Any = "split"
    n_init: int = 1
    max_iter: int = 300
    tol: float = 1e-4
    least_rows: int = 1
    post_labels: bool = False
    privacy: GaussianMoments | None = None

    def fit(self, X: Any, y: Any = None, *, sites: Any = None, sample_weight: Any = None) -> Self:
        """Find the centres of the rows of a table (with ``sites``) or a federation.

        A row counts as often as its ``sample_weight`` states; the sites of a federation have their own weights.
        """
        settings = {name: getattr(self, name) for name in ("n_clusters", "n_init", "max_iter", "tol", "least_rows")}
        check_k_means(**settings)
        true_or_false("post_labels", self.post_labels)
        check_moments(self.privacy)
        if self.privacy is not None:
            self._refuse_unused(("n_init", "tol", "least_rows"), "privacy=...")
        start = self._start()
        self._forget()
        with self._fitting(X, y, sites, sample_weight=sample_weight) as fed:
            if start is not None and start.shape[1] != self.n_features_in_:
                raise InputError(f"init has {start.shape[1]} columns, and the rows have {self.n_features_in_}")
            if self.privacy is None:
                found = federated_k_means(fed, init=start, names=self._names(), **settings).best()
            else:
                found = noisy_k_means(
                    fed,
                    n_clusters=self.n_clusters,
                    privacy=self.privacy,
                    n_columns=self.n_features_in_,
                    init=start,
                    max_iter=self.max_iter,
                    post_labels=self.post_labels,
                )
            kept = np.float32 if in_single_precision(X) else np.float64
            self.cluster_centers_: Array = found.centres.astype(kept, copy=False)
            self.cluster_sizes_, self.inertia_, self.n_iter_ = found.counts, found.inertia, found.rounds
            self._keep_labels(fed, X, sites)
        empty = int((self.cluster_sizes_ == 0).sum())
        if empty:
            warnings.warn(
                f"{empty} of the {self.n_clusters} clusters have no rows, because there are fewer distinct rows than "
                "clusters, or a sum of too few rows was not requested: use fewer clusters",
                ConvergenceWarning,
                stacklevel=frames_inside(),
            )
        return self

    def _learner(self, X: Any) -> tuple[bool, Learner | None]:
        if self.privacy is not None or self.least_rows > 1:
            raise InputError("partial_fit adds exact sums up: it takes neither privacy=... nor least_rows above 1")
        first = not hasattr(self, "cluster_centers_")
        return first, None if first else self._learn_on

    def _learn_on(self, fed: Federation, factor: float) -> None:
        """Move the centres; rows before count by `factor`."""
        refuse_bad_values(fed, self._names())
        found = moved_centres(self.cluster_centers_, factor * self.cluster_sizes_, fed)
        self.cluster_centers_ = found.centres.astype(self.cluster_centers_.dtype)
        self.cluster_sizes_, self.inertia_ = found.counts, found.inertia
        for name in ("labels_", "row_sites_"):  # of rows before
            self.__dict__.pop(name, None)

    def _change_units(self, factor: NDArray[np.float64], shift: NDArray[np.float64]) -> None:
        self.cluster_centers_ = (factor * self.cluster_centers_ + shift).astype(self.cluster_centers_.dtype)

    def predict(self, X: Any) -> Array:
        """Return the number of the closest centre of each row."""
        check_is_fitted(self)
        return self._labels_of(X)

    def transform(self, X: Any) -> Any:
        """Return the distances of rows to the centres; for a federation, the one whose sites see these."""
        check_is_fitted(self)
        if isinstance(X, Federation):
            return self._applied(X, distances_to_centres, centres=self.cluster_centers_)
        rows = self._validated(X)
        parts = [distances_to_centres(part, centres=self.cluster_centers_) for part in dense_parts(rows)]
        return np.concatenate(parts).astype(rows.dtype, copy=False)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return minus the sum of the rows' squared distances to the closest centre, each times its weight."""
        check_is_fitted(self)
        squares = []
        for part in dense_parts(self._validated(X)):
            rows = np.asarray(part, dtype=np.float64)
            D = rows - self.cluster_centers_[closest_labels(rows, self.cluster_centers_)]
            squares.append(np.vecdot(D, D))
        found = np.concatenate(squares)
        return -float(
            found.sum() if sample_weight is None else found @ np.asarray(held("sample_weight", sample_weight))
        )

    def _labels_of(self, X: Any) -> Array:
        return np.concatenate([closest_labels(part, self.cluster_centers_) for part in dense_parts(self._validated(X))])

    def _keep_labels(self, fed: Federation, X: Any, sites: Any) -> None:
        if self.post_labels:
            posted = centre_labels(fed, centres=self.cluster_centers_)
            self._keep_row_sites(posted)
            self.labels_ = np.concatenate(list(posted.values()))
            self._in_table_order(X, sites, "labels_")
        if self.post_labels or isinstance(X, Federation):
            return
        # The caller's own rows: no request is needed.
        self.labels_ = self._labels_of(X)
        rows = {} if sites is None else site_rows(sites, len(self.labels_))
        self.row_sites_ = np.zeros(len(self.labels_), dtype=np.int32)
        for number, own in enumerate(rows.values()):
            self.row_sites_[own] = number

    def _check_weights(self) -> None:
        self._refuse_weights_with(privacy=self.privacy, least_rows=self.least_rows if self.least_rows > 1 else None)

    def _single_replies(self) -> str | None:
        return "(post_labels=True)" if self.post_labels else None

    def _start(self) -> Matrix | None:
        """Return the given start, checked, or ``None``."""
        if isinstance(self.init, str) and self.init == "split":
            return None
        try:
            start = np.array(self.init, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(f"init={self.init!r} must be 'split' or an array of centres (n_clusters, d)") from None
        if start.ndim != 2 or len(start) != self.n_clusters or not np.isfinite(start).all():
            raise InputError(
                f"init has the shape {start.shape}, and must be finite numbers of n_clusters={self.n_clusters} rows"
            )
        if self.n_init != 1:
            raise InputError(f"n_init={self.n_init} must be 1 with a given start: all would be the same")
        return start

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)
