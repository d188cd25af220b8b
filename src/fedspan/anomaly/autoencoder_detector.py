"""FedAutoencoderDetector: anomalies are rows that an autoencoder of all sites' normal rows reconstructs badly."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fedspan.anomaly.parts.fedavg import Trained, fedavg, local_change, local_errors, rows_of_selections
from fedspan.anomaly.parts.local_descent import TorchNetwork
from fedspan.anomaly.parts.network_detector import NetworkDetector
from fedspan.anomaly.parts.networks import Network, Seed, Weights, Width, Widths
from fedspan.anomaly.scores import in_blocks
from fedspan.federation import Federation, Site, step, transform
from fedspan.federation.site.parameters import Count, Matrix, Passes, Positive, Share, Vector


def autoencoder_network(n_columns: int, hidden: Widths, latent: int) -> Network:
    """Return encoder and decoder; the code has no activation."""
    encoder = (n_columns, *map(int, hidden), latent)
    return Network({"encoder": encoder, "decoder": encoder[::-1]})


@step("anomaly.autoencoder_training", reveals="sums", fewest=rows_of_selections)
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
) -> dict[str, Any]:
    """Leaves the site: its number n of training rows, and n times the change of the weights and the mean loss."""
    network = autoencoder_network(site.X.shape[1], hidden, latent)
    training = (local_epochs, batch_size, step_size)
    return local_change(site, network, weights, (held_back, split), training, seed, _gradients)


def _gradients(network: TorchNetwork, x: Any, rng: np.random.Generator) -> tuple[Any, list[Any]]:
    """Return the mean squared error of the rows x, and its gradient."""
    loss = network.torch.nn.functional.mse_loss(network.run("decoder", network.run("encoder", x)), x)
    return loss, [network.gradient(loss, "encoder", "decoder")]


@step("anomaly.autoencoder_loss", reveals="sums", fewest=rows_of_selections)
def local_loss(
    site: Site, weights: Weights, hidden: Widths, latent: Width, held_back: Share, split: Seed
) -> dict[str, Any]:
    """Leaves the site: its number of rows held back, and the sums of their mean squared errors and of the roots."""
    return local_errors(site, autoencoder_network(site.X.shape[1], hidden, latent), weights, held_back, split)


@transform("anomaly.autoencoder_score")
def autoencoder_score(
    X: Matrix, mean: Vector, scale: Vector | None, weights: Weights, hidden: Widths, latent: Width
) -> Matrix:
    """Return ``||z - decoder(encoder(z))||^2`` (n, 1) of the standardised rows z."""
    encode, decode = autoencoder_network(X.shape[1], hidden, latent).functions(weights).values()

    def score(_: Matrix, D: Matrix) -> Vector:
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
        How often a site goes through its rows in a round, and the number of rows of a step. They are dealt evenly.
    **options
        Of `fedspan.anomaly.parts.fedavg.fedavg`.
    """
    network: dict[str, Any] = {"hidden": np.array(hidden, dtype=np.int64), "latent": latent}
    options |= {"training": {"local_epochs": local_epochs, "batch_size": batch_size}}
    weights = autoencoder_network(n_columns, **network).start(fed.rng)
    return fedavg(fed, weights=weights, train=local_training, check=local_loss, network=network, **options)


