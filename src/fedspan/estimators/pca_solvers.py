"""The solvers behind FedPCA: which protocol, with which parameters, and whom it trusted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.aggregation import Aggregator, CoordinateMedian, GeometricMedian
from fedspan.federation import Federation
from fedspan.protocols.axis_variances import axis_variances
from fedspan.protocols.covariance_pca import covariance_pca
from fedspan.protocols.median_of_means import median_of_means
from fedspan.protocols.moments import Moments, moments
from fedspan.protocols.power import power
from fedspan.protocols.principal_axes import PrincipalAxes
from fedspan.protocols.resilient_covariance import resilient_covariance
from fedspan.protocols.resilient_moments import resilient_moments
from fedspan.protocols.resilient_power import resilient_power
from fedspan.protocols.stack_pca import stack_pca
from fedspan.protocols.subspace_iteration import subspace_iteration
from fedspan.protocols.subspace_median import ResilientSubspace, subspace_median

#: These believe no single site, neither for the axes nor for the centre.
RESILIENT = ("subspace_median", "median_of_means", "resilient_power", "resilient_covariance")


@dataclass(frozen=True)
class Solution:
    """Principal axes, and the weight that each site had in them; sites that are not named had none."""

    axes: PrincipalAxes
    weights: Mapping[str, float]
    trusted: tuple[str, ...]


def prepared_moments(fed: Federation, solver: str, aggregator: Aggregator | None, names: Any) -> Moments:
    """Return the moments to centre and scale by: exact sums, or by medians where sites may lie."""
    if aggregator is None and solver not in RESILIENT:
        return moments(fed, names)
    return resilient_moments(fed, aggregator or CoordinateMedian())


def solve(solver: str, fed: Federation, rank: int | None, options: Mapping[str, Any]) -> Solution:
    """Run a solver on centred rows. `rank` is ``None`` where all axes are wanted (solver "covariance" alone)."""
    return _SOLVERS[solver](fed, rank, options)


def _covariance(fed: Federation, rank: int | None, options: Mapping[str, Any]) -> Solution:
    if options["aggregator"] is not None:
        return _resilient_covariance(fed, rank, options)
    return _alike(covariance_pca(fed, rank=rank), fed)


def _subspace_iteration(fed: Federation, rank: int | None, options: Mapping[str, Any]) -> Solution:
    names = ("n_columns", "oversampling", "max_rounds", "tol", "aggregator")
    return _alike(subspace_iteration(fed, rank=_known(rank), **{name: options[name] for name in names}), fed)


def _stack(fed: Federation, rank: int | None, options: Mapping[str, Any]) -> Solution:
    return _alike(stack_pca(fed, rank=_known(rank)), fed)


def _power(fed: Federation, rank: int | None, options: Mapping[str, Any]) -> Solution:
    if options["aggregator"] is not None:
        return _resilient_power(fed, rank, options)
    U = power(fed, rank=_known(rank), n_columns=options["n_columns"], iterations=options["iterations"])
    return _alike(axis_variances(fed, U=U), fed)


def _resilient_power(fed: Federation, rank: int | None, options: Mapping[str, Any]) -> Solution:
    names = ("n_columns", "iterations", "aggregator")
    U, weights = resilient_power(fed, rank=_known(rank), **{name: options[name] for name in names})
    return Solution(_within(fed, U, options), weights, _above_half_share(weights))


def _resilient_covariance(fed: Federation, rank: int | None, options: Mapping[str, Any]) -> Solution:
    k = options["n_columns"] if rank is None else rank
    axes, weights = resilient_covariance(fed, rank=k, aggregator=options["aggregator"])
    return Solution(axes, weights, _above_half_share(weights))


def _subspace_median(fed: Federation, rank: int | None, options: Mapping[str, Any]) -> Solution:
    names = ("output", "choose")
    found = subspace_median(fed, rank=_known(rank), **{name: options[name] for name in names})
    return _of_subspace(fed, found, options)


def _median_of_means(fed: Federation, rank: int | None, options: Mapping[str, Any]) -> Solution:
    names = ("n_columns", "iterations", "output")
    groups = options["groups"] or default_groups(len(fed.sites))
    found = median_of_means(fed, rank=_known(rank), groups=groups, **{name: options[name] for name in names})
    return _of_subspace(fed, found, options)


def default_groups(n_sites: int) -> int:
    """Return half the number of sites, but at least three where there are as many: two sites to a group."""
    return max(min(3, n_sites), n_sites // 2)


def _of_subspace(fed: Federation, found: ResilientSubspace, options: Mapping[str, Any]) -> Solution:
    weights = dict(zip(found.sites, found.weights.tolist(), strict=True))
    return Solution(_within(fed, found.basis, options), weights, found.trusted)


def _within(fed: Federation, U: NDArray[np.float64], options: Mapping[str, Any]) -> PrincipalAxes:
    return axis_variances(fed, U=U, aggregator=options["aggregator"] or GeometricMedian())


def _alike(axes: PrincipalAxes, fed: Federation) -> Solution:
    """Return a solution in which every site that answered the last call counted alike (by its rows)."""
    answered = fed.record.calls[-1].answered
    return Solution(axes, dict.fromkeys(answered, 1.0 / len(answered)), answered)


def _above_half_share(weights: Mapping[str, float]) -> tuple[str, ...]:
    return tuple(name for name, weight in weights.items() if weight >= 0.5 / len(weights))


def _known(rank: int | None) -> int:
    assert rank is not None
    return rank


_SOLVERS: dict[str, Callable[[Federation, int | None, Mapping[str, Any]], Solution]] = {
    "covariance": _covariance,
    "subspace_iteration": _subspace_iteration,
    "stack": _stack,
    "power": _power,
    "subspace_median": _subspace_median,
    "median_of_means": _median_of_means,
    "resilient_power": _resilient_power,
    "resilient_covariance": _resilient_covariance,
}

SOLVERS = ("auto", *_SOLVERS)
