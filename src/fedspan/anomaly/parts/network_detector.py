"""What the detectors by trained networks share: scaling, federated averaging, and a threshold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from fedspan.aggregation import Aggregator
from fedspan.anomaly.detector import FedDetector
from fedspan.anomaly.parts.fedavg import Trained
from fedspan.anomaly.parts.local_descent import torch_module
from fedspan.anomaly.parts.networks import Network
from fedspan.base import check_aggregator
from fedspan.checks import real_number, whole_number
from fedspan.errors import InputError
from fedspan.sums.moments import deviations, moments
from fedspan.sums.row_transforms import standardize

#: Width of the code, unless the user chooses another one; at most half of the columns.
USUAL_CODE = 16
_WHOLE = ("local_epochs", "batch_size", "max_rounds", "patience", "check_every")
_REAL = ("held_back", "step_size", "server_momentum", "participation")


@dataclass(eq=False, repr=False)
class NetworkDetector(FedDetector):
    """Base of the detectors by trained networks.

    `FedAutoencoderDetector` describes the parameters. A subclass states by class attributes how its network is made,
    trained, and used for scores.
    """

    #: By the number of layers: the widths between the columns and the code.
    _widths: ClassVar[dict[int, tuple[int, ...]]]
    #: ``_network(n_columns, hidden, latent)``: the network.
    _network: ClassVar[Callable[..., Network]]
    #: The protocol that trains it on standardised rows, and further parameters of its own.
    _train: ClassVar[Callable[..., Trained]]
    _own_training: ClassVar[tuple[str, ...]] = ()
    #: The transform that scores rows, and further parameters of its own.
    _score: ClassVar[Callable[..., NDArray[Any]]]
    _own_score: ClassVar[tuple[str, ...]] = ()

    _: KW_ONLY
    layers: int = 2
    hidden: tuple[int, ...] | None = None
    latent: int | None = None
    quantile: float = 0.95
    scale: bool = True
    participation: float | None = None
    local_epochs: int = 2
    batch_size: int = 128
    step_size: float = 0.1
    server_momentum: float = 0.9
    max_rounds: int = 2000
    patience: int = 50
    check_every: int = 10
    held_back: float = 0.1
    aggregator: Aggregator | None = None

    def fit(self, X: Any, y: Any = None, *, sites: Any = None) -> Self:
        """Train on the rows of a table (with ``sites``) or a federation, and learn the threshold."""
        self._check_parameters()
        torch_module()  # a missing package is reported now, and not by every site
        with self._fitting(X, y, sites, ensure_min_samples=2) as fed:
            found = moments(fed, self._names(), self.aggregator)
            self.mean_ = found.mean
            self.scale_ = deviations(found) if self.scale else None
            self.hidden_ = np.array(self.hidden or self._widths[self.layers], dtype=np.int64)
            self.latent_ = int(self.latent or max(1, min(USUAL_CODE, self.n_features_in_ // 2)))
            options = {name: getattr(self, name) for name in (*_WHOLE, *_REAL, "aggregator")}
            options |= {name: float(getattr(self, name)) for name in self._own_training}
            widths = {"hidden": tuple(self.hidden_.tolist()), "latent": self.latent_}
            standard = fed.apply(standardize, mean=self.mean_, scale=self.scale_, double=True)
            trained = self._train(standard, n_columns=self.n_features_in_, **widths, **options)
            self.weights_, self.error_, self.history_ = trained.weights, trained.error, trained.history
            self.n_rounds_ = trained.rounds
            self._learn_threshold(fed, self.aggregator)
            fed.log(threshold=-self.offset_)
        return self

    def state_dict(self) -> dict[str, NDArray[np.float32]]:
        """Return the weights as named arrays: those of a torch module with these chains of layers."""
        check_is_fitted(self)
        return self._fitted_network().arrays(self.weights_)

    def reconstruct(self, X: Any) -> NDArray[np.float64]:
        """Return rows (n, d) after encoding and decoding, in the units of the data."""
        check_is_fitted(self)
        encode, decode, *_ = self._fitted_network().functions(self.weights_).values()
        rows = decode(encode(standardize(self._validated(X), self.mean_, self.scale_, double=True)))
        return np.asarray((rows if self.scale_ is None else rows * self.scale_) + self.mean_)

    def _fitted_network(self) -> Network:
        return self._network(self.n_features_in_, self.hidden_, self.latent_)

    def _score_transform(self) -> tuple[Callable[..., NDArray[Any]], dict[str, Any]]:
        parameters = {name: getattr(self, f"{name}_") for name in ("mean", "scale", "weights", "hidden", "latent")}
        return self._score, parameters | {name: float(getattr(self, name)) for name in self._own_score}

    def _check_parameters(self) -> None:
        self._check_quantile()
        check_aggregator(self.aggregator)
        if not isinstance(self.layers, int) or self.layers not in self._widths:
            raise InputError(f"layers={self.layers!r} must be one of {', '.join(map(str, self._widths))}")
        if self.hidden is not None:
            between = self.layers - 1
            if not isinstance(self.hidden, tuple | list) or len(self.hidden) != between:
                raise InputError(f"hidden={self.hidden!r} must be None or a tuple of layers - 1 = {between} widths")
            for width in self.hidden:
                whole_number("a width in hidden", width, 1)
        for name in _WHOLE if self.latent is None else (*_WHOLE, "latent"):
            whole_number(name, getattr(self, name), 1)
        given = self.get_params(deep=False)
        real_number("step_size", given["step_size"], above=0)
        real_number("server_momentum", given["server_momentum"], least=0, below=1)
        real_number("held_back", given["held_back"], above=0, below=1)
        if given["participation"] is not None:
            real_number("participation", given["participation"], above=0, most=1)
