"""The solvers behind FedPCA: which protocol, with which parameters, and whom it trusted."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from fedspan.aggregation import Aggregator, CoordinateMedian, GeometricMedian
from fedspan.errors import InputError
from fedspan.federation import EndingKind, Federation
from fedspan.linalg import orthonormalize
from fedspan.pca.covariance import covariance_pca
from fedspan.pca.fedpe import fedpe
from fedspan.pca.fedpg import fedpg
from fedspan.pca.median_of_means import median_of_means
from fedspan.pca.parts.axis_variances import axis_variances
from fedspan.pca.parts.principal_axes import PrincipalAxes
from fedspan.pca.power_method import power
from fedspan.pca.resilient_covariance import resilient_covariance
from fedspan.pca.stack import stack_pca
from fedspan.pca.subspace_iteration import subspace_iteration
from fedspan.pca.subspace_median import ResilientSubspace, subspace_median
from fedspan.sums.moments import Moments, moments

#: These go on until they have converged.
ITERATIVE = ("subspace_iteration", "fedpe", "fedpg")
#: These believe no single site, neither for the axes nor for the centre.
RESILIENT = ("subspace_median", "median_of_means", "resilient_power", "resilient_covariance")


#: These need sums alone, unless there is an aggregator.
OF_SUMS = ("auto", "covariance", "subspace_iteration", "power")


@dataclass(frozen=True)
class Solution:
    """Principal axes, and the weight that each site had in them; sites that are not named had none."""

    axes: PrincipalAxes
    weights: Mapping[str, float]
    trusted: tuple[str, ...]


def prepared_moments(federation: Federation, solver: str, aggregator: Aggregator | None, names: Any) -> Moments:
    """Return the moments to centre and scale by: exact sums, or by medians where sites may lie."""
    if aggregator is None and solver in RESILIENT:
        aggregator = CoordinateMedian()
    return moments(federation, names, aggregator)


def solve(solver: str, fed: Federation, rank: int | None, options: Mapping[str, Any]) -> Solution:
    """Run a solver on centred rows. `rank` is ``None`` where all axes are wanted (solver "covariance" alone)."""
    solution = _SOLVERS[solver](fed, rank, options)
    if solver in ITERATIVE:
        _warn_unless_converged(fed)
    return solution


def _covariance(fed: Federation, rank: int | None, options: Mapping[str, Any]) -> Solution:
    return _weighted(*covariance_pca(fed, rank=rank, aggregator=options["aggregator"]))


def _resilient_covariance(fed: Federation, rank: int | None, options: Mapping[str, Any]) -> Solution:
    return _weighted(*resilient_covariance(fed, rank=rank, aggregator=options["aggregator"]))


def _warn_unless_converged(fed: Federation) -> None:
    """Warn, as scikit-learn does, where a solver has used up its rounds."""
    if fed.record.stopped.kind is not EndingKind.CONVERGED:
        warnings.warn(
            f"the solver did not converge ({fed.record.stopped}): allow more with max_rounds, or a larger tol",
            ConvergenceWarning,
            stacklevel=2,
        )


def _subspace_iteration(fed: Federation, rank: int | None, options: Mapping[str, Any]) -> Solution:
    names = ("n_columns", "oversampling", "max_rounds", "tol", "aggregator")
    return _weighted(*subspace_iteration(fed, rank=_known(rank), **_given(options, names)))


def _stack(fed: Federation, rank: int | None, options: Mapping[str, Any]) -> Solution:
    axes = stack_pca(fed, rank=_known(rank))
    answered = fed.record.calls[-1].answered
    return Solution(axes, dict.fromkeys(answered, 1.0 / len(answered)), answered)


def _power(fed: Federation, rank: int | None, options: Mapping[str, Any]) -> Solution:
    names = ("n_columns", "iterations", "aggregator")
    U, weights = power(fed, rank=_known(rank), **{name: options[name] for name in names})
    return _weighted(axis_variances(fed, U=U, aggregator=options["aggregator"]), weights)


def _resilient_power(fed: Federation, rank: int | None, options: Mapping[str, Any]) -> Solution:
    return _power(fed, rank, {**options, "aggregator": options["aggregator"] or GeometricMedian()})


def _fedpe(fed: Federation, rank: int | None, options: Mapping[str, Any]) -> Solution:
    return _of_consensus(fed, *fedpe(fed, rank=_known(rank), **_given(options, _CONSENSUS_OPTIONS)), options)


def _fedpg(fed: Federation, rank: int | None, options: Mapping[str, Any]) -> Solution:
    return _of_consensus(fed, *fedpg(fed, rank=_known(rank), **_given(options, _CONSENSUS_OPTIONS)), options)


_CONSENSUS_OPTIONS = (
    "n_columns",
    "variant",
    "rho",
    "local_steps",
    "participation",
    "max_rounds",
    "tol",
    "aggregator",
)


def _of_consensus(
    fed: Federation, Z: NDArray[np.float64], weights: Mapping[str, float], options: Mapping[str, Any]
) -> Solution:
    """Return the axes within the span of Z, which the variant "paper" does not make orthonormal."""
    U = orthonormalize(Z, complete=True)
    return _weighted(axis_variances(fed, U=U, aggregator=options["aggregator"]), weights)


def _subspace_median(fed: Federation, rank: int | None, options: Mapping[str, Any]) -> Solution:
    names = ("n_columns", "output", "choose")
    return _of_subspace(fed, subspace_median(fed, rank=_known(rank), **{n: options[n] for n in names}), options)


def _median_of_means(fed: Federation, rank: int | None, options: Mapping[str, Any]) -> Solution:
    names = ("n_columns", "iterations", "output")
    everybody = len(fed.record.sites)
    wanted = options["groups"] or default_groups(len(fed.sites))
    if wanted > everybody:
        raise InputError(f"groups={wanted} must be between 1 and the number of sites, {everybody}")
    # A site that was left out because of its columns must not make the number of groups impossible.
    groups = min(wanted, len(fed.sites))
    found = median_of_means(fed, rank=_known(rank), groups=groups, **{name: options[name] for name in names})
    return _of_subspace(fed, found, options)


def default_groups(n_sites: int) -> int:
    """Return half the number of sites, but at least three where there are as many: two sites to a group."""
    return max(min(3, n_sites), n_sites // 2)


def _of_subspace(fed: Federation, found: ResilientSubspace, options: Mapping[str, Any]) -> Solution:
    axes = axis_variances(fed, U=found.basis, aggregator=options["aggregator"] or GeometricMedian())
    return Solution(axes, dict(zip(found.sites, found.weights.tolist(), strict=True)), found.trusted)


def _weighted(axes: PrincipalAxes, weights: Mapping[str, float]) -> Solution:
    """Return a solution that trusts the sites with at least half an equal share of the weight."""
    trusted = tuple(name for name, weight in weights.items() if weight >= 0.5 / len(weights))
    return Solution(axes, weights, trusted)


def _given(options: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return these options, but for those that are left to the protocol's default."""
    return {name: options[name] for name in names if options[name] is not None}


def _known(rank: int | None) -> int:
    assert rank is not None
    return rank


_SOLVERS: dict[str, Callable[[Federation, int | None, Mapping[str, Any]], Solution]] = {
    "covariance": _covariance,
    "subspace_iteration": _subspace_iteration,
    "stack": _stack,
    "power": _power,
    "fedpe": _fedpe,
    "fedpg": _fedpg,
    "subspace_median": _subspace_median,
    "median_of_means": _median_of_means,
    "resilient_power": _resilient_power,
    "resilient_covariance": _resilient_covariance,
}

SOLVERS = ("auto", *_SOLVERS)
