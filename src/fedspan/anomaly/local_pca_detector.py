"""LocalPCADetector: every site for itself, the baseline of federated detection.

Scaler, principal subspace and threshold come from the site's own rows. A site sends its whole model: k d + 2 d + 2
numbers, in one call.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from fedspan.anomaly.detector import FedDetector, usual_dimension
from fedspan.anomaly.scores import subspace_score
from fedspan.checks import true_or_false, whole_number
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step, transform
from fedspan.federation.site.parameters import ArrayOf, Count, Indices, Matrix, Real, Share, Stack, Vector, Whole
from fedspan.linalg import with_fixed_signs
from fedspan.sums.moments import Moments, deviations, refuse_bad_values, some_rows
from fedspan.sums.row_blocks import blocks
from fedspan.wire import Message

#: Singular values below this part of the largest are rounding, that of single precision included.
_ROUNDING = 1e-7
_ROWS = 8192
_MODEL = ("mean", "scale", "components", "threshold", "rank")


@dataclass(frozen=True)
class LocalDetectors:
    """The models of the sites that sent one, in name order. See the attributes of `LocalPCADetector`."""

    sites: tuple[str, ...]
    mean: Matrix
    scale: Matrix
    components: Stack
    threshold: Vector
    rank: Indices


@step("anomaly.detector", reveals="rows")
def local_detector(site: Site, rank: Count, level: Share, scale: bool) -> dict[str, Any]:
    """Leaves the site: mean and deviation of its columns, its principal axes, and the quantile of its scores."""
    n = some_rows(site)
    X = np.concatenate(list(blocks(site)))
    if not np.isfinite(X).all():
        raise InputError("X contains NaN or infinity")
    mean = X.mean(axis=0)
    Z = X - mean
    width = deviations(Moments(n, mean, np.mean(Z**2, axis=0))) if scale else np.ones(len(mean))
    Z /= width
    # The triangle of QR has the axes of Z, whatever the number of rows.
    _, spread, axes = np.linalg.svd(np.linalg.qr(Z, mode="r"), full_matrices=False)
    own_rank = int(np.count_nonzero(spread > _ROUNDING * spread[0])) if spread[0] > 0 else 0
    k = min(rank, max(own_rank - 1, 0))
    components = np.zeros((rank, len(mean)))
    components[:k] = with_fixed_signs(axes[:k].T).T
    scores = subspace_score(X, mean, width, components, None, 1.0)
    threshold = float(np.quantile(scores, level, method="inverted_cdf"))
    return {"mean": mean, "scale": width, "components": components, "threshold": threshold, "rank": k}


def local_detectors(
    fed: Federation, *, rank: int, level: float, scale: bool = True, n_columns: int | None = None
) -> LocalDetectors:
    """Return the detectors that the sites fit on their own, each with up to `rank` components.

    A site whose rows have a rank r of at most `rank` (few or equal rows) keeps r - 1 components. So something is left
    outside. Without any, its score is the squared distance from its mean. A site that does not send a detector, of
    `n_columns` columns where that is given, has failed.
    """
    replies = fed.ask(local_detector, rank=rank, level=level, scale=scale)
    replies = fed.accept(replies, lambda reply: _checked(reply, rank, n_columns))
    return LocalDetectors(tuple(replies), *(replies.stack(key) for key in _MODEL))


def _checked(reply: Message, rank: int, n_columns: int | None) -> Message:
    """Return a reply that is a detector of up to `rank` components; refuse others."""
    mean, scale = (ArrayOf("float", 1).check(key, reply.get(key)) for key in ("mean", "scale"))
    U = ArrayOf("float", 2).check("components", reply.get("components"))
    threshold = Real(least=0.0).check("threshold", reply.get("threshold"))
    k = Whole(0, rank).check("rank", reply.get("rank"))
    d = len(mean) if n_columns is None else n_columns
    if (mean.shape, scale.shape, U.shape) != ((d,), (d,), (rank, d)):
        raise InputError(f"mean, scale and components of a detector of {d} columns have other shapes")
    if not (scale > 0).all():
        raise InputError("scale must be above 0 in every column")
    with np.errstate(over="ignore", invalid="ignore"):
        orthonormal = np.allclose(U @ U.T, np.diag(np.arange(rank) < k), rtol=0, atol=_ROUNDING)
    if not orthonormal:
        raise InputError(f"components of a detector of rank {k} must be {k} orthonormal rows, then zeros")
    return dict(zip(_MODEL, (mean, scale, U, threshold, k), strict=True))


@transform("anomaly.local_verdicts")
def local_verdicts(X: Matrix, mean: Matrix, scale: Matrix, components: Stack, threshold: Vector) -> Matrix:
    """Return the lower median (n, 1), over the models, of a row's residual as a multiple of the model's threshold.

    It is above 1 only if this is so for more than half of the models.
    """
    middle = (len(threshold) - 1) // 2
    found = np.empty((len(X), 1))
    for start in range(0, len(X), _ROWS):
        part = X[start : start + _ROWS]
        ratios = np.empty((len(threshold), len(part)))
        for i, limit in enumerate(threshold):
            ratios[i] = subspace_score(part, mean[i], scale[i], components[i], None, 1.0)[:, 0] / limit
        found[start : start + _ROWS, 0] = np.partition(ratios, middle, axis=0)[middle]
    return found


@dataclass(eq=False, repr=False)
class LocalPCADetector(FedDetector):
    """Self-learning PCA: every site fits scaler, principal subspace and threshold from its own rows alone.

    A row's anomaly score at one site is its squared distance from that site's subspace, as a multiple of that site's
    threshold. Above 1 the site calls it an outlier. Without a site's name the score is the lower median over all sites.
    It is above 1 only if more than half of them call the row an outlier.

    Leaves a site: its whole model, for scoring elsewhere.

    Parameters
    ----------
    n_components : int, optional
        Dimension k of every site's subspace. None: half of the columns, at most 10. A site whose rows have a rank r of
        at most k keeps r - 1 components. Without any, it scores rows by their squared distance from its mean.
    quantile : float, default=0.95
        Of the site's own training scores; the smaller the site, the less precise it is on new rows.
    scale : bool, default=True
        Divide by the deviation of each of the site's columns.
    random_state, verbose : int, optional
        Nothing is random; 1 shows a progress bar when the fit takes longer than two seconds.

    Attributes
    ----------
    offset_ : float
        -1.0: scores are multiples of the thresholds.
    mean_, scale_ : array (L, d)
    components_ : array (L, k, d)
        Orthonormal rows; zeros where a site has fewer.
    n_components_, threshold_ : array (L,)
        Number of components of every site, and its threshold.
    sites_ : tuple of str
        The sites of these models, in this order.
    run_ : RunRecord

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 1)) * [1.0, 2.0, 3.0] + 0.1 * rng.normal(size=(500, 3))
    >>> detector = LocalPCADetector(1).fit(X, sites=np.arange(500) % 5)
    >>> detector.predict([[1.0, 2.0, 3.0], [1.0, 2.0, -3.0]], site="3")
    array([ 1, -1])
    """

    n_components: int | None = None
    _: KW_ONLY
    quantile: float = 0.95
    scale: bool = True

    def fit(self, X: Any, y: Any = None, *, sites: Any = None) -> Self:
        """Let every site of a table (with ``sites``) or a federation learn its own detector."""
        self._check_quantile()
        true_or_false("scale", self.scale)
        with self._fitting(X, y, sites, ensure_min_samples=2) as fed:
            refuse_bad_values(fed, self._names())
            d = self.n_features_in_
            k = usual_dimension(d) if self.n_components is None else self.n_components
            rank = whole_number("n_components", k, 1, d - 1, why=f", since the rows have n_features={d}")
            level, scale = float(self.quantile), bool(self.scale)
            found = local_detectors(fed, rank=rank, level=level, scale=scale, n_columns=d)
        self.sites_, self.mean_, self.scale_ = found.sites, found.mean, found.scale
        self.components_, self.n_components_ = found.components, found.rank
        # Equal rows have a threshold of 0: then all that differs by more than rounding is an outlier.
        self.threshold_ = np.maximum(found.threshold * (1 + self._rounding), np.finfo(np.float64).eps * d)
        self.offset_ = -1.0
        return self

    def _single_replies(self) -> str | None:
        return ""

    def score_samples(self, X: Any, site: str | None = None) -> Any:
        """Return minus the anomaly score of each row (n,), by `site` or by most sites."""
        return super(LocalPCADetector, self._of(site)).score_samples(X)

    def decision_function(self, X: Any, site: str | None = None) -> Any:
        """Return ``score_samples(X, site) - offset_`` (n,): negative for outliers."""
        return super(LocalPCADetector, self._of(site)).decision_function(X)

    def predict(self, X: Any, site: str | None = None) -> Any:
        """Return for each row (n,) +1 where it is normal, -1 where `site`, or most sites, call it an outlier."""
        return super(LocalPCADetector, self._of(site)).predict(X)

    def _score_transform(self) -> tuple[Callable[..., NDArray[Any]], dict[str, Any]]:
        return local_verdicts, {
            name: getattr(self, f"{name}_") for name in ("mean", "scale", "components", "threshold")
        }

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
