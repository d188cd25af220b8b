"""FedIsolationDetector: anomalies are rows that random cuts separate soon, by counts of rows alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedspan.aggregation import Aggregator
from fedspan.anomaly.noisy_members import (
    check_privacy,
    clear_subsample,
    leaf_noise,
    leaves_within,
    noisy_columns,
    open_account,
    threshold_search,
)
from fedspan.anomaly.parts.explained_detector import ExplainedDetector
from fedspan.anomaly.parts.isolation_trees import (
    DEEPEST,
    MOST_LEAVES,
    isolation_counts,
    isolation_gains,
    isolation_score,
    isolation_shares,
    leaf_counts,
    leaf_depths,
    usual_depth,
)
from fedspan.arrays import Array, Vector
from fedspan.base import check_aggregator
from fedspan.checks import whole_number
from fedspan.federation import Federation
from fedspan.privacy.mechanisms import GaussianMoments
from fedspan.privacy.noisy_sums import NoisySums
from fedspan.sums.moments import refuse_bad_values
from fedspan.sums.row_moments import RowMoments

#: With as many subsamples of rows, further ones hardly change the threshold.
_MANY = 7


@dataclass(eq=False, repr=False)
class FedIsolationDetector(ExplainedDetector):
    """Detect anomalies by isolation: a row that few random cuts separate from all others is unusual.

    An isolation forest with two differences: cuts are drawn independently of the rows, and all nodes of a level of a
    tree have the same cut. They lie in the range between the 0.02 and 0.98 quantiles of each column, and up to its
    width beyond. So one round is enough, in which sites count their rows in the leaves. A row's anomaly score is
    ``2 ^ (-depth / c)``. The depth, a mean over the trees, is that at which the row is alone in a subsample of all
    rows. c is its usual value.

    The threshold is a `quantile` of the training rows' scores, each as if the row were left out of the counts. This is
    exact for given cuts.

    Parameters
    ----------
    n_trees : int, default=100
    depth : int, default=8
        Cuts between root and leaf, at most 14.
    subsample : int, default=256
        Rows in which a row is alone; a path ends where fewer than one of these remains.
    quantile : float, default=0.95
        Of the training scores.
    aggregator : Aggregator, optional
        Where sites may be malicious: it combines the sites' shares of rows per leaf, ranges and threshold, instead of
        sums. `fedspan.aggregation.CoordinateMedian()` is the usual one.
    privacy : fedspan.privacy.GaussianMoments, optional
        Differential privacy: all sums have noise, three quarters of the budget for the model and one for the threshold
        (see ``docs/privacy.md``). A row of the subsample then stands for more rows than the
        noise of a leaf, and cuts are drawn around noisy means.
    random_state, verbose : int, optional
        Seed of the cuts; 1 shows a progress bar when the fit takes longer than two seconds.

    Attributes
    ----------
    offset_ : float
        Minus the threshold.
    features_, cuts_ : array (n_trees, depth)
        The columns and points of the cuts, by level.
    leaf_counts_ : array (n_trees, 2^depth)
        Rows of all sites in each leaf; with noise under `privacy`.
    subsample_ : int
        The `subsample`; under `privacy` it may be smaller.
    n_samples_ : int
    privacy_ : PrivacySpent or None
        What the fit has spent of the sites' privacy, with the accountant's figure.
    sites_ : tuple of str
    run_ : RunRecord

    Notes
    -----
    Leaves a site without `privacy`: 514 counts per column in each of 8 rounds for the ranges, then one count per leaf,
    then 257 counts a round in 8 rounds for the threshold, and for `drift` 22 counts per column. A site with more than
    256 MiB of rows takes the ranges from a sample of them.

    References
    ----------
    F. T. Liu, K. M. Ting and Z.-H. Zhou, "Isolation forest", ICDM (2008); S. C. Tan, K. M. Ting and T. F. Liu, "Fast
    anomaly detection for streaming data", IJCAI (2011): trees that do not depend on rows.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> detector = FedIsolationDetector(random_state=0).fit(X, sites=np.arange(500) % 5)
    >>> detector.predict([[0.0, 0.1, 0.0], [0.0, 6.0, 0.0]])
    array([ 1, -1])
    >>> detector.top_features([0.0, 6.0, 0.0], 1)[0][0]
    'feature 1'
    """

    features_: NDArray[np.int64] = field(init=False)
    cuts_: Vector = field(init=False)
    leaf_counts_: Vector = field(init=False)
    subsample_: int = field(init=False)
    n_samples_: int = field(init=False)
    _scores_shift = True

    _: KW_ONLY
    n_trees: int = 100
    depth: int = 8
    subsample: int = 256
    quantile: float = 0.95
    aggregator: Aggregator | None = None
    privacy: GaussianMoments | None = None

    def fit(self, X: Any, y: Any = None, *, sites: Any = None) -> Self:
        """Draw trees, count the rows of a table (with ``sites``) or a federation, and learn the threshold."""
        self._check_parameters()
        with (
            self._fitting(X, y, sites, ensure_min_samples=2) as fed,
            open_account(self.privacy, fed, ("isolation",)) as noisy,
        ):
            search = None
            if noisy is None or self.privacy is None:
                self._learn_model(fed)
            else:
                found = noisy_columns(noisy, fed, self.privacy.bounds(self.n_features_in_))
                self._learn_noisy(noisy, fed, found.n, found.mean, np.sqrt(found.variance))
                search = threshold_search(noisy, self._largest_score(), self._level())
            self._learn_threshold(fed, self.aggregator, search)
            fed.log(threshold=-self.offset_)
        return self

    def _check_parameters(self) -> None:
        self._check_quantile()
        whole_number("depth", self.depth, 1, DEEPEST)
        whole_number("n_trees", self.n_trees, 1, MOST_LEAVES >> self.depth)
        whole_number("subsample", self.subsample, 2)
        check_aggregator(self.aggregator)
        check_privacy(self.privacy, self.quantile, self.aggregator)

    def _learn_model(self, fed: Federation, *, finite: bool = False) -> None:
        """Draw trees in the columns' ranges, and count rows; `finite`: all values are known to be finite."""
        if self.aggregator is None and not finite:
            refuse_bad_values(fed, self._names())
        found = isolation_counts(fed, n_trees=self.n_trees, depth=self.depth, aggregator=self.aggregator)
        self.features_, self.cuts_ = found.features, found.cuts
        self.leaf_counts_, self.n_samples_, self.subsample_ = found.counts, found.n, self.subsample

    def _learn_noisy(self, noisy: NoisySums, fed: Federation, n: int, mean: Vector, scale: Vector) -> None:
        """Draw trees around noisy means, and count rows with noise."""
        found = leaves_within(noisy, fed, n, mean, scale, n_trees=self.n_trees, depth=self.depth)
        self.features_, self.cuts_, self.leaf_counts_, self.n_samples_ = found.features, found.cuts, found.counts, n
        self.subsample_ = clear_subsample(self.subsample, n, leaf_noise(noisy, fed, self.n_trees))

    def _largest_score(self) -> float:
        """Return the largest score that counts in a search with noise."""
        return 1.0

    def _learn_on(self, fed: Federation, factor: float) -> None:
        """Count new rows in the leaves of the same trees."""
        if self.aggregator is None:
            refuse_bad_values(fed, self._names())
        new, _ = leaf_counts(fed, features=self.features_, cuts=self.cuts_, aggregator=self.aggregator)
        self.leaf_counts_ = factor * self.leaf_counts_ + new
        self.n_samples_ = round(float(self.leaf_counts_[0].sum()))

    def _learn_kept(self, rows: RowMoments, found: dict[str, Any], factor: float, fed: Federation) -> None:
        self.leaf_counts_ = factor * self.leaf_counts_ + found["leaf_counts"]
        self.n_samples_ = round(float(self.leaf_counts_[0].sum()))

    def _change_units(self, factor: Vector, shift: Vector) -> None:
        super()._change_units(factor, shift)
        self.cuts_ = factor[self.features_] * self.cuts_ + shift[self.features_]

    def _comparable(self) -> float:
        # Depths grow with the number of rows until these are many more than the subsample.
        return min(1.0, self.n_samples_ / (_MANY * self.subsample_))

    def _parameters(self, without: int = 0) -> dict[str, Any]:
        """Return the parameters of the score, of new rows or of training rows left out."""
        depths = leaf_depths(self.leaf_counts_, self.n_samples_, subsample=self.subsample_, without=without)
        usual = float(usual_depth(max(2, min(self.subsample_, self.n_samples_))))
        return {"features": self.features_, "cuts": self.cuts_, "depths": depths, "usual": usual}

    def _score_transform(self) -> tuple[Callable[..., Array], dict[str, Any]]:
        return isolation_score, self._parameters()

    def _training_transform(self) -> tuple[Callable[..., Array], dict[str, Any]]:
        return isolation_score, self._parameters(without=1)

    def _level(self) -> float:
        return self._level_of_new_rows()

    def _shares(self, X: Array) -> Vector:
        parameters = self._parameters()
        del parameters["usual"]
        gains = isolation_gains(self.leaf_counts_, self.n_samples_, subsample=self.subsample_)
        return isolation_shares(X, **parameters, gains=gains)
