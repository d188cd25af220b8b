"""The federated power method: ``U <- QR(sum_l Phi_l U)`` from a random start.

Without an aggregator it needs sums alone: the attack-free baseline of the resilient methods. An aggregator replaces
the mean of the sites' products, and needs single replies. Per iteration and site, each way: d r numbers.
"""

from __future__ import annotations

from typing import Any

from fedspan.aggregation import Aggregator
from fedspan.aggregation.aggregator import believed
from fedspan.aggregation.vote_groups import warn_of_groups
from fedspan.federation import Federation, Replies, Site, step
from fedspan.federation.site.parameters import Matrix
from fedspan.pca.parts.orthogonal_iteration import orthogonal_iteration, random_basis
from fedspan.pca.subspace_iteration import local_product
from fedspan.sums.moments import site_weights, some_rows


@step("pca.mean_product", reveals="sums", moments=True)
def local_phi_product(site: Site, U: Matrix) -> dict[str, Any]:
    """Leaves the site: ``Phi U`` (d, r) of its second moment ``Phi = X'X / q``, and its number of rows q."""
    return {"product": local_product(site, U)["product"] / some_rows(site), "n": len(site)}


def power(
    fed: Federation, *, rank: int, n_columns: int, iterations: int = 10, aggregator: Aggregator | None = None
) -> tuple[Matrix, dict[str, float]]:
    """Return an orthonormal basis (d, rank) of the leading subspace, and the weight of each site in the last iteration.

    Centre the rows first. With an aggregator warn where the last products form two groups of nearly equal size.
    """
    last: list[Replies] = []

    def product(fed: Federation, U: Matrix) -> tuple[Matrix, dict[str, float]]:
        if aggregator is None:
            total = fed.sum(local_product, V=U)
            return total["product"], site_weights(total.sites)
        replies = fed.ask(local_phi_product, U=U)
        last[:] = [replies]
        combined = aggregator(replies.stack("product"), believed(aggregator, replies.stack("n")))
        return combined.value, site_weights(replies, combined.weights)

    start = random_basis(fed.rng, n_columns, rank)
    found = orthogonal_iteration(fed, product=product, start=start, iterations=iterations)
    for replies in last:
        warn_of_groups("the products", replies.stack("product"), tuple(replies))
    return found
