"""Which columns of numbers have heavy tails that a signed logarithm tames: by kurtosis, from sums of powers.

Heavy is a kurtosis above 6, that of a Laplace distribution, which the logarithm at least halves. So columns of two
values, which it only shifts and scales, are left alone. Of a column without variance nothing is known, and the
logarithm is the safe choice: a first large value is then not 1e9 away from the rest, but 20.

Up per site: 9 d numbers, of which only the sum is needed. With `votes` the median of the sites' own kurtoses decides.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.federation import Federation, Site, step
from fedspan.tables.parts.cells import number_blocks, signed_log

Vector = NDArray[np.float64]
Mask = NDArray[np.bool_]

HEAVY = 6.0
TAMED = 0.5


@step("tables.power_sums", reveals="sums")
def local_powers(site: Site, wanted: Mask, centre: Vector, log_centre: Vector) -> dict[str, Any]:
    """Leaves the site: of each wanted column, the count of numbers, sums of four powers of them and of their logs.

    The powers are about `centre`, in units of its size; those of the signed logs about `log_centre`.
    """
    unit = _unit(centre)
    n = np.zeros(len(wanted), dtype=np.int64)
    powers, log_powers = np.zeros((4, len(wanted))), np.zeros((4, len(wanted)))
    for block in number_blocks(site):
        is_number = wanted & ~np.isnan(block.values)
        n += is_number.sum(axis=0)
        powers += _powers(np.where(is_number, (block.values - centre) / unit, 0.0))
        log_powers += _powers(np.where(is_number, signed_log(block.values) - log_centre, 0.0))
    return {"n": n, "powers": powers, "log_powers": log_powers}


def heavy_tails(
    fed: Federation, *, wanted: Mask, centre: Vector, log_centre: Vector, votes: bool = False
) -> NDArray[np.bool_]:
    """Return which of the `wanted` columns (d,) to take the logarithm of.

    `centre` and `log_centre` (d,) are about the means of the numbers and of their signed logs.
    """
    payload = {"wanted": wanted, "centre": centre, "log_centre": log_centre}
    in_units = centre / _unit(centre)
    if votes:
        replies = fed.ask(local_powers, **payload)
        n = replies.stack("n")
        plain = _median(kurtosis(n, np.moveaxis(replies.stack("powers"), 0, 1), in_units))
        logged = _median(kurtosis(n, np.moveaxis(replies.stack("log_powers"), 0, 1), log_centre))
    else:
        total = fed.sum(local_powers, **payload)
        plain = kurtosis(total["n"], total["powers"], in_units)
        logged = kurtosis(total["n"], total["log_powers"], log_centre)
    heavy = (plain > HEAVY) & (logged <= TAMED * plain)
    return wanted & (heavy | np.isnan(plain))


def kurtosis(n: NDArray[np.int64], powers: Vector, centre: Vector) -> Vector:
    """Return the kurtosis from `powers` (4, ..., d), sums of powers about `centre`; NaN where there is no variance.

    Examples
    --------
    >>> kurtosis(np.array([2]), np.array([[0.0], [2.0], [0.0], [2.0]]), np.zeros(1))  # of -1 and 1
    array([1.])
    """
    eps = np.finfo(np.float64).eps
    with np.errstate(all="ignore"):  # finite sums from a hostile site may overflow: then nothing is known either
        m1, m2, m3, m4 = powers / np.maximum(n, 1)
        variance = m2 - m1**2
        fourth = m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4
        found = np.where(variance > eps * np.maximum(m2, eps * (n * centre) ** 2), fourth / variance / variance, np.nan)
    return np.where(np.isfinite(found), found, np.nan)


def _unit(centre: Vector) -> Vector:
    """Return powers of two of the size of `centre`, at least 1.

    They change no bit of a kurtosis, and keep fourth powers of large numbers within the range of a secure sum.
    """
    return np.ldexp(1.0, np.maximum(np.frexp(centre)[1], 0))


def _powers(distances: Vector) -> Vector:
    """Return the sums of the first four powers of each column of `distances` (n, d)."""
    squares = distances * distances
    products = [np.einsum("ij,ij->j", squares, factor) for factor in (distances, squares)]
    return np.array([distances.sum(axis=0), squares.sum(axis=0), *products])


def _median(kurtoses: Vector) -> Vector:
    """Return the median over the sites whose numbers vary; NaN where those of none do."""
    some = ~np.isnan(kurtoses).all(axis=0)
    median = np.full(kurtoses.shape[1], np.nan)
    median[some] = np.nanmedian(kurtoses[:, some], axis=0)
    return median
