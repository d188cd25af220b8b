"""What the sites add up for a regression: products of rows, gradients, information, squared scores."""

from __future__ import annotations

import math
from typing import Annotated, Any, Unpack

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from fedspan.arrays import Array
from fedspan.errors import InputError
from fedspan.federation import Site, step
from fedspan.federation.site.parameters import ArrayOf, Matrix, OneOf, Vector
from fedspan.statistics.regression.parts.design_rows import (
    COUNTED,
    DesignForm,
    DesignRows,
    design_rows,
    numeric_target,
    with_site_effects,
)
from fedspan.statistics.regression.parts.families import FAMILIES, Family

FamilyName = Annotated[str, OneOf((*FAMILIES, "multinomial"))]
SquaredName = Annotated[str, OneOf(("gaussian", *FAMILIES, "multinomial"))]
MeatName = Annotated[str, OneOf(("HC0", "HC2", "HC3", "cluster"))]
#: Changes of the linear predictor. A step of Newton's towards infinity moves rows by about 1 or more; one that ends the
#: iteration moves none far. Less than the second number is what is left of converging coefficients.
_FAR, _MOVED = 0.5, 1e-3


class _Classes:
    """Labels of classes: numbers or text."""

    @staticmethod
    def check(name: str, value: object) -> Array:
        text = isinstance(value, np.ndarray) and value.dtype.kind == "U"
        return ArrayOf("text" if text else "float", 1).check(name, value)


Classes = Annotated[NDArray[Any], _Classes()]


@step(
    "regression.products",
    reveals="sums",
    weighted=True,
    moments=True,
    counts=["n"],
    by_site=with_site_effects,
    **COUNTED,
)
def local_products(site: Site, coef: Vector, level: float, **form: Unpack[DesignForm]) -> dict[str, Any]:
    """Leaves the site: n, sums of weights and their logarithms, of Z'Z, Z'r, r and r^2; r are residuals of `coef`."""
    k = len(form["factor"])
    found: dict[str, Any] = {"n": 0, "gram": np.zeros((k, k)), "moment": np.zeros(k)}
    found |= {"squares": 0.0, "sum": 0.0, "weight": 0.0, "log_weight": 0.0}
    for rows in design_rows(site, **form):
        r = residuals(rows, coef, level)
        w = rows.weights
        found["n"] += len(r)
        found["gram"] += rows.Z.T @ (w[:, None] * rows.Z)
        found["moment"] += rows.Z.T @ (w * r)
        found["squares"] += float(w @ r**2)
        found["sum"] += float(w @ r)
        found["weight"] += float(w.sum())
        found["log_weight"] += float(np.log(w[w > 0]).sum())
    return found


def residuals(rows: DesignRows, coef: Vector, level: float) -> Vector:
    """Return the targets minus offset, `level` and the linear predictor."""
    return np.asarray(numeric_target(rows.y) - rows.offset - level - rows.Z @ coef)


@step("regression.glm_start", reveals="sums", weighted=True, counts=["n"], by_site=with_site_effects, **COUNTED)
def local_glm_start(
    site: Site, family: FamilyName, classes: Classes, level: float, **form: Unpack[DesignForm]
) -> dict[str, Any]:
    """Leaves the site: n, and the sums of a first weighted least squares; those of the model without features."""
    k = len(form["factor"])
    found: dict[str, Any] = {"n": 0, "gram": np.zeros((k, k)), "moment": np.zeros(k), "target": np.zeros(len(classes))}
    found |= {"exposure": 0.0, "shifted": 0.0, "constant": 0.0, "bad": 0}
    for rows in design_rows(site, **form):
        y, known = targets(rows, family, classes)
        w = rows.weights * known
        found["bad"] += int((~known).sum())
        found["n"] += len(y)
        if family == "multinomial":
            found["gram"] += rows.Z.T @ (w[:, None] * rows.Z) / (len(classes) or 1)
            found["target"] += np.bincount(y, weights=w, minlength=len(classes))
            continue
        kind = FAMILIES[family]
        mu = kind.start(y, level)
        var = kind.variance(mu)
        z = kind.link(mu) + (y - mu) / var - rows.offset
        found["gram"] += rows.Z.T @ ((w * var)[:, None] * rows.Z)
        found["moment"] += rows.Z.T @ (w * var * z)
        found["target"] += np.array([w @ (1 - y), w @ y] if len(classes) else [])
        if family == "poisson":
            found["exposure"] += float(w @ np.exp(np.clip(rows.offset, -700.0, 300.0)))
            found["shifted"] += float(w @ (y * rows.offset))
            found["constant"] += float(w @ gammaln(y + 1.0))
    return _of_all_rows(found, found["bad"])


