"""Keep learning from sums that gateways have kept: a site sends sums in place of rows that it no longer has.

A site of a gateway has the file of a closed period in place of rows. Its sums become those about a common point, which
add up: so a secure sum may carry them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from fedspan.arrays import Array
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Vector
from fedspan.gateway.kept_sums import SUMS, read_sums
from fedspan.sums.row_moments import RowMoments, packed

#: The largest number of dimensions of a sum.
_DIMENSIONS = 3
_CLOSE = 1e-9


def gateway_site(name: str, path: str | os.PathLike[str]) -> Site:
    """Return the site of a gateway: what ``fedspan gateway --periods FOLDER`` has closed, in place of rows.

    Examples
    --------
    >>> import fedspan as fs
    >>> fs.gateway_site("hall-3", "periods/00000001.npz")  # doctest: +SKIP
    >>> detector.learn_sums(fs.LocalFederation(sites), batch="00000001")  # doctest: +SKIP
    """
    try:
        return Site(name, _as_rows(read_sums(path)))
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise InputError(f"{Path(path)} holds no sums of a gateway: {error}") from None


def _as_rows(sums: dict[str, Array]) -> Array:
    """Return named arrays as one column of numbers: for each its place among `SUMS`, its shape, and its values."""
    parts = []
    for place, name in enumerate(SUMS):
        if name in sums:
            array = np.asarray(sums[name], dtype=np.float64)
            shape = [*array.shape, *[-1] * (_DIMENSIONS - array.ndim)]
            parts += [np.array([place, *shape], dtype=np.float64), array.ravel()]
    return np.concatenate(parts)[:, None]


def _of_rows(rows: Array) -> dict[str, Array]:
    """Undo `_as_rows`."""
    values, at, found = np.asarray(rows, dtype=np.float64)[:, 0], 0, {}
    while at < len(values):
        place, *shape = (int(number) for number in values[at : at + 1 + _DIMENSIONS])
        shape = [size for size in shape if size >= 0]
        at += 1 + _DIMENSIONS
        size = int(np.prod(shape)) if shape else 1
        found[SUMS[place]] = values[at : at + size].reshape(shape)
        at += size
    return found


@step("anomaly.gateway_sums", reveals="rows")  # of a site that has rows and no sums, it could send cells
def local_gateway_sums(site: Site, centre: Vector, edges_sum: float) -> dict[str, Any]:
    """Leaves the site: the sums that its gateway has kept of a period's rows.

    They are the number of rows, sums and products about `centre`, and counts of scores. Where the model has such
    members, they are also counts by leaf, and counts and sums by nearest centre.
    """
    try:
        own = _of_rows(site.X)
        n, apart = float(own["n"]), own["mean"] - centre
    except (ValueError, IndexError, KeyError):
        raise InputError(f"site {site.name!r} has rows, and no sums of a gateway: make it by gateway_site") from None
    if abs(float(own["edges_sum"]) - edges_sum) > _CLOSE * abs(edges_sum):
        raise InputError(f"site {site.name!r} has the sums of another model: export this one to its gateway")
    found = {name: value for name, value in own.items() if name not in ("n", "mean", "products", "edges_sum")}
    products = packed(own["products"] + n * np.outer(apart, apart))
    return {**found, "n": n, "sum": n * apart, "products": products}


def summed(centre: Vector, edges: Vector, fed: Federation) -> tuple[RowMoments, dict[str, Array]]:
    """Return the moments of all gateways' rows, and their other sums."""
    total = fed.sum(local_gateway_sums, centre=centre, edges_sum=float(edges.sum()))
    n = float(total["n"])
    if n < 1:
        raise InputError("the gateways have kept the sums of no rows: there is nothing to learn from")
    shift = total["sum"] / n
    scatter = total["products"] - n * packed(np.outer(shift, shift))
    found = {name: np.asarray(total[name]) for name in total if name not in ("n", "sum", "products")}
    return RowMoments(round(n), n, centre, shift, scatter), found
