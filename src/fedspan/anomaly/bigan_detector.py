"""FedBiGANDetector: anomalies are rows that a BiGAN of all sites' normal rows reconstructs badly or takes for fakes.

E and G also learn to reconstruct rows, ``G(E(x)) = x``, which the adversarial game alone reaches only in the limit. Two
things keep the game stable where rows have heavy tails and sites differ. The discriminator sees the ``tanh`` of its
input, and no layer of it has a spectral norm above 1 (T. Miyato and co-authors, "Spectral normalization for generative
adversarial networks", ICLR 2018).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from fedspan.anomaly.parts.fedavg import Trained, fedavg, local_change, local_errors, rows_of_selections
from fedspan.anomaly.parts.local_descent import TorchNetwork
from fedspan.anomaly.parts.network_detector import NetworkDetector
from fedspan.anomaly.parts.networks import Network, Seed, Weights, Width, Widths
from fedspan.anomaly.scores import in_blocks
from fedspan.checks import real_number
from fedspan.federation import Federation, Site, step, transform
from fedspan.federation.site.parameters import Count, Matrix, Passes, Positive, Share, Vector

#: Of a layer of the discriminator, whose gradients would otherwise grow without bound as it wins.
LARGEST_NORM = 1.0


def bigan_network(n_columns: int, hidden: Widths, latent: int) -> Network:
    """Return encoder, generator and discriminator."""
    between = tuple(map(int, hidden))
    encoder, discriminator = (n_columns, *between, latent), (n_columns + latent, *between, 1)
    return Network({"encoder": encoder, "generator": encoder[::-1], "discriminator": discriminator})


@step("anomaly.bigan_training", reveals="sums", fewest=rows_of_selections)
def local_training(
    site: Site,
    weights: Weights,
    hidden: Widths,
    latent: Width,
    held_back: Share,
    split: Seed,
    local_epochs: Passes,
    batch_size: Count,
    step_size: Positive,
    seed: Seed,
    adversarial: Positive,
) -> dict[str, Any]:
    """Leaves the site: its number n of training rows, and n times the change of the weights and the mean error."""
    network, game = bigan_network(site.X.shape[1], hidden, latent), partial(_gradients, latent, adversarial)
    training = (local_epochs, batch_size, step_size)
    return local_change(site, network, weights, (held_back, split), training, seed, game, _bound_discriminator)


def _gradients(
    latent: int, adversarial: float, network: TorchNetwork, x: Any, rng: np.random.Generator
) -> tuple[Any, list[Any]]:
    """Return the squared error of the rows x (n, d), and the gradients of both sides' losses."""
    cat, nn = network.torch.cat, network.torch.nn.functional
    z = network.torch.tensor(rng.standard_normal((len(x), latent), dtype=np.float32))
    codes = cat([network.run("encoder", x), z])
    reconstructed, made = network.run("generator", codes).chunk(2)
    real, fake = network.run("discriminator", cat([cat([x, made]), codes], 1).tanh()).chunk(2)
    wrong = cat([-real, fake])  # log-odds of taking the one for the other
    distinguished = nn.softplus(wrong).mean()
    deceived = distinguished - wrong.mean()  # softplus(-v) = softplus(v) - v
    error = nn.mse_loss(reconstructed, x)
    judge = network.gradient(distinguished, "discriminator", retain=True)
    return error, [network.gradient(error + adversarial * deceived, "encoder", "generator"), judge]


def _bound_discriminator(network: TorchNetwork) -> None:
    """Scale the discriminator's layers down to `LARGEST_NORM`."""
    with network.torch.no_grad():
        for W, _ in network.layers["discriminator"]:
            W.mul_((LARGEST_NORM / network.torch.linalg.matrix_norm(W, 2)).clamp(max=1.0))


@step("anomaly.bigan_loss", reveals="sums", fewest=rows_of_selections)
def local_loss(
    site: Site, weights: Weights, hidden: Widths, latent: Width, held_back: Share, split: Seed
) -> dict[str, Any]:
    """Leaves the site: its number of rows held back, the sum of their mean squared errors, and that of the roots."""
    return local_errors(site, bigan_network(site.X.shape[1], hidden, latent), weights, held_back, split)


