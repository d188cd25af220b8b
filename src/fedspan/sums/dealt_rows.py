"""Blocks of a site's rows: the same ones for whatever is requested, a twentieth of the rows each, or 20 rows.

What a request may select, such as folds, rows held back and batches, is made of whole blocks. So sums over selections,
however many of them and however combined, show no more than the sums over the blocks. Selections of single rows are
linear equations: with enough seeds their solution is each row. A site needs to remember nothing. Where rows have a
target there are two divisions, with and without it: together they give fewer equations than twice the blocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import PolicyError
from fedspan.federation import Site
from fedspan.federation.site.site import generator

#: The number of blocks at a site where they have fewer rows than `BLOCK`, and their rows at all others.
FEWEST_BLOCKS, BLOCK = 20, 20


def n_blocks(n: int) -> int:
    """Return the number of blocks of n rows."""
    return n if n < 2 * FEWEST_BLOCKS else max(FEWEST_BLOCKS, n // BLOCK)


def rows_of_a_block(n: int) -> int:
    """Return the number of rows of the smallest block: sums over selections are about as many, however combined."""
    return n // max(n_blocks(n), 1)


def block_of_rows(site: Site, *, by_target: bool = True) -> NDArray[np.intp]:
    """Return the number of each row's block (n,): every block has rows of all classes of ``y``, where it can.

    Without `by_target` the blocks are those of the same rows without ``y``, for methods that do not learn from it.
    """
    y = shown_target(site) if by_target else None
    order = generator(0, "fold", site.name).permutation(len(site))
    if y is not None:
        order = order[np.argsort(np.unique(y[order], return_inverse=True)[1], kind="stable")]
    found = np.empty(len(site), dtype=np.intp)
    found[order] = np.arange(len(site)) % max(n_blocks(len(site)), 1)
    return found


def shown_target(site: Site) -> NDArray[Any] | None:
    """Return the target of each row (n,), if there is one that the site shows."""
    try:
        y = site.y
    except PolicyError:  # beside noisy rows, which are the same in all folds
        return None
    return None if y is None or y.ndim != 1 else y.astype(str) if y.dtype == object else y
