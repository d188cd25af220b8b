"""LocalPCADetector: every site for itself, the baseline of federated detection."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from fedspan.anomaly.detector import FedDetector, usual_dimension
from fedspan.anomaly.parts.local_detectors import local_detectors, local_verdicts
from fedspan.checks import true_or_false, whole_number
from fedspan.errors import InputError
from fedspan.sums.moments import refuse_bad_values

Array = NDArray[Any]


class LocalPCADetector(FedDetector):
    """Self-learning PCA: every site fits scaler, principal subspace and threshold from its own rows alone.

    A row's anomaly score in the eyes of one site is its squared distance from that site's subspace, as a multiple of
    that site's threshold: above 1 the site calls it an outlier. Without a site's name the score is the lower
    median over all sites: above 1 only if more than half of them call the row an outlier.

    Leaves a site: nothing is learned together, but for scoring elsewhere the models do, all of them whole.

    Parameters
    ----------
    n_components : int, optional
        Dimension k of every site's subspace. None: half of the columns, at most 10. A site whose own rows have a rank
        r of at most k, because it has few of them or they are alike, keeps r - 1 components; one that has none scores
        rows by their squared distance from its mean.
    quantile : float, default=0.95
        Of the site's own training scores; the smaller the site, the less it is kept on new rows.
    scale : bool, default=True
        Divide by the deviation of each of the site's columns.
    random_state : int, optional
        Seed of the run. Nothing here is random.
    verbose : int, default=0
        1 shows a progress bar when the fit takes longer than two seconds.

    Attributes
    ----------
    offset_ : float
        -1.0: scores are multiples of the thresholds.
    mean_, scale_ : array (L, d)
    components_ : array (L, k, d)
        Orthonormal rows; zeros where a site has fewer.
    n_components_, threshold_ : array (L,)
        How many components every site has, and its threshold.
    sites_ : tuple of str
        Whose models these are, in this order.
    run_ : RunRecord

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 1)) * [1.0, 2.0, 3.0] + 0.1 * rng.normal(size=(500, 3))
    >>> detector = LocalPCADetector(1).fit(X, sites=np.arange(500) % 5)
    >>> detector.predict([[1.0, 2.0, 3.0], [1.0, 2.0, -3.0]], site="3")
    array([ 1, -1])
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        quantile: float = 0.95,
        scale: bool = True,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.quantile = quantile
        self.scale = scale
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, *, sites: Any = None) -> Self:
        """Let every site of a table (with ``sites``) or a federation learn its own detector."""
        self._check_quantile()
        true_or_false("scale", self.scale)
        with self._fitting(X, y, sites, ensure_min_samples=2) as fed:
            refuse_bad_values(fed, self._names())
            found = local_detectors(
                fed,
                rank=self._rank(),
                level=float(self.quantile),
                scale=bool(self.scale),
                n_columns=self.n_features_in_,
            )
        self.sites_ = found.sites
        self.mean_, self.scale_, self.components_ = found.mean, found.scale, found.components
        self.n_components_ = found.rank
        # Rows that are all alike have a threshold of 0, and then whatever differs by more than rounding is an outlier.
        rounding = np.finfo(np.float64).eps * self.n_features_in_
        self.threshold_ = np.maximum(found.threshold * (1 + self._rounding), rounding)
        self.offset_ = -1.0
        return self

    def _single_replies(self) -> str | None:
        return ""

    def score_samples(self, X: Any, site: str | None = None) -> Any:
        """Return minus the anomaly score of each row (n,), in the eyes of `site` or of most sites."""
        return super(LocalPCADetector, self._of(site)).score_samples(X)

    def decision_function(self, X: Any, site: str | None = None) -> Any:
        """Return ``score_samples(X, site) - offset_`` (n,): negative for outliers."""
        return super(LocalPCADetector, self._of(site)).decision_function(X)

    def predict(self, X: Any, site: str | None = None) -> Any:
        """Return for each row (n,) +1 where it is normal, -1 where `site`, or most sites, call it an outlier."""
        return super(LocalPCADetector, self._of(site)).predict(X)

    def _score_transform(self) -> tuple[Callable[..., Array], dict[str, Any]]:
        names = ("mean", "scale", "components", "threshold")
        return local_verdicts, {name: getattr(self, f"{name}_") for name in names}

    def _of(self, site: str | None) -> Self:
        """Return the detector of one site."""
        if site is None:
            return self
        check_is_fitted(self)
        if site not in self.sites_:
            raise InputError(f"site={site!r} must be one of {', '.join(self.sites_[:10])}")
        i = self.sites_.index(site)
        one = copy.copy(self)
        for name in ("mean_", "scale_", "components_", "threshold_", "n_components_"):
            setattr(one, name, getattr(self, name)[i : i + 1])
        return one

    def _rank(self) -> int:
        d = self.n_features_in_
        k = usual_dimension(d) if self.n_components is None else self.n_components
        return whole_number("n_components", k, 1, d - 1, why=f", since the rows have n_features={d}")