@transform("anomaly.bigan_score")
def bigan_score(
    X: Matrix, mean: Vector, scale: Vector | None, weights: Weights, hidden: Widths, latent: Width, alpha: Share
) -> Matrix:
    """Return ``alpha ||x - G(E(x))||_1 + (1 - alpha) c(x)`` (n, 1) of the standardised rows x.

    c is the cross-entropy ``-log D(x, E(x))`` of the discriminator, where D is its probability that a row is one of the
    training rows. This is the score of Zenati and co-authors.
    """
    encode, generate, judge = bigan_network(X.shape[1], hidden, latent).functions(weights).values()

    def score(_: Matrix, D: Matrix) -> Vector:
        x = D if scale is None else D / scale
        code = encode(x)
        lost = np.abs(x - generate(code)).sum(axis=1)
        log_odds = judge(np.tanh(np.concatenate([x, code], axis=1)))[:, 0]
        return np.asarray(alpha * lost + (1.0 - alpha) * np.logaddexp(0.0, -log_odds))

    return in_blocks(X, mean, score)


def bigan(
    fed: Federation,
    *,
    n_columns: int,
    hidden: tuple[int, ...] = (16,),
    latent: int = 16,
    adversarial: float = 0.1,
    local_epochs: int = 2,
    batch_size: int = 128,
    **options: Any,
) -> Trained:
    """Return a BiGAN of the rows as they are: standardise them first. Parameters as of `autoencoder`.

    The discriminator has the widths of the encoder. `adversarial` is the weight of the adversarial loss beside the
    squared error of ``G(E(x))``.
    """
    network: dict[str, Any] = {"hidden": np.array(hidden, dtype=np.int64), "latent": latent}
    options |= {"training": {"local_epochs": local_epochs, "batch_size": batch_size, "adversarial": adversarial}}
    weights = bigan_network(n_columns, **network).start(fed.rng)
    return fedavg(fed, weights=weights, train=local_training, check=local_loss, network=network, **options)


@dataclass(eq=False, repr=False)
class FedBiGANDetector(NetworkDetector):
    """Detect anomalies by a BiGAN, trained by federated averaging. Needs torch: ``pip install ".[deep]"``.

    Fit it on rows that are normal, or nearly all so. An encoder E makes codes of rows, and a generator G rows of codes.
    A discriminator learns to distinguish pairs (x, E(x)) from pairs (G(z), z), z normal: D is its probability of the
    former. E and G learn to deceive it and to reconstruct rows. The anomaly score of a standardised row x is
    ``alpha ||x - G(E(x))||_1 - (1 - alpha) log D(x, E(x))``.

    Threshold and end of the training are those of `FedAutoencoderDetector`, with the error of ``G(E(x))``.

    Parameters
    ----------
    layers : {2, 4}, default=2
        Of encoder, generator and discriminator each.
    hidden : tuple of int, optional
        The ``layers - 1`` widths between columns and code, and likewise of the discriminator. None: 16 for two layers,
        20, 16 and 8 for four.
    alpha : float, default=0.9
        Weight of the error in the score, between 0 and 1; the rest is that of the discriminator.
    adversarial : float, default=0.1
        Weight of the adversarial loss beside the mean squared error of ``G(E(x))``, when E and G are trained. The
        BiGAN as first published has the adversarial loss alone, and need not converge.
    step_size : float, default=0.1
        Of the first steps: gradient descent with a momentum of 0.9. The gradients of the discriminator and those of E
        and G are cut to the norm 1.
    latent, quantile, scale, participation, local_epochs, batch_size, server_momentum, max_rounds
        As of `FedAutoencoderDetector`.
    patience, check_every, held_back, aggregator, random_state, verbose
        As of `FedAutoencoderDetector`.

    Attributes
    ----------
    offset_ : float
        Minus the threshold.
    weights_, hidden_, latent_, mean_, scale_, error_, history_, n_rounds_, sites_, run_
        As of `FedAutoencoderDetector`; the errors are those of ``G(E(x))``.

    Notes
    -----
    Leaves a site: the same as with `FedAutoencoderDetector`. Scoring needs numpy alone.

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
    _network = staticmethod(bigan_network)
    _train = staticmethod(bigan)
    _own_training: ClassVar = ("adversarial",)
    _score = staticmethod(bigan_score)
    _own_score: ClassVar = ("alpha",)

    _: KW_ONLY
    alpha: float = 0.9
    adversarial: float = 0.1

    def _check_parameters(self) -> None:
        super()._check_parameters()
        real_number("alpha", self.alpha, least=0, most=1)
        real_number("adversarial", self.adversarial, above=0)
