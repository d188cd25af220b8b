"""Federated averaging, until rows that were held back say that it is enough.

H. B. McMahan, E. Moore, D. Ramage, S. Hampson and B. Aguera y Arcas, "Communication-efficient learning of deep networks
from decentralized data", AISTATS 2017: in every round some sites train from the common weights, and the mean of their
changes, weighted by their numbers of rows, is the step of the coordinator. That step has momentum, without which sites
whose rows differ lead it astray: T.-M. H. Hsu, H. Qi and M. Brown, "Measuring the effects of non-identical data
distribution for federated visual classification", 2019.

Sites hold back some rows, always the same in a run. When their mean error has not fallen for a while, training goes on
from the best weights with a smaller step size, and when that has been done and does not help any more, it stops.

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
from fedspan.errors import InputError
from fedspan.federation import Federation, Replies, Site
from fedspan.federation.site.site import generator
from fedspan.sums.moments import aggregated

Vector = NDArray[np.float32]
StepLike = Callable[..., Any] | str

#: Sites that train in a round, unless it is said otherwise.
USUAL_SITES = 10
#: An error that has fallen by less than this part of it has not fallen.
_MATTERS = 0.01
#: What is left of the step size each time when the error stays, and how often that is done before it is the end.
_CUT, _CUTS = 1 / 3, 2


@dataclass(frozen=True)
class Trained:
    """What training found.

    Attributes
    ----------
    weights : array (p,)
        Those with the lowest mean error of the rows held back.
    error : float
        That error.
    history : array (checks, 5)
        Rounds done, mean loss while training since the check before, loss and error of the rows held back, step size.
    """

    weights: Vector
    error: float
    history: NDArray[np.float64]


def fedavg(
    fed: Federation,
    *,
    weights: Vector,
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

    Parameters
    ----------
    train : step
        Takes ``weights``, ``held_back``, ``split``, ``step_size``, ``seed`` and what is in `network` and `training`;
        replies with ``n``, its number of training rows, and ``n`` times the ``change`` of the weights and the mean
        ``loss`` while training.
    check : step
        Takes ``weights``, ``held_back``, ``split`` and what is in `network`; replies with ``n``, its number of rows
        held back, and the sums of their ``loss``, as in training, and ``error``, which extreme rows should not decide.
    held_back : float
        Share of each site's rows that are not trained on, see `rows_held_back`.
    step_size : float
        Of the sites' first steps. It is cut to a third when the error stays.
    server_momentum : float
        At least 0 and below 1; 0 is federated averaging as published.
    participation : float, optional
        Fraction of the sites that train in a round. None: that of 10 sites, or all.
    patience : int
        Rounds without an error that is 1 % lower, before the step size is cut, or at last training stops.
    check_every : int
        Rounds between two looks at the rows held back.
    aggregator : Aggregator, optional
        Where sites may lie: combines the sites' changes, losses and errors. Single replies are then needed.
    """
    share = min(1.0, USUAL_SITES / len(fed.sites)) if participation is None else participation
    # Seeds travel: what sites draw by themselves depends on how many calls were made before training.
    common = {"held_back": held_back, "split": _seed(fed), **network}
    loss, lowest = _held_back(fed, check, {"weights": weights, **common}, aggregator)
    best, history = weights, [(0, loss, loss, lowest, step_size)]
    velocity = np.zeros(len(weights))
    to_beat, improved, cuts, losses = lowest, 0, 0, []
    for number in fed.rounds(max_rounds):
        payload = {"weights": weights, "step_size": step_size, "seed": _seed(fed), **common, **training}
        change, loss = _mean_change(fed.sample(share), train, payload, aggregator)
        velocity = server_momentum * velocity + change
        weights = _single(weights + velocity)
        losses.append(loss)
        done = number + 1
        if done % check_every and done < max_rounds:
            fed.log(train_loss=loss)
            continue
        held_back_loss, error = _held_back(fed, check, {"weights": weights, **common}, aggregator)
        fed.log(train_loss=loss, held_back_loss=held_back_loss, held_back_error=error, step_size=step_size)
        history.append((done, float(np.mean(losses)), held_back_loss, error, step_size))
        losses = []
        if error < lowest:
            best, lowest = weights, error
        if error < (1 - _MATTERS) * to_beat:
            to_beat, improved = error, done
        if done - improved < patience:
            continue
        if cuts == _CUTS:
            fed.stop(
                f"converged: the error of rows held back, {lowest:.4g}, did not fall by 1 % in {patience} rounds",
                converged=True,
            )
            continue
        cuts, improved, to_beat = cuts + 1, done, lowest
        step_size, weights, velocity = step_size * _CUT, best, np.zeros(len(weights))
    return Trained(best, lowest, np.array(history, dtype=np.float64))


def rows_held_back(site: Site, held_back: float, split: int) -> NDArray[np.bool_]:
    """Return which rows (n,) of the site are not for training: always the same ones for the seed `split`.

    They are a share `held_back` of the rows; at least one, where there are two.
    """
    n = len(site)
    mask = np.zeros(n, dtype=bool)
    if n >= 2:
        count = min(max(1, round(held_back * n)), n - 1)
        mask[generator(split, site.name).permutation(n)[:count]] = True
    return mask


def rows_trained_on(site: Site, *, held_back: float, split: int, batch_size: int, **_: Any) -> int:
    """Return the fewest rows of a step of training: as few batches as `batch_size` allows, of nearly equal size."""
    rows = int(np.count_nonzero(~rows_held_back(site, held_back, split)))
    return 0 if batch_size < 1 else rows // max(1, -(-rows // batch_size))


def rows_judged_by(site: Site, *, held_back: float, split: int, **_: Any) -> int:
    """Return how many rows are held back."""
    return int(np.count_nonzero(rows_held_back(site, held_back, split)))


def _seed(fed: Federation) -> int:
    return int(fed.rng.integers(2**32))


def _mean_change(
    fed: Federation, train: StepLike, payload: Mapping[str, Any], aggregator: Aggregator | None
) -> tuple[NDArray[np.float64], float]:
    """Return the change of the weights (p,) per training row, and the loss while training."""
    if aggregator is not None:
        (change, loss), _ = aggregated(fed.ask(train, **payload), ("change", "loss"), aggregator)
        return change.value, float(loss.value)
    total = fed.sum(train, **payload)
    rows = max(1, total["n"])
    return total["change"] / rows, float(total["loss"] / rows)


def _held_back(
    fed: Federation, check: StepLike, payload: Mapping[str, Any], aggregator: Aggregator | None
) -> tuple[float, float]:
    """Return loss and error per row that was held back, over all sites."""
    if aggregator is not None:
        replies = fed.ask(check, **payload)
        some = Replies({site: reply for site, reply in replies.ok.items() if reply["n"] > 0}, replies.failed)
        if some.ok:
            (loss, error), _ = aggregated(some, ("loss", "error"), aggregator)
            return float(loss.value), float(error.value)
    else:
        total = fed.sum(check, **payload)
        if total["n"] > 0:
            return float(total["loss"] / total["n"]), float(total["error"] / total["n"])
    raise InputError("no site holds back a row: there must be one with at least two rows, to judge the training by")


def _single(weights: NDArray[np.float64]) -> Vector:
    """Return weights in single precision, or say that they have left all bounds."""
    with np.errstate(over="ignore"):
        single = weights.astype(np.float32)
    if not np.isfinite(single).all():
        raise InputError(
            "the mean of the sites' changes overflows: a site sends what it should not, which an aggregator such as "
            "fedspan.aggregation.CoordinateMedian() withstands"
        )
    return single
