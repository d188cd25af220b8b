"""Logistic, multinomial and Poisson regression by sums: Newton's method with exact gradients and information.

Rounds: means; one weighted least squares from means near the targets, whose factor gives every site the same
well-conditioned columns (`design_rows`); then Newton's method. Up per site and round: p (p + 1) + 4 numbers for p
coefficients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from fedspan.arrays import Array, Matrix, Vector
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.statistics.regression.least_squares import design_of, inner_penalty, penalised
from fedspan.statistics.regression.parts.design_rows import NO_COLUMN, Design, column_sums, missing
from fedspan.statistics.regression.parts.glm_sums import (
    local_glm_start,
    local_glm_sums,
    local_separation,
    local_squared_scores,
    plain_labels,
)
from fedspan.statistics.regression.parts.newton import Evaluation, inverse, newton
from fedspan.statistics.regression.parts.regression_fit import RegressionFit, sandwich
from fedspan.sums.plausible_totals import whole

_MOST_CLASSES = 100
#: Rounds from which it is checked in any case whether targets are separated.
_LONG = 9
#: The share of a separating direction, in units of the columns' deviations, from which a column is part of it.
_PART = 0.1


@step("regression.zeros_and_ones", reveals="sums", weighted=True)
def local_zeros_and_ones(site: Site) -> dict[str, Any]:
    """Leaves the site: the numbers of its targets that are 0, that are 1, that are something else, and missing."""
    y = site.y
    if y is None:
        raise InputError("the site has no y: a regression needs the target of each row, as in federate(X, y)")
    known = y[~missing(y)]
    labels = plain_labels(known)
    numbers = labels if labels.dtype.kind == "f" else np.full(len(labels), np.nan)
    zeros, ones = int((numbers == 0).sum()), int((numbers == 1).sum())
    return {"zeros": zeros, "ones": ones, "others": len(known) - zeros - ones}


@step("regression.labels", reveals="rows", weighted=True, ragged=["labels"])
def local_labels(site: Site) -> dict[str, Any]:
    """Leaves the site: the labels that its targets have, each once."""
    y = np.zeros(0) if site.y is None else site.y
    return {"labels": np.unique(plain_labels(y[~missing(y)]))[: _MOST_CLASSES + 1]}


def target_classes(fed: Federation) -> Array:
    """Return the sorted classes of all targets. Where these are 0 and 1, no label leaves a site by itself."""
    counts = fed.sum(local_zeros_and_ones)
    if not counts["others"]:
        found: Array = np.array([k for k, key in enumerate(("zeros", "ones")) if counts[key]])
    else:
        fed.need_single_replies("a target with other labels than 0 and 1, without classes=[...],")
        sent = [np.asarray(reply["labels"]) for reply in fed.ask(local_labels).values()]
        sent = [labels for labels in sent if labels.size]
        if len({labels.dtype.kind == "U" for labels in sent}) > 1:
            raise InputError("y holds numbers at some sites and text at others: use the same labels everywhere")
        found = np.unique(np.concatenate(sent))
        whole_numbers = found.dtype.kind == "f" and bool((found == np.round(found)).all())
        found = found.astype(np.int64) if whole_numbers and np.abs(found).max() < 2**53 else found
    if len(found) < 2:
        shown = f"one class, {found[0]}" if len(found) else "no class"
        raise InputError(f"y has {shown}, and a classifier needs rows of two classes or more")
    if len(found) > _MOST_CLASSES:
        raise InputError(
            f"y has more than {_MOST_CLASSES} classes, as many as numbers have: use FedLinearRegression or "
            "FedPoissonRegression for numbers"
        )
    return found


@dataclass(frozen=True)
class GLMFit(RegressionFit):
    """A generalised linear model: its deviance, Pearson's chi-square, and the likelihood without features, if known."""

    deviance: float = 0.0
    pearson: float = 0.0
    null_loglik: float | None = None


