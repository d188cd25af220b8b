"""How many clusters there are: parallel analysis of the moment matrix.

Sites split their rows into two halves; the products of the halves' moments span as many directions as there are
clusters whose models are linearly independent. What noise alone makes is seen when whole sites change their sign at
random. Leaves a site: two vectors of d numbers and its number of rows; single replies are needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import eigvalsh

from fedspan.aggregation.safe_arithmetic import norms
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.mixed_regression.parts.regression_rows import of_halves, row_blocks
from fedspan.pca.parts.orthogonal_iteration import Matrix
from fedspan.sums.plausible_totals import refuse_absurd


@step("mixed_regression.halves", reveals="sums", fewest=of_halves)
def local_halves(site: Site, start: Matrix) -> dict[str, Any]:
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


def count_clusters(fed: Federation, *, start: Matrix, most: int = 10, flips: int = 20) -> int:
    """Return the number of clusters as seen from the model `start` (d,): at least 1, at most `most`.

    Clusters whose models are combinations of the others', as seen from `start`, are not counted; so there are at most
    as many as columns.
    """
    if most < 1 or flips < 1:
        raise InputError(f"most={most} and flips={flips} must be at least 1")
    replies = fed.ask(local_halves, start=start)
    halves, counts = replies.stack("halves"), replies.stack("n").astype(np.float64)
    refuse_absurd(halves, counts)
    if not (counts > 1.0).any():
        raise InputError("no site has two rows, and clusters are counted by pairs of rows: give n_clusters a number")
    values, noise = _spectra(halves, counts, flips, fed.rng)
    found = int(np.count_nonzero(values > noise))
    fed.log(eigenvalue=float(values[min(max(found, 1), len(values)) - 1]), noise=noise, clusters=found)
    return int(np.clip(found, 1, most))


def spread_over_noise(fed: Federation, *, start: Matrix, robust: bool = False, flips: int = 50) -> float:
    """Return how far sites differ from one model `start` (d,): the leading eigenvalue over the largest of noise alone.

    About 1 or less where all of them have that model; 0 where no site has two rows. `robust`: no site counts more than
    most do, whatever it says.
    """
    replies = fed.ask(local_halves, start=start)
    halves, counts = replies.stack("halves"), replies.stack("n").astype(np.float64)
    if robust:
        counts = np.minimum(counts, np.median(counts))
        lengths = norms(halves.reshape(-1, halves.shape[-1])).reshape(-1, 2, 1)
        middle = float(np.median(lengths))
        halves = halves * (middle / np.maximum(lengths, max(middle, np.finfo(np.float64).tiny)))
    refuse_absurd(halves, counts)
    if not (counts > 1.0).any():
        return 0.0
    values, noise = _spectra(halves, counts, flips, fed.rng)
    return float(values[0]) / max(noise, np.finfo(np.float64).tiny)


def _spectra(halves: Matrix, counts: Matrix, flips: int, rng: np.random.Generator) -> tuple[Matrix, float]:
    """Return the eigenvalues, falling, and the largest one of several draws of noise alone."""
    paired = counts > 1.0
    first, second = halves[paired, 0], halves[paired, 1]
    weights = counts[paired] / counts[paired].sum()

    def spectrum(signs: Matrix) -> Matrix:
        Y = (first * (weights * signs)[:, None]).T @ second
        return np.asarray(eigvalsh((Y + Y.T) / 2.0)[::-1])

    noise = max(float(spectrum(rng.choice([-1.0, 1.0], len(first)))[0]) for _ in range(flips))
    return spectrum(np.ones(len(first))), noise
