"""FedPE: federated PCA by ADMM, in Euclidean space.

T.-A. Nguyen et al., "Federated PCA on Grassmann Manifold for IoT Anomaly Detection", Algorithm 1. Like `fedpg`, except
that only the penalty (4) keeps U near the orthonormal matrices, and from one side. Columns may be too short, and at
obtuse angles. Per visit and site, each way: d k numbers and a few more. Single replies are needed; memory L d k at the
coordinator.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from scipy.linalg.blas import dgemm

from fedspan.aggregation import Aggregator
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Count, Matrix, Passes, Positive
from fedspan.pca.parts import consensus
from fedspan.pca.parts.consensus import Consensus, Rows, Variant
from fedspan.pca.parts.second_moment import SecondMoment

#: In units of the largest local eigenvalue. Steps are shorter than FedPG's: with less the sites do not agree.
DEFAULT_RHO = 1.0


def excess(U: Matrix) -> Matrix:
    """Return ``max(0, U'U - I)`` (k, k), whose squared entries are h(U) of (4)."""
    return np.maximum(0.0, U.T @ U - np.eye(U.shape[1]))


def objective(C: SecondMoment, U: Matrix, Z: Matrix, Y: Matrix, T: Matrix, rho: float) -> float:
    """Return the function that line 5 minimises, the site's part of the augmented Lagrangian (6)."""
    CU, h = C.product(U), excess(U) ** 2
    f = C.trace - 2.0 * float(np.vdot(U, CU)) + float(np.vdot(U.T @ U, U.T @ CU))
    return consensus.augmented_lagrangian(f, U, Z, Y, rho) + float(np.vdot(T, h)) + rho / 2.0 * float(np.vdot(h, h))


def safe_step(U: Matrix, T: Matrix, rho: float, top: float) -> float:
    """Return a step over which the gradient of `objective` hardly turns, also where U is far from orthonormal.

    For orthonormal U it is ``1 / (8 top + rho + 8 ||T||)``. T only grows, and a site whose replies were lost for some
    time may be far from the others. With ``1 / (8 top + rho)`` it would diverge, and all others with it.
    """
    UU = U.T @ U
    size = max(1.0, float(np.abs(UU).sum(axis=0).max()))
    over = float(np.maximum(UU - _identity(len(UU)), 0.0).sum(axis=0).max())
    return 1.0 / (8.0 * top * size + rho + 8.0 * size * (float(np.abs(T).sum(axis=0).max()) + 3.0 * rho * over**2))


def local_step(C: SecondMoment, U: Matrix, pull: Matrix, T: Matrix, rho: float, eta: float) -> Matrix:
    """Return ``U - eta G`` with the gradient G of `objective`, of which ``pull = eta (rho Z - Y)`` never changes.

    ``G = 2 C U (U'U - 2 I) + U (2 U'C U + rho I + 4 E (T + rho E^2)) + Y - rho Z``, E the excess and its products
    entry by entry. T is symmetric, as h is.
    """
    CU, UU, one = C.product(U), U.T @ U, _identity(U.shape[1])
    E = np.maximum(UU - one, 0.0)
    inner = dgemm(2.0, U, CU, rho, one, trans_a=1)  # 2 U'C U + rho I
    if E.any():
        inner += 4.0 * E * (T + rho * E**2)
    moved = dgemm(-eta, U, inner, 1.0, U + pull)
    W: Matrix = dgemm(-2.0 * eta, CU, UU - 2.0 * one, 1.0, moved, overwrite_c=1)
    return W


@cache
def _identity(k: int) -> Matrix:
    return np.eye(k)


@step("pca.fedpe_update", reveals="sums", moments=True)
def local_update(
    site: Site, Z: Matrix, rho: Positive, rows: Rows, variant: Variant, local_steps: Passes, products: Count
) -> dict[str, Any]:
    """Lines 4 to 6, and 11. Leaves the site: ``U + Y / rho`` (d, k), n, its loss, its Lagrangian, ``||U - Z||``.

    The last three describe the beginning of the visit; the loss is that of the span of Z.
    """
    Z = np.asfortranarray(Z)
    C = consensus.local_second_moment(site, Z, rows, products)
    U, Y = consensus.begin_visit(site, Z, variant)
    T = site.state.get("T", np.zeros((Z.shape[1], Z.shape[1])))
    reported = consensus.measures(C, U, Z, objective(C, U, Z, Y, T, rho))
    towards = np.asfortranarray(rho * Z - Y)
    for _ in range(local_steps):  # line 5
        eta = 1.0 / (8.0 * C.top + rho) if variant == "paper" else safe_step(U, T, rho, C.top)
        U = local_step(C, U, eta * towards, T, rho, eta)
    site.state["T"] = T + rho * excess(U) ** 2  # line 11, which needs no Z
    return {**consensus.end_visit(site, C, U, Y, rho), **reported}


def fedpe(
    fed: Federation,
    *,
    rank: int,
    n_columns: int,
    variant: Variant = "corrected",
    rho: float | None = None,
    local_steps: int = 10,
    participation: float = 1.0,
    max_rounds: int | None = None,
    tol: float = 1e-4,
    aggregator: Aggregator | None = None,
) -> tuple[Matrix, dict[str, float]]:
    """Return a basis (d, rank) of the leading subspace of all rows, and the weight of each site in the last average.

    Parameters, record and the treatment of missing sites are those of `fedpg`, except for

    - `rho`: 1 by default, in the same unit;
    - `local_steps`: of length ``1 / (8 lambda_i + rho)``, and in "corrected" shorter where U is long (`safe_step`);
    - `variant`: no projection needs a correction; "corrected" averages the last messages of all sites and returns the
      polar factor of Z.
    """
    settings = Consensus(
        rank, n_columns, DEFAULT_RHO, variant, rho, local_steps, participation, max_rounds, tol, aggregator
    )
    return settings.reach(fed, local_update)
