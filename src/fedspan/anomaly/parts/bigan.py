"""The federated BiGAN: an encoder and a generator that a discriminator cannot tell apart.

J. Donahue, P. Krahenbuhl and T. Darrell, "Adversarial feature learning", ICLR 2017, for anomaly detection: H. Zenati,
C. S. Foo, B. Lecouat, G. Manek and V. R. Chandrasekhar, "Efficient GAN-based anomaly detection", 2018; by FedAvg: the
FedBiGAN of T.-A. Nguyen and co-authors, "Federated PCA on Grassmann manifold for IoT anomaly detection" (2024).

The discriminator learns to tell pairs (x, E(x)) of a row and its code from pairs (G(z), z) of a normal z and the row
that is generated of it; encoder E and generator G learn to deceive it, and to bring rows back, ``G(E(x)) = x``, which
the adversarial game alone reaches only in the limit. Two things keep the game stable where rows have heavy tails and
sites differ: the discriminator sees the ``tanh`` of its input, and no layer of it has a spectral norm above 1
(T. Miyato and co-authors, "Spectral normalization for generative adversarial networks", ICLR 2018).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.anomaly.parts.autoencoder import sums_of_errors
from fedspan.anomaly.parts.fedavg import Trained, fedavg, rows_held_back, rows_judged_by, rows_trained_on
from fedspan.anomaly.parts.local_descent import Bound, bound, descend, one_thread, torch_module
from fedspan.anomaly.parts.networks import Network, widths
from fedspan.anomaly.scores import in_blocks
from fedspan.federation import Federation, Site, step, transform
from fedspan.federation.site.site import generator

Array = NDArray[Any]

#: Of a layer of the discriminator, whose gradients would otherwise grow without bound as it wins.
LARGEST_NORM = 1.0


def bigan_network(n_columns: int, hidden: Array, latent: int) -> Network:
    """Return encoder, generator and discriminator."""
    encoder = widths(n_columns, hidden, latent)
    discriminator = widths(n_columns + latent, hidden, 1)
    return Network({"encoder": encoder, "generator": encoder[::-1], "discriminator": discriminator})


@step("anomaly.bigan_training", reveals="sums", fewest=rows_trained_on)
def local_training(
    site: Site,
    weights: Array,
    hidden: Array,
    latent: int,
    held_back: float,
    split: int,
    local_epochs: int,
    batch_size: int,
    step_size: float,
    seed: int,
    adversarial: float,
) -> dict[str, Any]:
    """Leaves the site: its number n of training rows, and n times the change of the weights and the mean error."""
    X = np.asarray(site.X)[~rows_held_back(site, held_back, split)]
    if not len(X):
        return {"n": 0, "change": np.zeros_like(weights), "loss": 0.0}
    with one_thread():
        network = bound(bigan_network(X.shape[1], hidden, latent), weights)
        rng = generator(seed, site.name)
        game = _Game(network, rng, latent, adversarial)
        clipped = (network.span("encoder", "generator"), network.span("discriminator"))
        loss = descend(network, game.fill_gradient, X, rng, local_epochs, batch_size, step_size, clipped)
        game.bound_discriminator()
        return {"n": len(X), "change": network.change(weights) * len(X), "loss": loss * len(X)}


class _Game:
    """One step of both sides, from where they are."""

    def __init__(self, network: Bound, rng: np.random.Generator, latent: int, adversarial: float) -> None:
        self.encoder, self.generator, self.discriminator = network.modules.values()
        self.learners = network.parameters("encoder", "generator")
        self.judges = network.parameters("discriminator")
        self.rng, self.latent, self.adversarial = rng, latent, adversarial
        self.torch = torch_module()

    def fill_gradient(self, x: Any) -> Any:
        """Put the gradients of both sides into their places and return the squared error of the rows x (n, d)."""
        cat, nn = self.torch.cat, self.torch.nn.functional
        z = self.torch.tensor(self.rng.standard_normal((len(x), self.latent), dtype=np.float32))
        codes = cat([self.encoder(x), z])
        brought_back, made = self.generator(codes).chunk(2)
        real, fake = self.discriminator(cat([cat([x, made]), codes], 1).tanh()).chunk(2)
        wrong = cat([-real, fake])  # log-odds of taking the one for the other
        told_apart = nn.softplus(wrong).mean()
        deceived = told_apart - wrong.mean()  # softplus(-v) = softplus(v) - v
        error = nn.mse_loss(brought_back, x)
        told_apart.backward(inputs=self.judges, retain_graph=True)
        (error + self.adversarial * deceived).backward(inputs=self.learners)
        return error

    def bound_discriminator(self) -> None:
        """Shorten the discriminator's layers to `LARGEST_NORM`."""
        with self.torch.no_grad():
            for W in self.judges[::2]:
                W.mul_((LARGEST_NORM / self.torch.linalg.matrix_norm(W, 2)).clamp(max=1.0))


@step("anomaly.bigan_loss", reveals="sums", fewest=rows_judged_by)
def local_loss(site: Site, weights: Array, hidden: Array, latent: int, held_back: float, split: int) -> dict[str, Any]:
    """Leaves the site: its number of rows held back, the sum of their mean squared errors, and that of the roots."""
    X = np.asarray(site.X, dtype=np.float64)[rows_held_back(site, held_back, split)]
    return sums_of_errors(bigan_network(site.X.shape[1], hidden, latent), weights, X)


@transform("anomaly.bigan_score")
def bigan_score(
    X: Array, mean: Array, scale: Array | None, weights: Array, hidden: Array, latent: int, alpha: float
) -> NDArray[np.float64]:
    """Return ``alpha ||x - G(E(x))||_1 + (1 - alpha) c(x)`` (n, 1) of the standardised rows x.

    c is the cross-entropy ``-log D(x, E(x))`` of the discriminator, which takes a row for one of the training rows with
    the probability D: Zenati and co-authors' score.
    """
    network = bigan_network(X.shape[1], hidden, latent)
    encode, generate, judge = network.functions(weights).values()

    def score(_: Array, D: NDArray[np.float64]) -> NDArray[np.float64]:
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
    """Return a BiGAN of the rows as they are: standardise them first.

    Parameters
    ----------
    n_columns, hidden, latent
        Width of the rows, of the layers between them and the code, and of the code; the discriminator's are alike.
    adversarial : float
        Weight of the adversarial loss beside the squared error of ``G(E(x))``.
    local_epochs, batch_size : int
        How often a site goes through its rows in a round, and how many rows make a step; they are dealt evenly.
    **options
        Of `fedspan.anomaly.parts.fedavg.fedavg`.
    """
    widths_between = np.array(hidden, dtype=np.int64)
    return fedavg(
        fed,
        weights=bigan_network(n_columns, widths_between, latent).start(fed.rng),
        train=local_training,
        check=local_loss,
        network={"hidden": widths_between, "latent": latent},
        training={"local_epochs": local_epochs, "batch_size": batch_size, "adversarial": adversarial},
        **options,
    )
