"""Random starts, and the best of several."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedspan.aggregation import Aggregator
from fedspan.checks import one_of, real_number, whole_number
from fedspan.federation import Federation
from fedspan.federation.site.parameters import Matrix, Vector
from fedspan.mixed_regression.fedx import fedx
from fedspan.mixed_regression.logistic_fedx import local_held_back_loss, logistic_fedx
from fedspan.mixed_regression.parts.cluster_start import Start, checked_start

LOSSES = ("squared", "logistic")


def random_start(
    fed: Federation, *, n_clusters: int, n_columns: int, start: Vector | None = None, scale: float = 1.0
) -> Start:
    """Return models (k, d) drawn about `start` (default: 0) with independent N(0, scale^2 / d) entries. No call."""
    theta0 = checked_start(fed.sites, n_clusters, n_columns, start)
    real_number("scale", scale, above=0)
    return Start(theta0 + scale * fed.rng.standard_normal((n_clusters, n_columns)) / np.sqrt(n_columns))


def best_random_start(
    fed: Federation,
    *,
    n_clusters: int,
    n_columns: int,
    start: Vector | None = None,
    scale: float = 1.0,
    starts: int = 5,
    rounds: int = 30,
    loss: str = "squared",
    aggregator: Aggregator | None = None,
) -> Start:
    """Return the best of several random starts, refined for `rounds` rounds.

    The best one has the smallest loss: of all rows if squared, of every fourth row of each site, held back, if
    logistic. With an `aggregator`, losses are those of the median site.
    """
    whole_number("starts", starts, 1)
    whole_number("rounds", rounds, 1)
    one_of("loss", loss, LOSSES)
    memory = 5 if aggregator is None else 0  # a median jumps, and must not be extrapolated
    options: dict[str, Any] = {"max_rounds": rounds, "acceleration": memory, "aggregator": aggregator}
    tries: list[tuple[float, Matrix]] = []
    for _ in range(starts):
        drawn = random_start(fed, n_clusters=n_clusters, n_columns=n_columns, start=start, scale=scale).models
        if loss == "squared":
            refined = fedx(fed, models=drawn, **options)
            found = refined.loss
        else:
            refined = logistic_fedx(fed, models=drawn, part="train", **options)
            found = _held_back_loss(fed, refined.models, aggregator)
        fed.log(start_loss=found)
        tries.append((found, refined.models))
    return Start(min(tries, key=lambda one: one[0])[1])


def _held_back_loss(fed: Federation, models: Matrix, aggregator: Aggregator | None) -> float:
    """Return the mean loss of the held-back rows."""
    if aggregator is None:
        total = fed.sum(local_held_back_loss, models=models)
        return float(total["loss"]) / max(1, int(total["n"]))
    replies = fed.ask(local_held_back_loss, models=models)
    counts = replies.stack("n")
    return float(np.median((replies.stack("loss") / np.maximum(counts, 1))[counts > 0])) if counts.any() else np.inf
