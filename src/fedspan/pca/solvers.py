"""The solvers behind FedPCA: which protocol each one runs, and what it needs from the sites."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from fedspan.aggregation import GeometricMedian
from fedspan.checks import frames_inside
from fedspan.federation import EndingKind, Federation
from fedspan.linalg import orthonormalize
from fedspan.pca.covariance import covariance_pca
from fedspan.pca.fedpe import fedpe
from fedspan.pca.fedpg import fedpg
from fedspan.pca.median_of_means import median_of_means
from fedspan.pca.parts.consensus import APART
from fedspan.pca.parts.principal_axes import PrincipalAxes, axis_variances
from fedspan.pca.power_method import power
from fedspan.pca.resilient_covariance import resilient_covariance
from fedspan.pca.resilient_power import resilient_power
from fedspan.pca.stack import stack_pca
from fedspan.pca.subspace_iteration import subspace_iteration
from fedspan.pca.subspace_median import ResilientSubspace, subspace_median
from fedspan.sums.moments import site_weights
from fedspan.sums.row_moments import side

#: Rounds of subspace iteration that "auto" assumes when it compares bytes.
_EXPECTED_ROUNDS = 20


@dataclass(frozen=True)
class Solver:
    """A protocol that `FedPCA` runs: ``function(fed, **parameters)``, with the parameters that its signature names."""

    function: Callable[..., Any]
    sums_only: bool = False  # needs no single reply, unless there is an aggregator
    resilient: bool = False  # trusts no single site, neither for the axes nor for the centre
    iterative: bool = False  # runs until it has converged
    totals: bool = False  # takes the totals of groups of sites in place of single replies


#: By name. "auto" is replaced by one of the next two before it runs.
SOLVERS = {
    "auto": Solver(covariance_pca, sums_only=True, totals=True),
    "covariance": Solver(covariance_pca, sums_only=True, totals=True),
    "subspace_iteration": Solver(subspace_iteration, sums_only=True, iterative=True, totals=True),
    "stack": Solver(stack_pca),
    "power": Solver(power, sums_only=True),
    "fedpe": Solver(fedpe, iterative=True),
    "fedpg": Solver(fedpg, iterative=True),
    "subspace_median": Solver(subspace_median, resilient=True, totals=True),
    "median_of_means": Solver(median_of_means, resilient=True),
    "resilient_power": Solver(resilient_power, resilient=True),
    "resilient_covariance": Solver(resilient_covariance, resilient=True, totals=True),
}


@dataclass(frozen=True)
class Solution:
    """Principal axes, the weight of each site in them (0 for others), and the sites that the axes rest on."""

    axes: PrincipalAxes
    weights: Mapping[str, float]
    trusted: tuple[str, ...]
    resilience: NDArray[np.void] | None = None  # of a subspace median


def solve(name: str, fed: Federation, parameters: Mapping[str, Any]) -> Solution:
    """Run a solver on centred rows; a parameter that is ``None`` has the protocol's default."""
    solver = SOLVERS[name]
    accepted = inspect.signature(solver.function).parameters
    passed = {key: value for key, value in parameters.items() if key in accepted and value is not None}
    found = solver.function(fed, **passed)
    if solver.iterative and fed.record.stopped.kind is not EndingKind.CONVERGED:
        apart = [logged.values["consensus"] for logged in fed.record.metrics if "consensus" in logged.values][-1:]
        advice = "allow more with max_rounds, or a larger tol"
        if apart and apart[0] > APART:
            advice = f"the sites do not agree (consensus {apart[0]:.2g}), try a larger rho, such as twice the last one"
        warnings.warn(
            f"the solver did not converge ({fed.record.stopped}): {advice}",
            ConvergenceWarning,
            stacklevel=frames_inside(),
        )
    aggregator = parameters["aggregator"] or (GeometricMedian() if solver.resilient else None)
    if isinstance(found, ResilientSubspace):
        if found.second:
            warnings.warn(
                f"the sites form two groups, and {len(found.second)} of {len(found.sites)} are in the smaller one "
                f"({', '.join(found.second[:5])}{', ...' if len(found.second) > 5 else ''}): which one is honest can't "
                "be known from the replies, or sites repeat one reply; compare resilience_ with what you expect",
                stacklevel=frames_inside(),
            )
        elif found.unrelated:
            warnings.warn(
                "the subspaces of most sites differ by nearly as much as unrelated ones: what malicious sites can have "
                "moved has no useful bound; compare resilience_ with what you expect, or use more rows",
                stacklevel=frames_inside(),
            )
        axes = axis_variances(fed, U=found.basis, aggregator=aggregator)
        weights = _by_site(fed, site_weights(found.sites, found.weights))
        trusted = tuple(_by_site(fed, dict.fromkeys(found.trusted, 1.0)))
        return Solution(axes, weights, trusted, found.resilience)
    if isinstance(found, PrincipalAxes):  # every site counts alike
        found = found, site_weights(fed.record.calls[-1].answered)
    axes, weights = found[0], _by_site(fed, found[1])
    if isinstance(axes, np.ndarray):  # a basis; that of a consensus need not be orthonormal
        U = orthonormalize(axes, complete=True) if solver.iterative else axes
        axes = axis_variances(fed, U=U, aggregator=aggregator)
    trusted = tuple(site for site, weight in weights.items() if weight >= 0.5 / len(weights))
    return Solution(axes, weights, trusted)


def widest_products(columns: int | None, directions: int, max_bytes: int) -> int:
    """Return the number of columns up to which ``"auto"`` takes all products of columns (`cheaper_solver`).

    `directions` are those of a subspace iteration; ``None`` columns to learn are all, which need the products.
    """
    by_bytes = side(max_bytes // 8)
    return by_bytes if columns is None else min(by_bytes, 4 * _EXPECTED_ROUNDS * directions - 1)


def _by_site(fed: Federation, weights: Mapping[str, float]) -> Mapping[str, float]:
    """Return the weight of each site, where weights may be those of groups of sites."""
    groups = fed.groups if fed.policy.groups else {}
    if not weights.keys() <= groups.keys():
        return weights
    return {site: weight / len(groups[name]) for name, weight in weights.items() for site in groups[name]}


def cheaper_solver(n_columns: int, directions: int, max_bytes: int, rounds: int = _EXPECTED_ROUNDS) -> tuple[str, str]:
    """Return "covariance" or "subspace_iteration", the one that sends fewer bytes, and the reason in words."""
    whole = 8 * n_columns * (n_columns + 1) // 2
    products = 8 * 2 * n_columns * min(directions, n_columns) * rounds
    if whole > max_bytes:
        return "subspace_iteration", f"a covariance of {whole} bytes is larger than the policy's largest message"
    if whole <= products:
        return "covariance", f"{whole} bytes per site once, against {products} in {rounds} rounds"
    return "subspace_iteration", f"{products} bytes per site in {rounds} rounds, against {whole}"
