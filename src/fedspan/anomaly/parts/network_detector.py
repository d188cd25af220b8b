"""What the detectors by trained networks share: scaling, federated averaging, and a threshold."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from fedspan.anomaly.detector import FedDetector
from fedspan.anomaly.parts.fedavg import Trained
from fedspan.anomaly.parts.local_descent import torch_module
from fedspan.anomaly.parts.networks import Network
from fedspan.base import check_aggregator
from fedspan.checks import real_number, whole_number
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.sums.moments import deviations, moments
from fedspan.sums.row_transforms import standardize

Array = NDArray[Any]

#: Width of the code, unless it is said otherwise; at most half of the columns.
USUAL_CODE = 16


class NetworkDetector(FedDetector):
    """Base of the detectors by trained networks.

    A subclass has the parameters that are named here, and says how its network is made, trained, and used for scores.
    """

    #: By the number of layers: the widths between the columns and the code.
    _widths: ClassVar[dict[int, tuple[int, ...]]]

    layers: int
    hidden: tuple[int, ...] | None
    latent: int | None
    scale: bool
    aggregator: Any
    mean_: NDArray[np.float64]
    scale_: NDArray[np.float64] | None
    hidden_: NDArray[np.int64]
    latent_: int
    weights_: NDArray[np.float32]

    @abstractmethod
    def _train(self, fed: Federation, **options: Any) -> Trained:
        """Train on standardised rows; `options` are those of `fedspan.anomaly.parts.fedavg.fedavg`, and the widths."""

    @abstractmethod
    def _network(self) -> Network:
        """Return the network that ``weights_`` are for."""

    def fit(self, X: Any, y: Any = None, *, sites: Any = None) -> Self:
        """Train on the rows of a table (with ``sites``) or a federation, and learn the threshold."""
        self._check_parameters()
        torch_module()  # better said now than by every site
        with self._fitting(X, y, sites, ensure_min_samples=2) as fed:
            found = moments(fed, self._names(), self.aggregator)
            self.mean_ = found.mean
            self.scale_ = deviations(found) if self.scale else None
            self.hidden_ = np.array(self.hidden or self._widths[self.layers], dtype=np.int64)
            self.latent_ = int(self.latent or max(1, min(USUAL_CODE, self.n_features_in_ // 2)))
            names = ("held_back", "step_size", "server_momentum", "participation", "local_epochs", "batch_size")
            options = {name: getattr(self, name) for name in (*names, "max_rounds", "patience", "check_every")}
            trained = self._train(
                fed.apply(standardize, mean=self.mean_, scale=self.scale_, double=True),
                n_columns=self.n_features_in_,
                hidden=tuple(self.hidden_.tolist()),
                latent=self.latent_,
                aggregator=self.aggregator,
                **options,
            )
            self.weights_, self.error_, self.history_ = trained.weights, trained.error, trained.history
            self.n_rounds_ = int(trained.history[-1, 0])
            self._learn_threshold(fed, self.aggregator)
            fed.log(threshold=-self.offset_)
        return self

    def state_dict(self) -> dict[str, NDArray[np.float32]]:
        """Return the weights as named arrays: those of a torch module with these chains of layers."""
        check_is_fitted(self)
        return self._network().arrays(self.weights_)

    def reconstruct(self, X: Any) -> NDArray[np.float64]:
        """Return what the network makes of rows (n, d) after encoding and decoding, in the units of the data."""
        check_is_fitted(self)
        encode, decode, *_ = self._network().functions(self.weights_).values()
        rows = decode(encode(standardize(self._validated(X), self.mean_, self.scale_, double=True)))
        return np.asarray((rows if self.scale_ is None else rows * self.scale_) + self.mean_)

    def _parameters_of_scores(self) -> dict[str, Any]:
        names = ("mean", "scale", "weights", "hidden", "latent")
        return {name: getattr(self, f"{name}_") for name in names}

    def _check_parameters(self) -> None:
        self._check_quantile()
        check_aggregator(self.aggregator)
        if self.layers not in self._widths:
            raise InputError(f"layers={self.layers!r} must be one of {', '.join(map(str, self._widths))}")
        if self.hidden is not None:
            if not isinstance(self.hidden, tuple | list) or len(self.hidden) != self.layers - 1:
                raise InputError(
                    f"hidden={self.hidden!r} must be None or a tuple of layers - 1 = {self.layers - 1} widths"
                )
            for width in self.hidden:
                whole_number("a width in hidden", width, 1)
        for name in ("latent", "local_epochs", "batch_size", "max_rounds", "patience", "check_every"):
            if name != "latent" or self.latent is not None:
                whole_number(name, getattr(self, name), 1)
        real_number("step_size", self.step_size, above=0)
        real_number("server_momentum", self.server_momentum, least=0, below=1)
        real_number("held_back", self.held_back, above=0, below=1)
        if self.participation is not None:
            real_number("participation", self.participation, above=0, most=1)
