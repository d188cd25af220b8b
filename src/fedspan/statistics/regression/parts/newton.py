"""Newton's method on sums: the coordinator solves, the sites add up gradient and curvature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from fedspan.arrays import Matrix, Vector
from fedspan.errors import InputError
from fedspan.federation import Federation

#: The step that is left, in standard errors, at which the iteration ends. The next one would be about its square.
_DONE = 1e-8
#: A log-likelihood that falls by less, relative to its size, has not fallen.
_ROUNDING = 1e-12
#: Of the ratios of one remaining step to the previous one: where the maximum is at infinity, each is about exp(-1/2).
_AWAY = (0.3, 0.9)
#: Such ratios in a row, after which it is checked whether the maximum is at infinity.
_IN_A_ROW = 2


@dataclass(frozen=True)
class Evaluation:
    """Log-likelihood at some coefficients, its gradient (p,) and the information (p, p), over the rows of `sites`."""

    loglik: float
    gradient: Vector
    information: Matrix
    sites: tuple[str, ...] = ()


@dataclass
class Optimum:
    """Where the iteration ended.

    `separated` is the direction (p,) along which the likelihood rises without bound, if there is one.
    """

    coef: Vector
    at: Evaluation
    rounds: int
    converged: bool = False
    separated: Vector | None = None
    left: list[float] = field(default_factory=list)


def newton(
    evaluate: Callable[[Vector], Evaluation],
    fed: Federation,
    *,
    start: Vector,
    penalty: Matrix,
    max_rounds: int,
    separates: Callable[[Vector, Vector], bool] | None = None,
    patience: int = _IN_A_ROW,
    always_from: int = 1000,
) -> Optimum:
    """Return the maximum of a log-likelihood minus ``b' penalty b / 2``.

    A step that lowers the likelihood is halved. Where `patience` steps in a row shrink as slowly as towards a maximum
    at infinity, ``separates(step, coef)`` decides. It returns whether the last step, or the coefficients, lead there.
    From the round `always_from` on it is called in any case.
    """
    b, step, best = start, np.zeros_like(start), -np.inf
    found: Optimum | None = None
    for number in fed.rounds(max_rounds):
        now = evaluate(b)
        value = now.loglik - float(b @ penalty @ b) / 2
        if found is not None and now.sites != found.at.sites:  # the likelihood of other rows
            best = -np.inf
        if not value >= best - _ROUNDING * (1.0 + abs(best)) and found is not None:
            step = step / 2
            b = b - step
            continue
        best = max(best, value)
        score = now.gradient - penalty @ b
        step = _solved(now.information + penalty, score)
        left = float(np.sqrt(max(float(step @ score), 0.0)))
        earlier = [] if found is None else found.left
        found = Optimum(b, now, number + 1, left=[*earlier, left])
        fed.log(loglik=now.loglik, step=left)
        if left <= _DONE:
            found.coef, found.converged = b + step, True
            fed.stop("the steps are below the rounding of the results", converged=True)
        elif (
            separates is not None
            and (len(found.left) >= always_from or _slow(found.left, patience))
            and separates(step, b)
        ):
            found.separated = step
            fed.stop("the likelihood has no maximum: a combination of columns separates the targets")
        b = b + step
    if found is None:
        raise InputError(f"max_rounds={max_rounds} left no round for Newton's method: use at least 1")
    return found


def _slow(left: list[float], patience: int) -> bool:
    if len(left) <= patience + 1:
        return False
    ratios = [b / a for a, b in zip(left[-patience - 1 : -1], left[-patience:], strict=True)]
    return all(_AWAY[0] <= ratio <= _AWAY[1] for ratio in ratios)


def _solved(H: Matrix, score: Vector) -> Vector:
    """Return ``H^-1 score``; where H is not positive definite, add a little of its diagonal first."""
    unit = np.sqrt(np.maximum(np.diag(H), np.finfo(np.float64).tiny))
    C, scaled = H / np.outer(unit, unit), score / unit
    for more in (0.0, 1e-14, 1e-12, 1e-10, 1e-8):
        try:
            return np.asarray(cho_solve(cho_factor(C + more * np.eye(len(C))), scaled) / unit)
        except LinAlgError:
            continue
    raise InputError("the information matrix is singular: leave out columns that depend on others, or use a ridge")


def inverse(H: Matrix) -> Matrix:
    """Return the inverse of a positive matrix, scaled to a diagonal of ones first."""
    unit = np.sqrt(np.maximum(np.diag(H), np.finfo(np.float64).tiny))
    C = H / np.outer(unit, unit)
    try:
        found = cho_solve(cho_factor(C), np.eye(len(C)))
    except LinAlgError:
        found = np.linalg.pinv(C, hermitian=True)
    return np.asarray(found / np.outer(unit, unit))
