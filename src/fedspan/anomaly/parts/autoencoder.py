"""The federated autoencoder: a network that squeezes rows through a narrow code, trained on what it loses of them.

The FedAE of T.-A. Nguyen and co-authors, "Federated PCA on Grassmann manifold for IoT anomaly detection" (2024): FedAvg
on an encoder d-32-L and its mirror image. Anomalies are rows that are not recognised after decoding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.anomaly.parts.fedavg import Trained, fedavg, rows_held_back, rows_judged_by, rows_trained_on
from fedspan.anomaly.parts.local_descent import bound, descend, one_thread, torch_module
from fedspan.anomaly.parts.networks import Network, widths
from fedspan.anomaly.scores import in_blocks
from fedspan.federation import Federation, Site, step, transform
from fedspan.federation.site.site import generator

Array = NDArray[Any]


def autoencoder_network(n_columns: int, hidden: Array, latent: int) -> Network:
    """Return encoder and decoder; the code has no activation."""
    encoder = widths(n_columns, hidden, latent)
    return Network({"encoder": encoder, "decoder": encoder[::-1]})


@step("anomaly.autoencoder_training", reveals="sums", fewest=rows_trained_on)
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
) -> dict[str, Any]:
    """Leaves the site: its number n of training rows, and n times the change of the weights and the mean loss."""
    X = np.asarray(site.X)[~rows_held_back(site, held_back, split)]
    if not len(X):
        return {"n": 0, "change": np.zeros_like(weights), "loss": 0.0}
    with one_thread():
        network = bound(autoencoder_network(X.shape[1], hidden, latent), weights)
        encoder, decoder = network.modules["encoder"], network.modules["decoder"]
        squared_error = torch_module().nn.functional.mse_loss

        def fill_gradient(x: Any) -> Any:
            loss = squared_error(decoder(encoder(x)), x)
            loss.backward()
            return loss

        loss = descend(network, fill_gradient, X, generator(seed, site.name), local_epochs, batch_size, step_size)
        return {"n": len(X), "change": network.change(weights) * len(X), "loss": loss * len(X)}


@step("anomaly.autoencoder_loss", reveals="sums", fewest=rows_judged_by)
def local_loss(site: Site, weights: Array, hidden: Array, latent: int, held_back: float, split: int) -> dict[str, Any]:
    """Leaves the site: its number of rows held back, and the sums of their mean squared errors and of the roots."""
    X = np.asarray(site.X, dtype=np.float64)[rows_held_back(site, held_back, split)]
    return sums_of_errors(autoencoder_network(site.X.shape[1], hidden, latent), weights, X)


@transform("anomaly.autoencoder_score")
def autoencoder_score(
    X: Array, mean: Array, scale: Array | None, weights: Array, hidden: Array, latent: int
) -> NDArray[np.float64]:
    """Return ``||z - decoder(encoder(z))||^2`` (n, 1) of the standardised rows z."""
    network = autoencoder_network(X.shape[1], hidden, latent)
    encode, decode = network.functions(weights).values()

    def score(_: Array, D: NDArray[np.float64]) -> NDArray[np.float64]:
        z = D if scale is None else D / scale
        R = z - decode(encode(z))
        return np.asarray(np.vecdot(R, R))

    return in_blocks(X, mean, score)


def autoencoder(
    fed: Federation,
    *,
    n_columns: int,
    hidden: tuple[int, ...] = (32,),
    latent: int = 16,
    local_epochs: int = 2,
    batch_size: int = 128,
    **options: Any,
) -> Trained:
    """Return an autoencoder of the rows as they are: standardise them first.

    Parameters
    ----------
    n_columns, hidden, latent
        Width of the rows, of the layers between them and the code, and of the code.
    local_epochs, batch_size : int
        How often a site goes through its rows in a round, and how many rows make a step; they are dealt evenly.
    **options
        Of `fedspan.anomaly.parts.fedavg.fedavg`.
    """
    widths_between = np.array(hidden, dtype=np.int64)
    return fedavg(
        fed,
        weights=autoencoder_network(n_columns, widths_between, latent).start(fed.rng),
        train=local_training,
        check=local_loss,
        network={"hidden": widths_between, "latent": latent},
        training={"local_epochs": local_epochs, "batch_size": batch_size},
        **options,
    )


def sums_of_errors(network: Network, weights: Array, X: NDArray[np.float64]) -> dict[str, Any]:
    """Return the number of rows X, and the sums of their mean squared errors after two chains and of the roots."""
    encode, decode, *_ = network.functions(weights).values()
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused with the reply
        R = X - decode(encode(X))
        squares = np.vecdot(R, R) / X.shape[1]
        return {"n": len(X), "loss": float(squares.sum()), "error": float(np.sqrt(squares).sum())}
