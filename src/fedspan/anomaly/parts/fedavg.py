"""Federated averaging, until the error of rows held back does not fall any more.

H. B. McMahan, E. Moore, D. Ramage, S. Hampson and B. Aguera y Arcas, "Communication-efficient learning of deep networks
from decentralized data", AISTATS 2017. In every round some sites train from the common weights. The coordinator's
step is the mean of their changes, weighted by their numbers of rows. That step has momentum, without which sites whose
rows differ lead it astray: T.-M. H. Hsu, H. Qi and M. Brown, "Measuring the effects of non-identical data distribution
for federated visual classification", 2019.

Sites hold back some rows, always the same in a run. When their mean error has not fallen for a while, training
continues from the best weights with a smaller step size. The third time it stops.

Per round, for p weights: p numbers (float32) down and up for each site that trains, and p down for each site of a
check. Only sums are needed, or with an aggregator single replies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.aggregation import Aggregator
from fedspan.anomaly.parts.local_descent import TorchNetwork, descend, one_thread
from fedspan.anomaly.parts.networks import Network, Weights
from fedspan.errors import InputError
from fedspan.federation import Federation, Replies, Site
from fedspan.federation.site.site import generator
from fedspan.sums.dealt_rows import block_of_rows, n_blocks, rows_of_a_block
from fedspan.sums.moments import aggregated

StepLike = Callable[..., Any] | str

#: Sites that train in a round, unless the caller chooses another number.
USUAL_SITES = 10
#: An error that has fallen by less than this part of it has not fallen.
_MATTERS = 0.01
#: Factor on the step size each time the error stays, and how often that is done before the end.
_CUT, _CUTS = 1 / 3, 2


@dataclass(frozen=True)
class Trained:
    """The result of training.

    Attributes
    ----------
    weights : array (p,)
        Those with the lowest mean error of the rows held back.
    error : float
        That error.
    history : array (checks, 5)
        Rounds done, mean loss while training since the check before, loss and error of the rows held back, step size.
    """

    weights: Weights
    error: float
    history: NDArray[np.float64]

    @property
    def rounds(self) -> int:
        """The number of rounds done."""
        return int(self.history[-1, 0])


def fedavg(
    fed: Federation,
    *,
    weights: Weights,
    train: StepLike,
    check: StepLike,
    network: Mapping[str, Any],
    training: Mapping[str, Any],
    held_back: float = 0.1,
    step_size: float = 0.1,
    server_momentum: float = 0.9,
    participation: float | None = None,
    max_rounds: int = 2000,
    patience: int = 50,
    check_every: int = 10,
    aggregator: Aggregator | None = None,
) -> Trained:
    """Train from `weights` until the error of rows held back does not fall any more.

    Parameters not listed are those of `FedAutoencoderDetector`.

    Parameters
    ----------
    train : step
        Takes ``weights``, ``held_back``, ``split``, ``step_size``, ``seed`` and the items of `network` and `training`;
        replies with ``n``, its number of training rows, and ``n`` times the ``change`` of the weights and the mean
        ``loss`` while training.
    check : step
        Takes ``weights``, ``held_back``, ``split`` and the items of `network`; replies with ``n``, its number of rows
        held back, and two sums over them: ``loss``, as in training, and ``error``, which extreme rows should not
        decide.
    """
    share = min(1.0, USUAL_SITES / len(fed.sites)) if participation is None else participation
    # Seeds travel: a site's own draws would depend on the number of calls before training.
    common = {"held_back": held_back, "split": _seed(fed), **network}

    def checked(weights: Weights) -> tuple[float, float]:
        found = _per_row(fed, check, {"weights": weights, **common}, ("loss", "error"), aggregator)
        if found is None:
            raise InputError("no site holds back a row: one site at least must have two rows, to check the training")
        return float(found[0]), float(found[1])

    loss, lowest = checked(weights)
    best, history = weights, [(0, loss, loss, lowest, step_size)]
    velocity = np.zeros(len(weights))
    to_beat, improved, cuts, losses = lowest, 0, 0, []
    for number in fed.rounds(max_rounds):
        payload = {"weights": weights, "step_size": step_size, "seed": _seed(fed), **common, **training}
        change, loss = _per_row(fed.sample(share), train, payload, ("change", "loss"), aggregator) or (0.0, 0.0)
        velocity = server_momentum * velocity + change
        weights = _single(weights + velocity)
        losses.append(float(loss))
        done = number + 1
        if done % check_every and done < max_rounds:
            fed.log(train_loss=losses[-1])
            continue
        held_back_loss, error = checked(weights)
        fed.log(train_loss=losses[-1], held_back_loss=held_back_loss, held_back_error=error, step_size=step_size)
        history.append((done, float(np.mean(losses)), held_back_loss, error, step_size))
        losses = []
        if error < lowest:
            best, lowest = weights, error
        if error < (1 - _MATTERS) * to_beat:
            to_beat, improved = error, done
        if done - improved < patience:
            continue
        if cuts == _CUTS:
            reason = f"the error of rows held back, {lowest:.4g}, did not fall by 1 % in {patience} rounds"
            fed.stop(f"converged: {reason}", converged=True)
            continue
        cuts, improved, to_beat = cuts + 1, done, lowest
        step_size, weights, velocity = step_size * _CUT, best, np.zeros(len(weights))
    return Trained(best, lowest, np.array(history, dtype=np.float64))


def _seed(fed: Federation) -> int:
    return int(fed.rng.integers(2**32))


def _per_row(
    fed: Federation, step: StepLike, payload: Mapping[str, Any], keys: tuple[str, str], aggregator: Aggregator | None
) -> list[Any] | None:
    """Return the sums of a step's replies per row, or by an aggregator; ``None`` if no site has rows for it."""
    if aggregator is None:
        total = fed.sum(step, **payload)
        return [total[key] / total["n"] for key in keys] if total["n"] > 0 else None
    replies = fed.ask(step, **payload)
    some = Replies({site: reply for site, reply in replies.ok.items() if reply["n"] > 0}, replies.failed)
    return [found.value for found in aggregated(some, keys, aggregator)[0]] if some.ok else None


