"""Random starts, and the best of several."""

from __future__ import annotations

import numpy as np

from fedspan.aggregation import Aggregator
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.mixed_regression.fedx import fedx
from fedspan.mixed_regression.logistic_fedx import local_held_back_loss, logistic_fedx
from fedspan.mixed_regression.parts.cluster_start import Matrix, Start, check_clusters, starting_point

LOSSES = ("squared", "logistic")


def random_start(
    fed: Federation, *, n_clusters: int, n_columns: int, start: Matrix | None = None, scale: float = 1.0
) -> Start:
    """Return models (k, d) drawn about `start` (default: 0) with independent N(0, scale^2 / d) entries. No call."""
    check_clusters(n_clusters, len(fed.sites))
    if not scale > 0.0:
        raise InputError(f"scale={scale} must be above 0")
    theta0 = starting_point(start, n_columns)
    return Start(theta0 + scale * fed.rng.standard_normal((n_clusters, n_columns)) / np.sqrt(n_columns))


def best_random_start(
    fed: Federation,
    *,
    n_clusters: int,
    n_columns: int,
    start: Matrix | None = None,
    scale: float = 1.0,
    starts: int = 5,
    rounds: int = 30,
    loss: str = "squared",
    aggregator: Aggregator | None = None,
) -> Start:
    """Return what `rounds` rounds of refinement make of the best of several random starts.

    Of squared losses the best is the one that fits its rows best; of logistic ones, that fits every fourth row of each
    site best, which it has not seen. With an `aggregator` losses are those of the median site.
    """
    if starts < 1 or rounds < 1:
        raise InputError(f"starts={starts} and rounds={rounds} must be at least 1")
    if loss not in LOSSES:
        raise InputError(f"loss={loss!r} must be one of {', '.join(LOSSES)}")
    best, least = None, np.inf
    memory = 5 if aggregator is None else 0  # a median jumps, and must not be extrapolated
    for _ in range(starts):
        drawn = random_start(fed, n_clusters=n_clusters, n_columns=n_columns, start=start, scale=scale).models
        if loss == "squared":
            refined = fedx(fed, models=drawn, max_rounds=rounds, acceleration=memory, aggregator=aggregator)
            found = refined.loss
        else:
            refined = logistic_fedx(
                fed, models=drawn, max_rounds=rounds, acceleration=memory, part="train", aggregator=aggregator
            )
            found = _held_back_loss(fed, refined.models, aggregator)
        fed.log(start_loss=found)
        if best is None or found < least:
            best, least = refined.models, found
    assert best is not None
    return Start(best)


def _held_back_loss(fed: Federation, models: Matrix, aggregator: Aggregator | None) -> float:
    """Return the mean loss of the rows that were held back."""
    if aggregator is None:
        total = fed.sum(local_held_back_loss, models=models)
        return float(total["loss"]) / max(1, int(total["n"]))
    replies = fed.ask(local_held_back_loss, models=models)
    counts = replies.stack("n")
    return float(np.median((replies.stack("loss") / np.maximum(counts, 1))[counts > 0])) if counts.any() else np.inf
