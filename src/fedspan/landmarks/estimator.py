"""FedLandmarks: a few synthetic rows that are distributed like all rows of all sites."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils.validation import check_is_fitted

from fedspan.base import FedTransformer
from fedspan.landmarks.landmark_distances import distances_to
from fedspan.landmarks.parts.landmark_models import FEDDL_SETTINGS, LandmarkEstimator


@dataclass(eq=False, repr=False)
class FedLandmarks(ClassNamePrefixFeaturesOutMixin, FedTransformer, LandmarkEstimator):
    """Landmarks by FedDL: they minimise the maximum mean discrepancy to all rows, and only sums leave the sites.

    Parameters
    ----------
    n_landmarks : int or "auto", default=500
        n_y in the paper, at least 2. Each site receives and sends n_y d numbers per round. ``"auto"``: two for each
        column, at least 50 and at most 500.
    rounds : int or "auto", default=50
        Rounds of FedDL, S in the paper. ``"auto"``: until MMD^2 has settled, at most 50.
    gamma : float, default=1.0
        Parameter of the Gaussian kernel, in units of one over the mean squared distance between rows.
    momentum : float, optional
        0 is the paper's plain gradient descent. Default: 0.9, and 0 where `privacy` adds noise to gradients.
    step_size : float, optional
        In units of 1 / L; unstable from ``2 (1 + momentum)`` on. Default: 2, and 1 without momentum; less where
        `GaussianGradient` adds much noise.
    local_steps : int, default=1
        Steps that a site takes between two messages, Q in the paper. Above 1 the result depends on how rows are split.
    upload : {"gradient", "landmarks"}, default="gradient"
        What sites send in each round. With more local steps the gradient is the mean of those on the way.
    precision : {"auto", "single", "double"}, default="auto"
        Precision of products at sites and of messages. ``"auto"``: double, and single where n n_y d is above 2^32.
        In double precision any split of the rows gives the same landmarks to 1e-10; in single to about 1e-5, and on a
        GPU to about 1e-4: its tensor cores see rows rounded to eleven significant bits.
    n_frequencies : int, optional
        Random directions by which MMD^2 is estimated in each round, to about ``sqrt(2 / n_frequencies)`` of its value;
        0: it is not followed. Default: 1024, and 0 with `GaussianGradient`, whose noise does not cover these sums.
    device : str, optional
        The device on which sites that have it compute, as torch names it: ``"cuda"`` (extra ``gpu``). Default: numpy.
    privacy : optional
        Noise that the sites add, `fedspan.privacy.GaussianGradient` or `GaussianData`, see ``docs/privacy.md``.
    random_state, verbose : int, optional
        Seed of the start and of the random directions; 1 shows a progress bar when the fit takes longer than two
        seconds.

    Attributes
    ----------
    landmarks_ : array (n_landmarks, d)
    gamma_ : float
        Parameter of the kernel, in the units of the data.
    mmd2_ : float
        Estimated MMD^2 at the end (V-statistic), NaN if it was not followed; ``run_.metric("mmd2")`` has every round.
    centre_, scale_ : array (d,), float
        Mean of all rows, and the root of their summed variances.
    precision_ : str
    privacy_ : PrivacySpent or None
        What the fit has spent of the sites' privacy, what that covers and what not.
    sites_ : tuple of str
    run_ : RunRecord

    Notes
    -----
    Memory at a site: its rows once more, reduced; at the coordinator a few times n_landmarks d.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> model = FedLandmarks(20, random_state=0).fit(X, sites=np.arange(200) % 4)
    >>> model.landmarks_.shape, model.mmd2_ < 0.01
    ((20, 3), True)
    """

    n_landmarks: int | str = 500
    _: KW_ONLY
    rounds: int | str = 50
    gamma: float = 1.0
    momentum: float | None = None
    step_size: float | None = None
    local_steps: int = 1
    upload: str = "gradient"
    precision: str = "auto"
    n_frequencies: int | None = None
    device: str | None = None
    privacy: Any = None

    def fit(self, X: Any, y: Any = None, *, sites: Any = None) -> Self:
        """Learn the landmarks from a table (with ``sites``) or a federation."""
        settings = self._feddl_settings(FEDDL_SETTINGS)
        with self._fitting(X, y, sites, ensure_min_samples=2) as fed:
            self._learn_landmarks(fed, settings)
        return self

    def transform(self, X: Any) -> Any:
        """Return the distances (n, n_landmarks) of rows to the landmarks; of a federation, at its sites."""
        check_is_fitted(self)
        known = {"landmarks": self.landmarks_, "centre": self.centre_, "scale": self.scale_}
        return self._applied(X, distances_to, **known)

    @property
    def _n_features_out(self) -> int:
        return len(self.landmarks_)