def _single(weights: NDArray[np.float64]) -> Weights:
    """Return weights in single precision, or refuse weights that overflow in it."""
    with np.errstate(over="ignore"):
        single = weights.astype(np.float32)
    if not np.isfinite(single).all():
        raise InputError(
            "the mean of the sites' changes overflows: a site sends false values, which an aggregator such as "
            "fedspan.aggregation.CoordinateMedian() withstands"
        )
    return single


# The site's side.


def rows_held_back(site: Site, held_back: float, split: int) -> NDArray[np.bool_]:
    """Return which rows (n,) of the site are not for training: always the same ones for the seed `split`.

    They are a share `held_back` of the site's blocks of rows; at least one, where there are two.
    """
    return _blocks_and_held_back(site, held_back, split)[1]


def _blocks_and_held_back(site: Site, held_back: float, split: int) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    blocks, count = block_of_rows(site, by_target=False), n_blocks(len(site))
    if count < 2:
        return blocks, np.zeros(len(site), dtype=bool)
    some = generator(split, site.name).permutation(count)[: min(max(1, round(held_back * count)), count - 1)]
    return blocks, np.isin(blocks, some)


def rows_of_selections(site: Site, **_: Any) -> int:
    """Return the rows of a block: seeds choose batches and rows held back, and differences of sums are about blocks."""
    return rows_of_a_block(len(site))


def local_change(
    site: Site,
    network: Network,
    weights: Weights,
    rows: tuple[float, int],
    training: tuple[int, int, float],
    seed: int,
    gradients: Callable[[TorchNetwork, Any, np.random.Generator], tuple[Any, list[Any]]],
    finish: Callable[[TorchNetwork], None] = lambda network: None,
) -> dict[str, Any]:
    """Train on the rows that are not held back; return the reply of a step `train` of `fedavg`.

    `rows` are ``held_back`` and ``split``, `training` are epochs, batch size and step size of `descend`, and
    ``gradients(network, rows, rng)`` its gradients. ``finish(network)`` may change the trained network.
    """
    blocks, held = _blocks_and_held_back(site, *rows)
    X = np.asarray(site.X)[~held]
    if not len(X):
        return {"n": 0, "change": np.zeros_like(weights), "loss": 0.0}
    with one_thread():
        rng, trained = generator(seed, site.name), TorchNetwork(network, weights)
        loss = descend(trained, lambda x: gradients(trained, x, rng), X, rng, *training, blocks[~held])
        finish(trained)
        change = np.asarray(trained.values.numpy() - weights)
    return {"n": len(X), "change": change * len(X), "loss": loss * len(X)}


def local_errors(site: Site, network: Network, weights: Weights, held_back: float, split: int) -> dict[str, Any]:
    """Return the reply of a step `check` of `fedavg`, for the rows held back after two chains of the network."""
    X = np.asarray(site.X, dtype=np.float64)[rows_held_back(site, held_back, split)]
    encode, decode, *_ = network.functions(weights).values()
    with np.errstate(over="ignore", invalid="ignore"):  # the policy refuses a reply that is not finite
        R = X - decode(encode(X))
        squares = np.vecdot(R, R) / X.shape[1]
        return {"n": len(X), "loss": float(squares.sum()), "error": float(np.sqrt(squares).sum())}
