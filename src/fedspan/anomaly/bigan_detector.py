"""FedBiGANDetector: rows that a BiGAN of all sites' normal rows cannot bring back, or does not take for real."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from numpy.typing import NDArray

from fedspan.aggregation import Aggregator
from fedspan.anomaly.parts.bigan import bigan, bigan_network, bigan_score
from fedspan.anomaly.parts.fedavg import Trained
from fedspan.anomaly.parts.network_detector import NetworkDetector
from fedspan.anomaly.parts.networks import Network
from fedspan.checks import real_number
from fedspan.federation import Federation

Array = NDArray[Any]


class FedBiGANDetector(NetworkDetector):
    """Detect anomalies by a BiGAN, trained by federated averaging. Needs torch: ``pip install "fedspan[deep]"``.

    Fit it on rows that are normal, or nearly all so. An encoder E makes codes of rows, a generator G rows of codes, and
    a discriminator learns to tell pairs (x, E(x)) from pairs (G(z), z), z normal: D is how probable it thinks the
    former. E and G learn to deceive it and to bring rows back (see `fedspan.anomaly.parts.bigan`). The anomaly score of a
    standardised row x is ``alpha ||x - G(E(x))||_1 - (1 - alpha) log D(x, E(x))``.

    Rows whose score is above the `quantile` of the training scores are outliers. That threshold is found exactly
    without moving rows (see `fedspan.sums.quantiles`). Training ends as that of `FedAutoencoderDetector`, by the
    error of ``G(E(x))`` for rows held back.

    Parameters
    ----------
    layers : {2, 4}, default=2
        Of encoder, generator and discriminator each.
    hidden : tuple of int, optional
        The ``layers - 1`` widths between columns and code, and likewise of the discriminator. None: 16 for two layers,
        20, 16 and 8 for four.
    latent : int, optional
        Width of the code. None: half of the columns, at most 16.
    alpha : float, default=0.9
        Weight of the error in the score, between 0 and 1; the rest is that of the discriminator.
    adversarial : float, default=0.1
        Weight of the adversarial loss beside the mean squared error of ``G(E(x))``, when E and G are trained. The
        larger it is, the nearer to the BiGAN as first published, which has no such error and need not converge.
    quantile : float, default=0.95
        Of the training scores.
    scale : bool, default=True
        Divide by the deviation of each column; its mean is always subtracted.
    participation : float, optional
        Fraction of the sites that train in a round. None: that of 10 sites, or all where there are fewer.
    local_epochs, batch_size : int, default=2, 128
        How often a site goes through its rows in a round, and how many rows make one step.
    step_size : float, default=0.1
        Of the first steps: gradient descent with a momentum of 0.9, whose gradients, those of the discriminator and
        those of E and G, are shortened to the norm 1 where they are longer.
    server_momentum, max_rounds, patience, check_every, held_back, aggregator, random_state, verbose
        As of `FedAutoencoderDetector`.

    Attributes
    ----------
    offset_ : float
        Minus the threshold.
    weights_, hidden_, latent_, mean_, scale_, error_, history_, n_rounds_, sites_, run_
        As of `FedAutoencoderDetector`; the errors are those of ``G(E(x))``.

    Notes
    -----
    What leaves a site is what `FedAutoencoderDetector` says. Scoring needs numpy alone.

    References
    ----------
    J. Donahue, P. Krahenbuhl and T. Darrell, "Adversarial feature learning", ICLR 2017. H. Zenati, C. S. Foo,
    B. Lecouat, G. Manek and V. R. Chandrasekhar, "Efficient GAN-based anomaly detection", 2018: the score. T.-A. Nguyen
    and co-authors, "Federated PCA on Grassmann manifold for IoT anomaly detection", IEEE/ACM Transactions on Networking
    (2024): FedBiGAN and FedBiGAN-2.

    Examples
    --------
    >>> import numpy as np, fedspan as fs
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(600, 2)) @ rng.normal(size=(2, 6)) + 0.05 * rng.normal(size=(600, 6))
    >>> detector = fs.FedBiGANDetector(random_state=0, max_rounds=60).fit(X, sites=np.arange(600) % 3)
    >>> detector.predict(np.vstack([X[0], X[0] + [3, -3, 3, -3, 3, -3]]))
    array([ 1, -1])
    """

    _widths: ClassVar[dict[int, tuple[int, ...]]] = {2: (16,), 4: (20, 16, 8)}

    def __init__(
        self,
        *,
        layers: int = 2,
        hidden: tuple[int, ...] | None = None,
        latent: int | None = None,
        alpha: float = 0.9,
        adversarial: float = 0.1,
        quantile: float = 0.95,
        scale: bool = True,
        participation: float | None = None,
        local_epochs: int = 2,
        batch_size: int = 128,
        step_size: float = 0.1,
        server_momentum: float = 0.9,
        max_rounds: int = 2000,
        patience: int = 50,
        check_every: int = 10,
        held_back: float = 0.1,
        aggregator: Aggregator | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.layers = layers
        self.hidden = hidden
        self.latent = latent
        self.alpha = alpha
        self.adversarial = adversarial
        self.quantile = quantile
        self.scale = scale
        self.participation = participation
        self.local_epochs = local_epochs
        self.batch_size = batch_size
        self.step_size = step_size
        self.server_momentum = server_momentum
        self.max_rounds = max_rounds
        self.patience = patience
        self.check_every = check_every
        self.held_back = held_back
        self.aggregator = aggregator
        self.random_state = random_state
        self.verbose = verbose

    def _train(self, fed: Federation, **options: Any) -> Trained:
        return bigan(fed, adversarial=float(self.adversarial), **options)

    def _network(self) -> Network:
        return bigan_network(self.n_features_in_, self.hidden_, self.latent_)

    def _score_transform(self) -> tuple[Callable[..., Array], dict[str, Any]]:
        return bigan_score, {**self._parameters_of_scores(), "alpha": float(self.alpha)}

    def _check_parameters(self) -> None:
        super()._check_parameters()
        real_number("alpha", self.alpha, least=0, most=1)
        real_number("adversarial", self.adversarial, above=0)
