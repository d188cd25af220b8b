"""The moment matrix of a mixture of regressions times a basis, without forming it; and its rank: how many clusters.

At a model theta the residuals are ``r_ij = y_ij - x_ij' theta``. Every pair of rows of a site gives an unbiased
estimate of ``Sigma_j (theta_j - theta) (theta_j - theta)' Sigma_j``, j the site's cluster; so the leading directions of

    Y(theta) = sum_i n_i / N  sum_{a != b} r_ia x_ia r_ib x_ib' / (n_i (n_i - 1))

span the clusters' models, as seen from theta. The paper takes only the first two rows of a site, and its Y is not
symmetric.

The number of clusters comes from parallel analysis. Sites split their rows into two halves; the products of the halves'
moments span as many directions as there are clusters with linearly independent models. Random changes of the signs of
whole sites show the effect of noise alone. Single replies of 2 d + 1 numbers are needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy.linalg import eigvalsh

from fedspan.aggregation import Aggregator
from fedspan.aggregation.safe_arithmetic import norms
from fedspan.checks import whole_number
from fedspan.errors import InputError
from fedspan.federation import Federation, Replies, Site, step
from fedspan.federation.site.parameters import Matrix, Stack, Vector
from fedspan.mixed_regression.parts.regression_rows import of_halves, row_blocks, target
from fedspan.pca.parts.orthogonal_iteration import Product
from fedspan.sums.moments import aggregated
from fedspan.sums.plausible_totals import refuse_absurd

OVERSAMPLING = 2  # columns of a basis beside the directions that are wanted
_TINY = np.finfo(np.float64).tiny
_KEPT_BYTES = 2**22  # rows whose products are kept between the two passes


@step("mixed_regression.moment_product", reveals="sums")
def local_moment_product(site: Site, models: Matrix, Q: Stack) -> dict[str, Any]:
    """Leaves the site: n times its part of ``Y Q`` at each of the models (A, d), for bases Q and result (d, A, c); n.

    A site with a single row has no pair, and sends zeros.
    """
    return _product(site, models, models, Q)


@step("mixed_regression.receive", reveals="nothing")
def local_receive(site: Site, first: Matrix, second: Matrix) -> dict[str, Any]:
    """Keep two perturbed versions (A, d) of the models for later calls. Leaves the site: its number of rows."""
    site.state["first"], site.state["second"] = first, second
    return {"n": len(site)}


@step("mixed_regression.perturbed_product", reveals="sums")
def local_perturbed_product(site: Site, Q: Stack) -> dict[str, Any]:
    """Leaves the site: as `local_moment_product`, at the two versions of the models that it received before."""
    first, second = site.state.get("first"), site.state.get("second")
    if first is None or second is None or len(first) != Q.shape[1]:
        raise InputError(f"site {site.name!r} did not receive its perturbed versions of these models")
    return _product(site, first, second, Q)


@step("mixed_regression.pair_product", reveals="rows")
def local_pair_product(site: Site, models: Matrix, Q: Stack, transposed: bool) -> dict[str, Any]:
    """Leaves the site: the paper's ``e_1 e_2' Q`` (or transposed) of its first two rows, ``e = r x``; 1."""
    if len(site) < 2:
        return {"product": np.zeros(Q.shape), "n": 0}
    X = np.asarray(next(site.batches(2)).X, dtype=np.float64)
    R = target(site)[:2, None] - X @ models.T
    left, right = (1, 0) if transposed else (0, 1)
    along = R[right][:, None] * np.einsum("d,dac->ac", X[right], Q)
    return {"product": X[left][:, None, None] * (R[left][:, None] * along), "n": 1}


def moment_product(models: Matrix, aggregator: Aggregator | None, *, perturbed: bool = False) -> Product:
    """Return the function ``(fed, Q) -> (Y Q, weights)`` of bases (d, A, c), one for each of the models (A, d)."""
    if perturbed:
        return _combined(local_perturbed_product, {}, aggregator)
    return _combined(local_moment_product, {"models": models}, aggregator)


def pair_product(models: Matrix, *, transposed: bool) -> Product:
    """Return that function for the paper's matrix of the first two rows of every site."""
    return _combined(local_pair_product, {"models": models, "transposed": transposed}, None)


def _combined(local: Any, payload: dict[str, Any], aggregator: Aggregator | None) -> Product:
    no_pairs = "no site has two rows: only pairs of rows distinguish clusters"

    def product(fed: Federation, Q: Stack) -> tuple[Stack, dict[str, float]]:
        if aggregator is None:
            total = fed.sum(local, **payload, Q=Q)
            if total["n"] == 0:
                raise InputError(no_pairs)
            return total["product"] / total["n"], dict.fromkeys(total.sites, 1.0 / len(total.sites))
        paired = {name: reply for name, reply in fed.ask(local, **payload, Q=Q).ok.items() if reply["n"] > 0}
        if not paired:
            raise InputError(no_pairs)
        parts = []
        for a in range(Q.shape[1]):
            own = {name: {"product": reply["product"][:, a], "n": reply["n"]} for name, reply in paired.items()}
            parts.append(aggregated(Replies(own, {}), ("product",), aggregator)[0][0])
        weights = np.mean([part.weights for part in parts], axis=0)
        return np.stack([part.value for part in parts], axis=1), dict(zip(paired, weights.tolist(), strict=True))

    return product


def _product(site: Site, first: Matrix, second: Matrix, Q: Stack) -> dict[str, Any]:
    n = len(site)
    if n < 2:
        return {"product": np.zeros(Q.shape), "n": 0}
    d, A, c = Q.shape
    flat = Q.reshape(d, A * c)

    def parts() -> Iterable[tuple[Matrix, Matrix, Matrix, Stack]]:
        for X, y in row_blocks(site, A * c):
            R = y[:, None] - X @ first.T
            yield X, R, R if first is second else y[:, None] - X @ second.T, (X @ flat).reshape(-1, A, c)

    few = list(parts()) if 8 * n * (d + A * c) <= _KEPT_BYTES else None
    S1, S2 = np.zeros((A, c)), np.zeros((A, c))  # S'Q with S = sum_j r_j x_j
    for _, R1, R2, P in few or parts():
        S1 += np.einsum("na,nac->ac", R1, P)
        S2 += np.einsum("na,nac->ac", R2, P)
    product = np.zeros((d, A * c))
    for X, R1, R2, P in few or parts():
        pairs = (R1[:, :, None] * S2 + R2[:, :, None] * S1) / 2.0 - (R1 * R2)[:, :, None] * P
        product += X.T @ pairs.reshape(-1, A * c)
    return {"product": product.reshape(d, A, c) / (n - 1), "n": n}


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
