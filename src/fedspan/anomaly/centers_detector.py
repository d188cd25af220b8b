"""FedCentersDetector: anomalies are rows far from all centres of federated k-means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, Self

import numpy as np

from fedspan.aggregation import Aggregator
from fedspan.anomaly.noisy_members import check_privacy, noisy_centers, noisy_columns, open_account, threshold_search
from fedspan.anomaly.parts.centre_distances import centre_score, centre_shares, left_out_growth
from fedspan.anomaly.parts.explained_detector import ExplainedDetector
from fedspan.anomaly.scores import standardized
from fedspan.arrays import Array, Vector
from fedspan.base import check_aggregator
from fedspan.checks import true_or_false, whole_number
from fedspan.clustering.federated_k_means import federated_k_means
from fedspan.clustering.parts.rows_by_centre import moved_centres
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.privacy.mechanisms import GaussianMoments
from fedspan.privacy.noisy_sums import NoisySums
from fedspan.sums.batches import kept_moments, known_moments, learned_on
from fedspan.sums.moments import Moments, deviations, moments, moments_of, row_moments
from fedspan.sums.row_moments import RowMoments
from fedspan.sums.row_transforms import standardize

#: By default one centre for as many rows, within limits.
_ROWS, _FEWEST, _MOST = 8, 5, 300
_MAX_ITER = 20


@dataclass(eq=False, repr=False)
class FedCentersDetector(ExplainedDetector):
    """Detect anomalies by density: score rows by their mean distance to the two nearest of many centres.

    Centres of federated k-means, one for about eight rows, lie close together where rows are dense. The score of a
    standardised row z is its mean distance to the two nearest ones: a distance to neighbours, without moving a row. Of
    more than 262,144 rows the centres are those of a sample.

    The threshold is the `quantile` of the scores that training rows have if each is left out of the mean that is its
    centre.

    Parameters
    ----------
    n_centers : int, optional
        None: one for eight rows, at least 5 and at most 300.
    quantile : float, default=0.95
        Of the training scores.
    scale : bool, default=True
        Divide by the deviation of each column.
    least_rows : int, default=1
        As of `FedKMeans`: more than 1 guards the sums, so that none is of fewer rows, and no two differ by fewer.
    aggregator : Aggregator, optional
        Where sites may be malicious. It combines the sites' means, deviations, shares of rows per centre, moves of the
        centres and shares of scores, instead of sums. `fedspan.aggregation.CoordinateMedian()` is the usual one. A
        centre then needs rows at most sites, and there is one for about eight rows of a site.
    privacy : fedspan.privacy.GaussianMoments, optional
        Differential privacy: all sums have noise, three quarters of the budget for the model and one for the threshold
        (see ``docs/privacy.md``). Each centre then needs more rows than its noise, so
        that there are fewer of them; `least_rows` has no effect.
    random_state, verbose : int, optional
        Seed of the centres' start; 1 shows a progress bar when the fit takes longer than two seconds.

    Attributes
    ----------
    offset_ : float
        Minus the threshold.
    mean_, scale_ : array (d,)
        Of the columns; ``scale_`` is None without `scale`.
    centers_ : array (n_centers, d)
        Of standardised rows.
    center_sizes_ : array (n_centers,)
        Rows of each centre; of a sample each row stands for others.
    moments_ : array
        Number of rows, their means and squares, for `partial_fit`; not under `privacy`.
    n_samples_ : int
    privacy_ : PrivacySpent or None
        What the fit has spent of the sites' privacy, with the accountant's figure.
    sites_ : tuple of str
    run_ : RunRecord

    Notes
    -----
    Leaves a site without `privacy`: sums and squares of its columns; the sums of `FedKMeans` in at most 20 rounds and
    those of its start; 257 counts a round in 8 rounds for the threshold; for `drift` 22 counts per column.

    Small clusters' sums reveal single rows even as totals, and the model holds means of a few rows each (see
    `FedKMeans` and ``docs/leaks.md``). Where that matters set `least_rows`, or use `FedIsolationDetector`. With an
    aggregator the coordinator sees each site's own.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 3)) + 9 * (np.arange(500) % 2)[:, None]
    >>> detector = FedCentersDetector(random_state=0).fit(X, sites=np.arange(500) % 5)
    >>> detector.predict([[0.0, 0.1, 0.0], [4.5, 4.5, 4.5]])
    array([ 1, -1])
    """

    mean_: Vector = field(init=False)
    scale_: Vector | None = field(init=False)
    centers_: Vector = field(init=False)
    center_sizes_: Vector = field(init=False)
    moments_: Vector = field(init=False)
    n_samples_: int = field(init=False)

    _: KW_ONLY
    n_centers: int | None = None
    quantile: float = 0.95
    scale: bool = True
    least_rows: int = 1
    aggregator: Aggregator | None = None
    privacy: GaussianMoments | None = None

    def fit(self, X: Any, y: Any = None, *, sites: Any = None) -> Self:
        """Find centres of the rows of a table (with ``sites``) or a federation, and learn the threshold."""
        self._check_parameters()
        with (
            self._fitting(X, y, sites, ensure_min_samples=2) as fed,
            open_account(self.privacy, fed, ("centers",)) as noisy,
        ):
            search = None
            if noisy is None or self.privacy is None:
                self._learn_model(fed, self._learn_columns(fed))
            else:
                variance = self._learn_noisy_columns(noisy, fed, self.privacy)
                self._learn_noisy(noisy, fed, variance)
                search = threshold_search(noisy, self._largest_score(float(variance.sum())), self._level())
            self._learn_threshold(fed, self.aggregator, search)
            fed.log(threshold=-self.offset_)
        return self

    def _check_parameters(self) -> None:
        self._check_quantile()
        if self.n_centers is not None:
            whole_number("n_centers", self.n_centers, 1)
        true_or_false("scale", self.scale)
        whole_number("least_rows", self.least_rows, 1)
        check_aggregator(self.aggregator)
        check_privacy(self.privacy, self.quantile, self.aggregator, self.least_rows)
        if self.aggregator is not None and self.least_rows > 1:
            raise InputError(f"least_rows={self.least_rows} guards sums, and has no effect with an aggregator")

    def _learn_columns(self, fed: Federation) -> int:
        """Learn means and deviations; return the number of rows."""
        rows = self._new_moments(fed)
        found = moments_of(rows)
        self.moments_ = kept_moments(rows)
        self.mean_, self.scale_ = found.mean, deviations(found) if self.scale else None
        return found.n

    def _new_moments(self, fed: Federation) -> RowMoments:
        """Return the moments of the rows: exact, or where sites may be malicious combined ones."""
        if self.aggregator is None:
            return row_moments(fed, self._names())[0]
        found = moments(fed, self._names(), self.aggregator)
        return RowMoments(found.n, float(found.n), found.mean, np.zeros_like(found.mean), found.n * found.variance)

    def _learn_model(self, fed: Federation, n: int) -> None:
        """Find the centres of `n` rows, which ``mean_`` and ``scale_`` standardise."""
        standard = fed.apply(standardize, mean=self.mean_, scale=self.scale_, double=True)
        rows = n if self.aggregator is None else n // len(fed.sites)  # those that vote on a centre
        few = max(1, min(_MOST, max(_FEWEST, rows // _ROWS), n // 2))
        found = federated_k_means(
            standard,
            n_clusters=self.n_centers or few,
            max_iter=_MAX_ITER,
            least_rows=self.least_rows,
            aggregator=self.aggregator,
            known=self._standard_moments(n),
            one_pass=True,
        ).best()
        some = found.counts > 0
        self.centers_, self.center_sizes_ = found.centres[some], found.counts[some].astype(np.float64)
        self.n_samples_ = round(float(found.counts.sum()))

    def _standard_moments(self, n: int) -> Moments | None:
        """Return the moments of standardised rows, where those of the `n` rows are known exactly."""
        kept = getattr(self, "moments_", None)
        rows = None if kept is None or self.aggregator is not None else known_moments(kept, self.n_features_in_)
        if rows is None or rows.n != n or not np.array_equal(rows.mean, self.mean_):
            return None
        variance = rows.variance if self.scale_ is None else rows.variance / self.scale_**2
        return Moments(n, np.zeros_like(variance), variance)

    def _learn_noisy_columns(self, noisy: NoisySums, fed: Federation, privacy: GaussianMoments) -> Vector:
        """Learn means and deviations with noise; return the variances (d,) of standardised rows."""
        found = noisy_columns(noisy, fed, privacy.bounds(self.n_features_in_))
        self.mean_, self.scale_ = found.mean, np.sqrt(found.variance) if self.scale else None
        self.n_samples_ = found.n
        self.__dict__.pop("moments_", None)
        return np.ones(len(found.mean)) if self.scale else found.variance

    def _learn_noisy(self, noisy: NoisySums, fed: Federation, variance: Vector) -> None:
        """Find centres with noise."""
        known = partial(noisy_centers, noisy, fed, n=self.n_samples_, mean=self.mean_, scale=self.scale_)
        found = known(variance=variance, n_centers=self.n_centers, most=_MOST)
        some = found.counts > 0
        self.centers_, self.center_sizes_ = found.centres[some], found.counts[some].astype(np.float64)

    def _largest_score(self, square: float) -> float:
        """Return the largest score that counts in a search with noise, of rows with this mean `square` length.

        At most a share of 1 - quantile of the rows has a larger one, by Markov's inequality.
        """
        return float(np.sqrt(4.0 * square / (1.0 - self.quantile)))

    def _learn_on(self, fed: Federation, factor: float) -> None:
        """Move the centres to the means of their rows before and of the new ones."""
        rows = learned_on(self.moments_, self.n_features_in_, self._new_moments(fed), factor)
        self.moments_ = kept_moments(rows)
        found = moments_of(rows)
        self._move_centers(fed, factor, found.mean, deviations(found) if self.scale else None)

    def _learn_kept(self, rows: RowMoments, found: dict[str, Any], factor: float, fed: Federation) -> None:
        d = self.n_features_in_
        squares = RowMoments(rows.n, rows.weight, rows.centre, rows.shift, rows.squares)
        merged = learned_on(self.moments_, d, squares, factor)
        self.moments_ = kept_moments(merged)
        learned = moments_of(merged)
        self._take_sums(found, factor, learned.mean, deviations(learned) if self.scale else None)

    def _take_sums(self, found: dict[str, Any], factor: float, mean: Vector, scale: Vector | None) -> None:
        """Move the centres by sums of new rows, in the units of new means and deviations."""
        raw = (self.centers_ if self.scale_ is None else self.centers_ * self.scale_) + self.mean_
        old, counts = factor * self.center_sizes_, np.asarray(found["center_counts"], dtype=np.float64)
        sizes = old + counts
        moved = (old[:, None] * raw + found["center_sums"]) / np.where(sizes > 0, sizes, 1.0)[:, None]
        self.mean_, self.scale_ = mean, scale
        self.centers_ = standardized(np.where(sizes[:, None] > 0, moved, raw), mean, scale)
        self.center_sizes_, self.n_samples_ = sizes, round(float(sizes.sum()))

    def _move_centers(self, fed: Federation, factor: float, mean: Vector, scale: Vector | None) -> None:
        """Move the centres, in the units of new means and deviations."""
        raw = self.centers_ + 0.0 if self.scale_ is None else self.centers_ * self.scale_
        raw += self.mean_
        self.mean_, self.scale_ = mean, scale
        standard = fed.apply(standardize, mean=self.mean_, scale=self.scale_, double=True)
        before = standardized(raw, self.mean_, self.scale_), factor * self.center_sizes_
        moved = moved_centres(*before, standard, self.aggregator)
        self.centers_, self.center_sizes_ = moved.centres, np.asarray(moved.counts, dtype=np.float64)
        self.n_samples_ = round(float(self.center_sizes_.sum()))

    def _parameters(self, left_out: bool = False) -> dict[str, Any]:
        growth = left_out_growth(self.center_sizes_) if left_out else np.ones(len(self.centers_))
        known: dict[str, Any] = {"mean": self.mean_, "scale": self.scale_, "centers": self.centers_, "growth": growth}
        if left_out and self.aggregator is None and self.privacy is None:  # else no row moves a deviation far
            known["trained"] = self.n_samples_
        return known

    def _score_transform(self) -> tuple[Callable[..., Array], dict[str, Any]]:
        return centre_score, self._parameters()

    def _training_transform(self) -> tuple[Callable[..., Array], dict[str, Any]]:
        return centre_score, self._parameters(left_out=True)

    def _level(self) -> float:
        return self._level_of_new_rows()

    def _shares(self, X: Array) -> Vector:
        return centre_shares(X, self.mean_, self.scale_, self.centers_)