def generalized_linear_model(
    fed: Federation,
    *,
    family: str = "binomial",
    classes: Array | None = None,
    intercept: bool = True,
    offset: int = -1,
    effect: str | None = None,
    ridge: float = 0.0,
    cov_type: str = "nonrobust",
    drop: bool = False,
    max_rounds: int = 25,
    names: tuple[str, ...] | None = None,
) -> GLMFit:
    """Return the model with the largest likelihood, minus half the ridge times the squared coefficients of features.

    Parameters
    ----------
    family : {"binomial", "multinomial", "poisson"}, default="binomial"
    classes : array, optional
        The sorted labels of "binomial" (two) and "multinomial". Default: 0 and 1.
    offset : int, default=-1
        The column of X that is added to the linear predictor; -1 for none.
    max_rounds : int, default=25
        Most rounds of Newton's method.
    intercept, effect, ridge, cov_type, drop, names
        As of `least_squares`, without random effects, "HC2" and "HC3".
    """
    labels = np.zeros(0) if family == "poisson" else np.array([0.0, 1.0]) if classes is None else plain_labels(classes)
    first = column_sums(names, fed, drop=drop, numeric=family == "poisson")
    rows = first.counted()
    if family == "poisson" and not first.level > 0:
        raise InputError("all counts in y are 0, or their mean is below 0: a Poisson regression needs counts above 0")
    design = design_of(first.mean, fed.sites, intercept, offset, effect, drop)
    kind = {"family": family, "classes": labels}
    plain = design.plain()
    raw = fed.sum(local_glm_start, level=first.level, **kind, **plain.payload())
    rows.compare(raw)
    whole(raw, gram=(plain.width, plain.width), moment=(plain.width,))
    if raw["bad"]:
        what = "below 0" if family == "poisson" else f"of other classes than {', '.join(map(str, labels[:10]))}"
        raise InputError(f"y has {raw['bad']} values {what}: correct or leave out such rows")
    penalty = ridge * penalised(design)
    G = raw["gram"] + np.diag(penalty)
    design = design.factored(G, raw["n"])
    r = max(1, len(labels) - 1)

    def evaluate(b: Vector) -> Evaluation:
        found = fed.sum(local_glm_sums, coef=b, **kind, **design.payload())
        rows.compare(found)
        whole(found, gradient=b.shape, information=(len(b), len(b)))
        last.clear()
        last.update(found)
        return Evaluation(float(found["loglik"]), found["gradient"], found["information"], found.sites)

    last: dict[str, Any] = {}
    k = len(design.factor)
    start = np.zeros(r * k)
    if family != "multinomial":
        start = solve_triangular(design.factor, raw["moment"][design.kept], trans="T")
    check = evaluate(start)
    lost = np.diag(check.information).reshape(r, k).max(axis=0) < NO_COLUMN
    if lost.any():
        design = design.without(lost, G)
        start = np.delete(start.reshape(r, k), np.flatnonzero(lost), axis=1).ravel()
    pending = [] if lost.any() else [check]
    P: Matrix = np.kron(np.eye(r), inner_penalty(design, penalty)).astype(np.float64)

    def next_evaluation(b: Vector) -> Evaluation:
        return pending.pop() if pending else evaluate(b)

    def separates(step: Vector, b: Vector) -> bool:
        """Return whether the step lowers no row's likelihood, or the coefficients themselves predict all rows."""
        counts = fed.sum(local_separation, directions=np.stack([step, b]), **kind, **design.payload())
        whole(counts, raised=(2,), lowered=(2,), surely=(2,))
        return bool((counts["raised"][0] > 0 and counts["lowered"][0] == 0) or 0 < counts["n"] == counts["surely"][1])

    settings: dict[str, Any] = {"max_rounds": max_rounds, "always_from": _LONG}
    settings["separates"] = None if ridge else separates
    end = newton(next_evaluation, fed, start=start, penalty=P, **settings)
    b, H = end.coef, end.at.information
    bread = inverse(H + P)
    n, p = int(last["n"]), len(b)
    if cov_type == "nonrobust":
        cov = bread @ H @ bread if ridge else bread
    else:
        meat = "HC0" if cov_type == "HC1" else cov_type
        sent = {"meat": meat, "coef": b, "level": 0.0, "bread": bread}
        scores = fed.sum(local_squared_scores, **kind, **sent, **design.payload())
        cov = sandwich(bread, scores["meat"], cov_type, n, p, int(scores["clusters"]))
    columns = design.to_columns(b.reshape(r, -1).T)
    coef = columns if family == "multinomial" else columns[:, 0]
    separated = None if end.separated is None else _part_of(design, end.separated.reshape(r, -1).T, G)
    return GLMFit(
        design,
        coef,
        design.covariance(cov),
        n,
        first.weight,
        end.at.loglik,
        1.0,
        end.converged,
        end.rounds,
        separated,
        float(last["deviance"]),
        float(last["pearson"]),
        _null_loglik(family, raw, first.level * first.weight, offset) if intercept else None,
    )


def _part_of(design: Design, direction: Vector, G: Vector) -> NDArray[np.bool_]:
    """Return the columns that a separating direction (k, r) is about: those along which it is long."""
    size = np.abs(design.to_columns(direction)).max(axis=1) * np.sqrt(np.diag(G))
    size[: design.intercept] = 0.0
    return np.asarray(size > _PART * size.max(initial=0.0))


def _null_loglik(family: str, raw: Mapping[str, Any], total: float, offset: int) -> float | None:
    """Return the log-likelihood of a model with an intercept alone, where a formula has it."""
    if family == "poisson":
        level = math.log(total / float(raw["exposure"]))
        return total * level + float(raw["shifted"]) - total - float(raw["constant"])
    if offset >= 0:
        return None
    counts = raw["target"][raw["target"] > 0]
    return float((counts * np.log(counts / counts.sum())).sum())
