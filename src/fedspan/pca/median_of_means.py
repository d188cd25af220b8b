"""Subspace Median of Means: power methods within groups of sites, then the subspace median of the groups.

A. P. Singh and N. Vaswani, ISIT 2024. A group's mean is more accurate than a single site, and one malicious site spoils
its whole group. Fewer than half of the groups may hold one. Per iteration and site, each way: d r numbers. Single
replies are needed. A group's sites follow one another in name order; sizes differ by at most one.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np

from fedspan.errors import InputError, QuorumError
from fedspan.federation import Federation
from fedspan.federation.site.parameters import Matrix
from fedspan.linalg import orthonormalize
from fedspan.linalg.medians.projector_median import Output
from fedspan.pca.parts.orthogonal_iteration import random_basis
from fedspan.pca.power_method import local_phi_product
from fedspan.pca.subspace_median import ResilientSubspace, median_of_bases
from fedspan.wire import Message

_FEW = 5  # sites: fewer do not show which of them are unlike the others


def median_of_means(
    fed: Federation,
    *,
    rank: int,
    n_columns: int,
    groups: int | None = None,
    iterations: int = 10,
    output: Output = "trimmed",
) -> ResilientSubspace:
    """Return the subspace median of the groups' subspaces; a group's sites share its weight, distance and trust.

    In the table `resilience` groups that hold a malicious site take the place of malicious sites.

    By default a group has two sites, but there are at least three groups. If sites were left out of the run before,
    there are at most as many groups as sites remain.
    """
    all_sites, remaining = len(fed.record.sites), len(fed.sites)
    groups = max(min(3, remaining), remaining // 2) if groups is None else groups
    if not 1 <= groups <= all_sites:
        raise InputError(f"groups={groups} must be between 1 and the number of sites, {all_sites}")
    members = [tuple(part.tolist()) for part in np.array_split(np.array(fed.sites), min(groups, remaining))]
    start = random_basis(fed.rng, n_columns, rank)
    bases: dict[int, Matrix] = {}
    answered: dict[int, dict[str, Matrix]] = {}
    for _ in fed.rounds(iterations):
        for group, names in enumerate(members):
            found = _group_iteration(fed, names, bases.get(group, start))
            if found is not None:  # otherwise the group keeps its basis, and tries again in the next iteration
                bases[group], answered[group] = found
    if 2 * len(bases) <= len(members):
        silent = {name: "no subspace" for group, names in enumerate(members) if group not in bases for name in names}
        raise QuorumError(f"only {len(bases)} of {len(members)} groups gave a subspace, and most of them must", silent)
    advanced = sorted(bases)
    median = median_of_bases(np.stack([bases[group] for group in advanced]), tuple(map(str, advanced)), output)
    by_site = _by_site(median, [tuple(answered[group]) for group in advanced])
    result = replace(by_site, second=_outvoted([answered[group] for group in advanced]) or by_site.second)
    result.log(fed)
    return result


def _outvoted(products: list[dict[str, Matrix]]) -> tuple[str, ...]:
    """Return the sites unlike most sites in their last products, if half of the groups or more hold one of them.

    Malicious sites spoil up to twice their share of the groups, and the median of the groups is then theirs. The groups
    don't show it: the sites do.
    """
    of_site: dict[str, Matrix] = {}
    for product in (of_group for of_group in products if len(of_group) > 1):
        for name, value in product.items():
            with suppress(InputError):  # of too low a rank
                of_site[name] = orthonormalize(value)
    if len(of_site) < _FEW:
        return ()
    near = median_of_bases(np.stack(list(of_site.values())), tuple(of_site), "trimmed").trusted
    unlike: list[str] = []
    spoiled = 0
    for product in (of_group for of_group in products if len(of_group) > 1):
        total = np.sum(list(product.values()), axis=0)
        # Subspaces have no sign, and a mean has: opposite products leave nothing of either.
        odd = [name for name, value in product.items() if name not in near or np.vdot(value, total - value) <= 0]
        unlike, spoiled = unlike + odd, spoiled + bool(odd)
    return tuple(unlike) if 2 * spoiled >= len(products) else ()


def _group_iteration(fed: Federation, names: tuple[str, ...], U: Matrix) -> tuple[Matrix, dict[str, Matrix]] | None:
    """Make one iteration ``U <- QR(mean of Phi_l U)`` within a group.

    Returns the new basis and the products of the sites behind it, or ``None`` where too few replies are usable.
    """

    def check(reply: Message) -> Message:
        product = np.asarray(reply.get("product"))
        if product.shape != U.shape or product.dtype.kind not in "iuf":
            raise InputError(f"a product must be real numbers {U.shape}, not {product.dtype}{product.shape}")
        return {"product": product}

    try:
        replies = fed.accept(fed.ask(local_phi_product, names, U=U), check)
        return orthonormalize(replies.stack("product").mean(axis=0)), {
            site: replies[site]["product"] for site in replies
        }
    except (QuorumError, InputError):
        return None


def _by_site(found: ResilientSubspace, members: list[tuple[str, ...]]) -> ResilientSubspace:
    """Return the groups' result as one by site, for the sites that answered."""
    sizes = [len(names) for names in members]
    groups = list(zip(found.sites, members, strict=True))
    return replace(
        found,
        sites=tuple(name for names in members for name in names),
        weights=np.repeat(found.weights / sizes, sizes),
        distances=np.repeat(found.distances, sizes),
        trusted=tuple(name for group, names in groups if group in found.trusted for name in names),
        second=tuple(name for group, names in groups if group in found.second for name in names),
    )
