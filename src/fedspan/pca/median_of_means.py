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
from fedspan.linalg.medians.projector_median import Output
from fedspan.pca.parts.orthogonal_iteration import random_basis
from fedspan.pca.power_method import local_phi_product
from fedspan.pca.subspace_median import ResilientSubspace, median_of_bases
from fedspan.wire import Message


def median_of_means(
    fed: Federation, *, rank: int, n_columns: int, groups: int, iterations: int = 10, output: Output = "eigenspace"
) -> ResilientSubspace:
    """Return the subspace median of the groups' subspaces; of the result, a group's sites share its numbers."""
    if not 1 <= groups <= len(fed.sites):
        raise InputError(f"groups={groups} must be between 1 and the number of sites, {len(fed.sites)}")
    members = [tuple(part.tolist()) for part in np.array_split(np.array(fed.sites), groups)]
    start = random_basis(fed.rng, n_columns, rank)
    bases: dict[int, NDArray[np.float64]] = {}
    answered: dict[int, tuple[str, ...]] = {}
    for _ in fed.rounds(iterations):
        for group, names in enumerate(members):
            found = _group_iteration(fed, names, bases.get(group, start))
            if found is not None:  # otherwise the group stays where it is, and may go on in the next iteration
                bases[group], answered[group] = found
    if 2 * len(bases) <= groups:
        silent = {name: "no subspace" for group, names in enumerate(members) if group not in bases for name in names}
        raise QuorumError(f"only {len(bases)} of {groups} groups gave a subspace, and most of them must", silent)
    advanced = sorted(bases)
    median = median_of_bases(np.stack([bases[group] for group in advanced]), tuple(map(str, advanced)), output)
    return _by_site(median, [answered[group] for group in advanced])


def _group_iteration(
    fed: Federation, names: tuple[str, ...], U: NDArray[np.float64]
) -> tuple[NDArray[np.float64], tuple[str, ...]] | None:
    """One iteration ``U <- QR(mean of Phi_l U)`` within a group, and who is in it; ``None`` if nothing comes of it."""

    def check(reply: Message) -> Message:
        product = np.asarray(reply.get("product"))
        if product.shape != U.shape or product.dtype.kind not in "iuf":
            raise InputError(
                f"a product must be a matrix {U.shape} of real numbers, not {product.dtype}{product.shape}"
            )
        return {"product": product}

    try:
        replies = fed.accept(fed.ask(local_phi_product, names, U=U), check)
        return orthonormalize(replies.stack("product").mean(axis=0)), tuple(replies)
    except (QuorumError, InputError):
        return None


def _by_site(found: ResilientSubspace, members: list[tuple[str, ...]]) -> ResilientSubspace:
    """Return the result with the groups' weights and distances given to the sites in them that answered."""
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
