"""FedPG: federated PCA by ADMM, on the manifold of orthonormal matrices.

T.-A. Nguyen et al., "Federated PCA on Grassmann Manifold for IoT Anomaly Detection", Algorithm 2. Per visit and site,
each way: d k numbers and a few more. Single replies are needed; memory L d k at the coordinator.

Equation (17) is read as the projected gradient of F. The projection ``(I - U U') G`` loses the directions in which U
turns within its span, although F depends on them. Nothing opposes the antisymmetric part of ``U'Y``, which grows until
the iteration leaves the solution again. The projection ``G - U sym(U'G)`` of the variant "corrected" keeps them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from scipy.linalg.blas import dgemm, dsymm, dsyr2k

from fedspan.aggregation import Aggregator
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Count, Matrix, Passes, Positive
from fedspan.linalg import q_factor
from fedspan.pca.parts import consensus
from fedspan.pca.parts.consensus import Consensus, Rows, Variant
from fedspan.pca.parts.second_moment import SecondMoment

Move = Callable[[Matrix, Matrix], Matrix]

#: In units of the largest local eigenvalue. With less the sites do not agree; with more Z moves slowly. Small sites,
#: whose own eigenvalues are further above those of all rows, need more: `consensus` finds out.
DEFAULT_RHO = 0.35


@cache
def _minus_identity(k: int) -> Matrix:
    return -np.eye(k)


def stiefel(U: Matrix, G: Matrix) -> Matrix:
    """Return U moved by the projection of G on the tangent space of the Stiefel manifold: ``U + G - U sym(U'G)``."""
    W: Matrix = dsymm(-1.0, dsyr2k(0.5, U, G, 1.0, _minus_identity(U.shape[1]), trans=1), U, 1.0, G, side=1)
    return W


def grassmann(U: Matrix, G: Matrix) -> Matrix:
    """Return U moved by the projection of equation (17): ``U + (I - U U') G``."""
    W: Matrix = dgemm(-1.0, U, dgemm(1.0, U, G, 1.0, _minus_identity(U.shape[1]), trans_a=1), 1.0, G)
    return W


MOVES: dict[Variant, Move] = {"corrected": stiefel, "paper": grassmann}


def local_step(C: SecondMoment, U: Matrix, pull: Matrix, eta: float, move: Move) -> Matrix:
    """Lines 7 and 8: one step of length `eta` against the projected gradient of F_i, and back by QR.

    Along the manifold the gradient is ``-2 C U + Y - rho Z``, of which ``pull = eta (rho Z - Y)`` is the same at every
    step. The projections remove ``rho U`` and the part of f_i along U.
    """
    return q_factor(move(U, C.add_product(pull, 2.0 * eta, U)))


@step("pca.fedpg_update", reveals="sums", moments=True)
def local_update(
    site: Site, Z: Matrix, rho: Positive, rows: Rows, variant: Variant, local_steps: Passes, products: Count
) -> dict[str, Any]:
    """Lines 4 to 11. Leaves the site: ``U + Y / rho`` (d, k), n, its loss, its Lagrangian, ``||U - Z||``.

    The last three describe the beginning of the visit; the loss is that of the span of Z.
    """
    Z = np.asfortranarray(Z)
    C = consensus.local_second_moment(site, Z, rows, products)
    U, Y = consensus.begin_visit(site, Z, variant)  # line 5
    reported = consensus.measures(C, U, Z, consensus.augmented_lagrangian(C.trace - C.captured(U), U, Z, Y, rho))
    eta = 1.0 / (2.0 * C.top + rho)
    pull = np.asfortranarray(eta * (rho * Z - Y))
    for _ in range(local_steps):  # lines 6 to 9
        U = local_step(C, U, pull, eta, MOVES[variant])
    return {**consensus.end_visit(site, C, U, Y, rho), **reported}


def fedpg(
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

    Centre the rows first.

    Parameters
    ----------
    rank, n_columns : int
    variant : {"corrected", "paper"}, default="corrected"
        "paper": as written. Z is the mean over the sites of a round, which receive it once more for their duals. The
        result is Z itself, which is not orthonormal. "corrected": the Stiefel projection; Z is the mean of the last
        messages of *all* sites that are not offline. The result is its polar factor.
    rho : float, optional
        Weight of the consensus, in units of the largest eigenvalue of the sites' second moments; the record shows it as
        a number. Default: 0.35, doubled every 20 visits while the sites are far apart; for the variant "paper" the
        paper's 1, which is one over the mean number of rows.
    local_steps : int, default=10
        Steps of a site per visit, of length ``1 / (2 lambda_i + rho)`` with the site's largest eigenvalue.
    participation, max_rounds : float, int, optional
        Share of the sites that is drawn for each round; by default 500 rounds over that share.
    tol : float, default=1e-4
        The run stops when the consensus is at most this and the loss has settled. It changed by at most the square of
        `tol`, in the unit of rho, while each site was visited once. (Near its minimum a loss is flat to first order.)
    aggregator : Aggregator, optional
        Replaces the mean of the messages.

    Notes
    -----
    The record has, per round: "loss", the mean squared distance of the rows from the span of Z; "augmented_lagrangian",
    also per row; "consensus", the root mean square of ``||U_i - Z||``; "bytes", both ways. The first three are about
    the Z with which each site's last visit began: an estimate that lags behind where not all sites take part.

    A site counts from its first answer on, until it misses ten requests in a row. Every row of the sites that count
    counts alike. Too few answers cost a round and not the run, until too few sites are left for the policy's quorum.
    rho also changes when the site with the largest eigenvalue comes or leaves.

    An aggregator does not trust the numbers of rows and eigenvalues that sites report. All sites count alike, and three
    times the median of the eigenvalues is the unit of rho. The result is where the *aggregated* gradient vanishes: the
    PCA of all rows where sites are alike, and something else where they are not. Attacks no larger than the honest
    sites' own differences still move it. The logged numbers are then medians.

    Examples
    --------
    >>> from fedspan.engines.local.embedded import federate
    >>> X = np.array([[3.0, 0.1], [-3.0, 0.2], [2.0, -0.1], [-2.0, -0.2]])
    >>> U, weights = fedpg(federate(X, sites=["a", "a", "b", "b"]), rank=1, n_columns=2)
    >>> np.abs(U.T)
    array([[0.9999..., 0.0038...]])
    """
    settings = Consensus(
        rank, n_columns, DEFAULT_RHO, variant, rho, local_steps, participation, max_rounds, tol, aggregator
    )
    return settings.reach(fed, local_update)