@step("regression.glm_sums", reveals="sums", weighted=True, counts=["n"], by_site=with_site_effects, **COUNTED)
def local_glm_sums(
    site: Site, family: FamilyName, classes: Classes, coef: Vector, **form: Unpack[DesignForm]
) -> dict[str, Any]:
    """Leaves the site: n, and sums of log-likelihood, deviance, Pearson's chi-square, gradient and information."""
    p = len(coef)
    found: dict[str, Any] = {"n": 0, "loglik": 0.0, "deviance": 0.0, "pearson": 0.0}
    found |= {"gradient": np.zeros(p), "information": np.zeros((p, p))}
    bad = 0
    for rows in design_rows(site, **form):
        y, known = targets(rows, family, classes)
        w = rows.weights * known
        bad += int((~known).sum())
        found["n"] += len(y)
        if family == "multinomial":
            _add_multinomial(found, rows.Z, y, w, coef, len(classes))
            continue
        kind = FAMILIES[family]
        eta = rows.Z @ coef + rows.offset
        mu = kind.mean(eta)
        var = kind.variance(mu)
        found["loglik"] += float(w @ kind.loglik(y, eta))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            found["deviance"] += float(w @ kind.deviance(y, mu))
            found["pearson"] += float(w @ np.where(var > 0, (y - mu) ** 2 / np.where(var > 0, var, 1.0), 0.0))
        found["gradient"] += rows.Z.T @ (w * (y - mu))
        found["information"] += rows.Z.T @ ((w * var)[:, None] * rows.Z)
    for key in ("deviance", "pearson"):  # of coefficients on the way to infinity
        if not math.isfinite(found[key]):
            found[key] = 1e90 if found[key] > 0 else 0.0
    return _of_all_rows(found, bad)


def _of_all_rows(found: dict[str, Any], bad: int) -> dict[str, Any]:
    """Return sums, of no rows where some have targets that no request lists: a list must not select rows."""
    kept = found if not bad else {"n", "bad"}
    return {name: value if name in kept else np.zeros_like(value)[()] for name, value in found.items()}


@step("regression.squared_scores", reveals="sums", weighted=True, by_site=with_site_effects, **COUNTED)
def local_squared_scores(
    site: Site,
    family: SquaredName,
    meat: MeatName,
    classes: Classes,
    coef: Vector,
    level: float,
    bread: Matrix,
    **form: Unpack[DesignForm],
) -> dict[str, Any]:
    """Leaves the site: the sum of its rows' squared scores, or with "cluster" the square of their sum.

    `bread` is the inverse of the information: "HC2" and "HC3" divide by what a row leaves free of itself.
    """
    p = len(coef)
    total, whole, n, bad = np.zeros((p, p)), np.zeros(p), 0, 0
    for rows in design_rows(site, **form):
        bad += 0 if family == "gaussian" else int((~targets(rows, family, classes)[1]).sum())
        S = _scores(rows, family, classes, coef, level)
        if meat in ("HC2", "HC3"):
            lever = rows.weights * np.einsum("ij,jk,ik->i", rows.Z, bread, rows.Z)
            S /= ((1.0 - lever) ** (0.5 if meat == "HC2" else 1.0))[:, None]
        total += S.T @ S
        whole += S.sum(axis=0)
        n += len(S)
    found = {"meat": np.outer(whole, whole) if meat == "cluster" else total, "clusters": int(n > 0)}
    return _of_all_rows(found, bad)


@step("regression.separation", reveals="sums", weighted=True, counts=["n"], by_site=with_site_effects, **COUNTED)
def local_separation(
    site: Site, family: FamilyName, classes: Classes, directions: Matrix, **form: Unpack[DesignForm]
) -> dict[str, Any]:
    """Leaves the site: n, and for each direction the rows whose likelihood it raises, lowers, and surely raises.

    Surely: against all other classes.
    """
    found: dict[str, Any] = {"n": 0, "raised": np.zeros(len(directions), dtype=np.int64)}
    found |= {"lowered": found["raised"].copy(), "surely": found["raised"].copy()}
    for rows in design_rows(site, **form):
        y, known = targets(rows, family, classes)
        counted = known & (rows.weights > 0)
        found["n"] += int(counted.sum())
        for i, direction in enumerate(directions):
            gains = _gains(rows.Z, y, direction, family, len(classes))[counted]
            found["raised"][i] += int((gains.max(axis=1, initial=0.0) > _FAR).sum())
            found["lowered"][i] += int((gains.min(axis=1, initial=0.0) < -_MOVED).sum())
            found["surely"][i] += int((gains > _MOVED).all(axis=1).sum())
    return found


