"""The number of clusters, by parallel analysis of the moment matrix.

Sites split their rows into two halves; the products of the halves' moments span as many directions as there are
clusters with linearly independent models. Random changes of the signs of whole sites show the effect of noise alone.
Leaves a site: two vectors of d numbers and its number of rows; single replies are needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import eigvalsh

from fedspan.aggregation.safe_arithmetic import norms
from fedspan.checks import whole_number
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Matrix, Vector
from fedspan.mixed_regression.parts.regression_rows import of_halves, row_blocks
from fedspan.sums.plausible_totals import refuse_absurd

_TINY = np.finfo(np.float64).tiny


@step("mixed_regression.halves", reveals="sums", fewest=of_halves)
def local_halves(site: Site, start: Vector) -> dict[str, Any]:
    """Leaves the site: the mean of residual times features (d,) over its even and over its odd rows, and n."""
    halves, at = np.zeros((2, len(start))), 0
    for X, y in row_blocks(site):
        r = y - X @ start
        for parity in (0, 1):
            first = (parity - at) % 2
            halves[parity] += r[first::2] @ X[first::2]
        at += len(y)
    n = len(site)
    return {"halves": halves / np.maximum([(n + 1) // 2, n // 2], 1)[:, None], "n": n}


def count_clusters(fed: Federation, *, start: Vector, most: int = 10, flips: int = 20) -> int:
    """Return the number of clusters as seen from the model `start` (d,): at least 1, at most `most`.

    Clusters whose models are combinations of the others', as seen from `start`, do not count: the number is at most
    that of the columns.
    """
    whole_number("most", most, 1)
    whole_number("flips", flips, 1)
    values, noise = _spectra(fed, start, flips, robust=False)
    if not len(values):
        raise InputError("no site has two rows, by which clusters are counted: give n_clusters a number")
    found = int(np.count_nonzero(values > noise))
    fed.log(eigenvalue=float(values[min(max(found, 1), len(values)) - 1]), noise=noise, clusters=found)
    return int(np.clip(found, 1, most))


def spread_over_noise(fed: Federation, *, start: Vector, robust: bool = False, flips: int = 50) -> float:
    """Return how far sites differ from one model `start` (d,): the leading eigenvalue over the largest of noise alone.

    About 1 or less if all of them have that model; 0 if no site has two rows. With `robust`, no site counts more than
    the median one, whatever it reports.
    """
    values, noise = _spectra(fed, start, flips, robust=robust)
    return float(values[0]) / max(noise, _TINY) if len(values) else 0.0


def _spectra(federation: Federation, start: Vector, flips: int, *, robust: bool) -> tuple[Vector, float]:
    """Return the eigenvalues, descending, and the largest one of several draws of noise; none without pairs of rows."""
    replies = federation.ask(local_halves, start=start)
    halves, counts = replies.stack("halves"), replies.stack("n").astype(np.float64)
    if robust:
        counts = np.minimum(counts, np.median(counts))
        lengths = norms(halves.reshape(-1, halves.shape[-1])).reshape(-1, 2, 1)
        middle = float(np.median(lengths))
        halves = halves * (middle / np.maximum(lengths, max(middle, _TINY)))
    refuse_absurd(halves, counts)
    paired = counts > 1.0
    if not paired.any():
        return np.zeros(0), 0.0
    first, second = halves[paired, 0], halves[paired, 1]
    weights = counts[paired] / counts[paired].sum()

    def spectrum(signs: Vector) -> Vector:
        Y: Matrix = (first * (weights * signs)[:, None]).T @ second
        return np.asarray(eigvalsh((Y + Y.T) / 2.0)[::-1])

    noise = max(float(spectrum(federation.rng.choice([-1.0, 1.0], len(first)))[0]) for _ in range(flips))
    return spectrum(np.ones(len(first))), noise
