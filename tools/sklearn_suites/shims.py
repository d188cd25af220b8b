"""fedspan's estimators with the parameters of scikit-learn's: a table is split among three sites, row by row."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

import fedspan as fs

SITES = 3


class Shim(BaseEstimator):
    """Hands all calls to an estimator of fedspan, which `fit` makes."""

    def __getattr__(self, name: str) -> Any:
        ours = self.__dict__.get("ours")
        if name.startswith("__") or ours is None:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(ours, name)

    def made(self) -> Any:
        """Return the estimator of fedspan."""
        raise NotImplementedError

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit to rows that are split among sites."""
        rows = X.shape[0] if hasattr(X, "shape") and np.ndim(X) else len(X)
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        self.ours = self.made().fit(X, y, sites=np.arange(rows) % SITES if rows else None, **weights)
        return self

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fit, and transform the same rows."""
        return self.fit(X, y, sample_weight).transform(X)

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fit, and return the labels of the same rows."""
        return self.fit(X, y, sample_weight).predict(X)


class PCA(Shim):
    """`FedPCA` as scikit-learn's PCA."""

    def __init__(
        self,
        n_components: Any = None,
        *,
        copy: bool = True,
        whiten: bool = False,
        svd_solver: str = "auto",
        tol: float = 0.0,
        iterated_power: Any = "auto",
        n_oversamples: int = 10,
        power_iteration_normalizer: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.copy = copy
        self.whiten = whiten
        self.svd_solver = svd_solver
        self.tol = tol
        self.iterated_power = iterated_power
        self.n_oversamples = n_oversamples
        self.power_iteration_normalizer = power_iteration_normalizer
        self.random_state = random_state

    def made(self) -> Any:
        """Return `FedPCA` with the solver that takes the place of scikit-learn's."""
        solver = "subspace_iteration" if self.svd_solver in ("arpack", "randomized") else "auto"
        return fs.FedPCA(self.n_components, solver=solver, whiten=self.whiten, random_state=self.random_state)


class KMeans(Shim):
    """`FedKMeans` as scikit-learn's KMeans; its own starts take the place of drawn ones."""

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "k-means++",
        n_init: Any = "auto",
        max_iter: int = 300,
        tol: float = 1e-4,
        verbose: int = 0,
        random_state: Any = None,
        copy_x: bool = True,
        algorithm: str = "lloyd",
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.random_state = random_state
        self.copy_x = copy_x
        self.algorithm = algorithm

    def made(self) -> Any:
        """Return `FedKMeans`."""
        given = not isinstance(self.init, str) and not callable(self.init)
        starts = 1 if given or self.n_init == "auto" else self.n_init
        init = self.init if given else "split"
        settings = {"max_iter": self.max_iter, "tol": self.tol, "random_state": self.random_state}
        return fs.FedKMeans(self.n_clusters, init=init, n_init=starts, **settings)


class StandardScaler(Shim):
    """`FedStandardScaler` as scikit-learn's StandardScaler."""

    def __init__(self, *, copy: bool = True, with_mean: bool = True, with_std: bool = True) -> None:
        self.copy = copy
        self.with_mean = with_mean
        self.with_std = with_std

    def made(self) -> Any:
        """Return `FedStandardScaler`."""
        return fs.FedStandardScaler(with_mean=self.with_mean, with_std=self.with_std)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn on from rows that are split among sites."""
        if "ours" not in self.__dict__:
            self.ours = self.made()
        self.ours.partial_fit(X, sites=np.arange(X.shape[0]) % SITES, sample_weight=sample_weight)
        return self
