"""Subspace Median of Means: power methods within groups of sites, then the subspace median of the groups.

A. P. Singh and N. Vaswani, ISIT 2024. A group's mean is more accurate than a single site, and one bad site spoils
its whole group: fewer than half of the groups may hold one. Per iteration and site, each way: d r numbers. Single
replies are needed. A group's sites follow one another in name order; sizes differ by at most one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError, QuorumError
from fedspan.federation import Federation
from fedspan.linalg import orthonormalize
from fedspan.linalg.subspace_median import Output
from fedspan.protocols.power import random_start
from fedspan.protocols.resilient_power import local_phi_product
from fedspan.protocols.subspace_median import ResilientSubspace, median_of_bases


def median_of_means(
    fed: Federation, *, rank: int, n_columns: int, groups: int, iterations: int = 10, output: Output = "eigenspace"
) -> ResilientSubspace:
    """Return the subspace median of the groups' subspaces; of the result, a group's sites share its numbers."""
    if not 1 <= groups <= len(fed.sites):
        raise InputError(f"groups={groups} must be between 1 and the number of sites, {len(fed.sites)}")
    members = [tuple(part.tolist()) for part in np.array_split(np.array(fed.sites), groups)]
    start = random_start(fed.rng, n_columns, rank)
    bases: dict[int, NDArray[np.float64]] = {}
    for _ in fed.rounds(iterations):
        for group, names in enumerate(members):
            U = _group_iteration(fed, names, bases.get(group, start))
            if U is not None:  # otherwise the group stays where it is, and may go on in the next iteration
                bases[group] = U
    if 2 * len(bases) <= groups:
        silent = {name: "no subspace" for group, names in enumerate(members) if group not in bases for name in names}
        raise QuorumError(f"only {len(bases)} of {groups} groups gave a subspace, and most of them must", silent)
    answered = sorted(bases)
    found = median_of_bases(np.stack([bases[group] for group in answered]), tuple(map(str, answered)), output)
    return _by_site(found, [members[group] for group in answered])


def _group_iteration(fed: Federation, names: tuple[str, ...], U: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """One iteration ``U <- QR(mean of Phi_l U)`` within a group, or ``None`` where no basis comes of it."""
    try:
        replies = fed.ask(local_phi_product, names, U=U)
        return orthonormalize(replies.stack("product").mean(axis=0))
    except (QuorumError, InputError):
        return None


def _by_site(found: ResilientSubspace, members: list[tuple[str, ...]]) -> ResilientSubspace:
    """Return the result with the groups' weights and distances given to their sites."""
    sizes = [len(names) for names in members]
    trusted = tuple(
        name for group, names in enumerate(members) if found.sites[group] in found.trusted for name in names
    )
    return ResilientSubspace(
        found.basis,
        tuple(name for names in members for name in names),
        np.repeat(found.weights / sizes, sizes),
        np.repeat(found.distances, sizes),
        trusted,
        found.spectrum,
    )
