"""FedX with clustering for classes 0 and 1: local gradient steps on the logistic loss of a site's own cluster.

As `fedx`, with another loss: Phase 2 of L. Su, J. Xu and P. Yang is stated for any loss, its proof is for squares. A
site's step takes `local_steps` passes over its rows. Per round: down k d numbers, up k (d + 3) or, with an aggregator,
d + k + 2.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from scipy.special import expit

from fedspan.aggregation import Aggregator
from fedspan.checks import one_of
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Matrix, OneOf, Passes, Positive, Vector
from fedspan.mixed_regression.fedx import check_steps, default_rate
from fedspan.mixed_regression.parts.cluster_rounds import Shares, Variance, local_rounds, responsibilities
from fedspan.mixed_regression.parts.refinement import Refinement, refine_accelerated
from fedspan.mixed_regression.parts.regression_rows import target

PARTS = ("all", "train")
Part = Annotated[str, OneOf(PARTS)]
_LIKELIHOOD = 0.5  # the "variance" with which a loss is minus a log-likelihood
_HELD_BACK = 4  # every fourth row


def rows_of_part(site: Site, *, part: str = "held back", **_: Any) -> int:
    """Return the number of rows of a part of a site."""
    held_back = len(site) // _HELD_BACK
    return {"all": len(site), "train": len(site) - held_back, "held back": held_back}[part]


@step("mixed_regression.logistic_refinement", reveals="sums", fewest=rows_of_part)
def local_logistic_refinement(
    site: Site, models: Matrix, rate: Positive, local_steps: Passes, part: Part, shares: Shares, variance: Variance
) -> dict[str, Any]:
    """Leaves the site, in the row of its cluster (k, d + 3): n times the model's change, n, 1, its loss."""
    belongs, losses, change, n = _logistic_steps(site, models, rate, local_steps, part, shares, variance)
    counts = np.stack([np.full(len(models), float(n)), np.ones(len(models)), losses], axis=1)
    return {"sums": belongs[:, None] * np.hstack([n * change, counts])}


@step("mixed_regression.logistic_change", reveals="sums", fewest=rows_of_part)
def local_logistic_change(
    site: Site, models: Matrix, rate: Positive, local_steps: Passes, part: Part, shares: Shares, variance: Variance
) -> dict[str, Any]:
    """Leaves the site: its part in each cluster (k,), its model's change (d,) or each one's (k, d), n and its loss.

    All changes with soft assignment, one change without it.
    """
    belongs, losses, change, n = _logistic_steps(site, models, rate, local_steps, part, shares, variance)
    if variance is None:
        change = change[int(belongs.argmax())]
    return {"part": belongs, "change": change, "n": n, "loss": float(belongs @ losses)}


@step("mixed_regression.other_classes", reveals="sums")
def local_other_classes(site: Site) -> dict[str, Any]:
    """Leaves the site: 1 if its y holds other values than 0 and 1, else 0."""
    return {"others": int(not np.isin(target(site), (0.0, 1.0)).all())}


@step("mixed_regression.held_back_loss", reveals="sums", fewest=rows_of_part)
def local_held_back_loss(site: Site, models: Matrix) -> dict[str, Any]:
    """Leaves the site: the loss of every fourth row under the model that fits its other rows best, and their number."""
    X, y = _class_rows(site, "train")
    label = int(logistic_losses(X, y, models).argmin())
    X, y = _class_rows(site, "held back")
    return {"loss": float(logistic_losses(X, y, models[[label]])[0]), "n": len(y)}


@step("mixed_regression.logistic_losses", reveals="sums")
def local_logistic_losses(site: Site, models: Matrix) -> dict[str, Any]:
    """Leaves the site: its logistic loss under each of the models (k,), and its number of rows."""
    X, y = _class_rows(site, "all")
    return {"losses": logistic_losses(X, y, models), "n": len(y)}


def logistic_fedx(
    fed: Federation,
    *,
    models: Matrix,
    local_steps: int = 5,
    rate: float | None = None,
    aggregator: Aggregator | None = None,
    part: str = "all",
    **options: Any,
) -> Refinement:
    """Refine `models` (k, d).

    The other parameters, and the `options` weights, assignment, max_rounds, tol and acceleration, are those of `fedx`.
    The default rate is four times that of squares, because a logistic loss is at most a quarter as curved. `part`
    "train" leaves out every fourth row of each site.
    """
    check_steps(local_steps, rate)
    one_of("part", part, PARTS)
    step_size = rate or 4.0 * default_rate(fed, "fedavg", local_steps, aggregator)
    steps = {"rate": float(step_size), "local_steps": int(local_steps), "part": part}
    one_round = local_rounds(fed, local_logistic_refinement, local_logistic_change, steps, aggregator)
    return refine_accelerated(one_round, fed, models, aggregator, variance=_LIKELIHOOD, **options)


def other_classes(fed: Federation, *, robust: bool) -> bool:
    """Return whether any site holds other values than 0 and 1; if `robust`, whether most do."""
    total = fed.sum(local_other_classes)
    return int(total["others"]) > (len(total.sites) // 2 if robust else 0)


def logistic_losses(X: Matrix, y: Vector, models: Matrix) -> Vector:
    """Return the sums (k,) of ``log(1 + exp(-t))`` over the rows, t the signed logits of each model."""
    logits = models.dot(X.T)
    return np.asarray(np.logaddexp(0.0, np.where(y > 0.5, -logits, logits)).sum(axis=1))


def _logistic_steps(
    site: Site, models: Matrix, rate: float, local_steps: int, part: str, shares: Vector, variance: float | None
) -> tuple[Vector, Vector, Matrix, int]:
    """Return a site's part in each cluster (k,), losses (k,), the models' changes (k, d) where it has one, and n."""
    X, y = _class_rows(site, part)
    losses = logistic_losses(X, y, models)
    belongs = responsibilities(losses, shares, variance)
    change = np.zeros(models.shape)
    for j in np.flatnonzero(belongs):
        model = models[j]
        for _ in range(local_steps if len(y) else 0):
            model = model + rate / len(y) * X.T.dot(y - expit(X.dot(model)))
        change[j] = model - models[j]
    return belongs, losses, change, len(y)


def _class_rows(site: Site, part: str) -> tuple[Matrix, Vector]:
    """Return features (n, d) and classes 0 or 1 of a site; sites of fewer than four rows hold back none."""

    def make() -> tuple[Matrix, Vector]:
        X, y = np.asarray(site.X, dtype=np.float64), target(site)
        if not np.isin(y, (0.0, 1.0)).all():
            raise InputError("y must hold the classes 0 and 1 for the logistic loss")
        back = np.arange(len(y)) % _HELD_BACK == _HELD_BACK - 1
        chosen = {"all": slice(None), "train": ~back, "held back": back}[part]
        return X[chosen], y[chosen]

    return site.cached(f"class rows, {part}", make)