def _gains(Z: Matrix, y: Array, direction: Vector, family: str, classes: int) -> Matrix:
    """Return how far a direction moves each row towards its target, away from each other class (n, others)."""
    if family == "multinomial":
        eta = _predictors(Z, direction, classes)
        margins = eta[np.arange(len(y)), y][:, None] - eta
        others = np.arange(classes) != y[:, None]
        return np.asarray(margins[others].reshape(len(y), classes - 1))
    eta = Z @ direction
    # A count above 0 may not move at all: its mean would be wrong.
    gain = np.where(y > 0, eta, -eta) if family == "binomial" else np.where(y > 0, -np.abs(eta), -eta)
    return np.asarray(gain[:, None])


def targets(rows: DesignRows, family: str, classes: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Return targets as a family needs them, and which of them are known: numbers, or positions among `classes`."""
    if family == "poisson":
        y = numeric_target(rows.y)
        known = y >= 0
        return np.where(known, y, 0.0), known
    codes = class_codes(rows.y, classes)
    known = codes >= 0
    codes = np.where(known, codes, 0)
    return (codes if family == "multinomial" else codes.astype(np.float64)), known


def class_codes(y: Array, classes: Array) -> NDArray[np.int64]:
    """Return the position of each label among the sorted `classes`, -1 for others."""
    if y.ndim != 1:
        raise InputError(f"y must be a vector of labels, and has the shape {y.shape}")
    labels = plain_labels(y)
    if (labels.dtype.kind == "U") != (classes.dtype.kind == "U") or not len(classes):
        return np.full(len(y), -1)
    at = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
    return np.where(classes[at] == labels, at, -1).astype(np.int64)


def plain_labels(y: Array) -> Array:
    """Return labels as numbers, or as text."""
    if y.dtype.kind in "buif":
        return y.astype(np.float64)
    if y.dtype.kind == "O":
        try:
            return y.astype(np.float64)
        except (TypeError, ValueError):
            pass
    return y.astype(str)


def _predictors(Z: Matrix, coef: Vector, classes: int) -> Matrix:
    """Return the linear predictors (n, classes) of a multinomial model; those of the first class are 0."""
    B = coef.reshape(classes - 1, -1)
    return np.hstack([np.zeros((len(Z), 1)), Z @ B.T])


def _add_multinomial(
    found: dict[str, Any], Z: Matrix, y: NDArray[np.int64], w: Vector, coef: Vector, classes: int
) -> None:
    eta = _predictors(Z, coef, classes)
    top = eta.max(axis=1, keepdims=True, initial=0.0)
    logs = eta - top - np.log(np.exp(eta - top).sum(axis=1, keepdims=True))
    own = logs[np.arange(len(y)), y]
    P = np.exp(logs)
    found["loglik"] += float(w @ own)
    found["deviance"] += float(-2 * w @ own)
    hits = np.zeros_like(P)
    hits[np.arange(len(y)), y] = 1.0
    found["gradient"] += ((w[:, None] * (hits - P)).T @ Z)[1:].ravel()
    k = Z.shape[1]
    for a in range(1, classes):
        for b in range(a, classes):
            curve = w * P[:, a] * (float(a == b) - P[:, b])
            block = Z.T @ (curve[:, None] * Z)
            found["information"][(a - 1) * k : a * k, (b - 1) * k : b * k] += block
            if a != b:
                found["information"][(b - 1) * k : b * k, (a - 1) * k : a * k] += block.T


def _scores(rows: DesignRows, family: str, classes: Array, coef: Vector, level: float) -> Matrix:
    """Return the gradient of each row's log-likelihood (n, p)."""
    if family == "gaussian":
        return np.asarray((rows.weights * residuals(rows, coef, level))[:, None] * rows.Z)
    y, known = targets(rows, family, classes)
    w = rows.weights * known
    if family == "multinomial":
        eta = _predictors(rows.Z, coef, len(classes))
        P = np.exp(eta - eta.max(axis=1, keepdims=True, initial=0.0))
        P /= P.sum(axis=1, keepdims=True)
        hits = np.zeros_like(P)
        hits[np.arange(len(y)), y] = 1.0
        parts = w[:, None] * (hits - P)
        return np.asarray(np.einsum("na,nj->naj", parts[:, 1:], rows.Z).reshape(len(y), -1))
    kind: Family = FAMILIES[family]
    return np.asarray((w * (y - kind.mean(rows.Z @ coef + rows.offset)))[:, None] * rows.Z)