class FedAutoencoderDetector(NetworkDetector):
    """Detect anomalies by an autoencoder, trained by federated averaging. Needs torch: ``pip install ".[deep]"``.

    Fit it on rows that are normal, or nearly all so. A row is standardised to z, and its anomaly score is
    ``||z - decoder(encoder(z))||^2``. Rows whose score is above the `quantile` of the training scores are outliers.
    That threshold is found exactly without moving rows (see `fedspan.sums.quantiles`).

    Every site holds back some rows. Training continues until their mean error, the root of the mean squared error of a
    row, does not fall any more. When it has stayed for `patience` rounds, training continues from the best weights with
    a third of the step size. The third time it ends.

    Parameters
    ----------
    layers : {2, 4}, default=2
        Of the encoder; the decoder is its mirror image.
    hidden : tuple of int, optional
        The ``layers - 1`` widths between columns and code. None: 32 for two layers, 32, 16 and 8 for four.
    latent : int, optional
        Width of the code. None: half of the columns, at most 16.
    quantile : float, default=0.95
        Of the training scores.
    scale : bool, default=True
        Divide by the deviation of each column; its mean is always subtracted.
    participation : float, optional
        Fraction of the sites that train in a round. None: that of 10 sites, or all where there are fewer.
    local_epochs, batch_size : int, default=2, 128
        How often a site goes through its rows in a round, and the number of rows of one step.
    step_size : float, default=0.1
        Of the first steps. Gradient descent has a momentum of 0.9, and minimises the mean squared error of a
        standardised value. Its gradient is cut to the norm 1.
    server_momentum : float, default=0.9
        Of the coordinator's steps; 0 is federated averaging as published.
    max_rounds : int, default=2000
        Most rounds, whether the error still falls or not: see ``run_.stopped``.
    patience : int, default=50
        Rounds without an error that is 1 % lower, before the step size is cut.
    check_every : int, default=10
        Rounds between two evaluations on the rows that are held back.
    held_back : float, default=0.1
        Share of each site's rows that are not trained on, at least one where there are two.
    aggregator : Aggregator, optional
        Where sites may be malicious: the rule that combines means, deviations, changes of weights, errors and the
        fractions below a threshold, such as ``fedspan.aggregation.CoordinateMedian()``. It needs single replies.
    random_state, verbose : int, optional
        Seed of the run: first weights, sites of each round, rows held back, order of rows. 1 shows a progress bar when
        the fit takes longer than two seconds.

    Attributes
    ----------
    offset_ : float
        Minus the threshold.
    weights_ : array (p,)
        All weights, float32; ``state_dict()`` names them.
    hidden_, latent_
        The widths.
    mean_, scale_ : array (d,)
        Of the columns, to standardise rows; ``scale_`` is None without `scale`.
    error_ : float
        Mean error of the rows held back, in standard deviations.
    history_ : array (checks, 5)
        Rounds done, mean squared error while training since the check before, mean squared error and mean error of the
        rows held back, step size.
    n_rounds_ : int
    sites_ : tuple of str
    run_ : RunRecord

    Notes
    -----
    Leaves a site: the sums behind mean and deviation, and the change of p weights in every round in which it trains. In
    every check the errors of the rows it holds back leave, and for the threshold 257 counts a round in 8 rounds.
    Weights that are trained on few rows can reveal much about them. Scoring needs numpy alone.

    References
    ----------
    H. B. McMahan and co-authors, "Communication-efficient learning of deep networks from decentralized data", AISTATS
    2017. T.-A. Nguyen and co-authors, "Federated PCA on Grassmann manifold for IoT anomaly detection", IEEE/ACM
    Transactions on Networking (2024): FedAE and FedAE-2.

    Examples
    --------
    >>> import numpy as np, fedspan as fs
    >>> rng = np.random.default_rng(0)
    >>> t = rng.uniform(-1.5, 1.5, size=(600, 1))
    >>> X = np.hstack([t, t**2, np.sin(3 * t)]) + 0.02 * rng.normal(size=(600, 3))
    >>> detector = fs.FedAutoencoderDetector(random_state=0, max_rounds=100).fit(X, sites=np.arange(600) % 3)
    >>> detector.predict([[1.0, 1.0, np.sin(3.0)], [0.0, 2.0, -1.0]])
    array([ 1, -1])
    """

    _widths: ClassVar[dict[int, tuple[int, ...]]] = {2: (32,), 4: (32, 16, 8)}
    _network = staticmethod(autoencoder_network)
    _train = staticmethod(autoencoder)
    _score = staticmethod(autoencoder_score)
