"""The layout of t-SNE (van der Maaten and Hinton 2008) with tensors of torch, on a GPU.

Repulsion comes from a histogram of the map and fast Fourier transforms, as in FIt-SNE (Linderman et al. 2019): points
share their weight among the four nearest nodes of a fine grid. Attraction is along the pairs of neighbours. Sums by row
and by node are added as whole numbers, whose total does not depend on the order. So a seed gives the same map again on
the same device. Schedule and step sizes are those of openTSNE.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fedspan.linalg.layout.fuzzy_graph import each_pair_once
from fedspan.linalg.layout.map_descent import Motion, moved
from fedspan.linalg.layout.map_graph import perplexity_weights
from fedspan.linalg.layout.umap_layout import sums_by_row

Tensor = Any  # of torch

#: Attraction is this much stronger in the early iterations.
EXAGGERATION = 12.0
#: In both parts, as in openTSNE; no point moves further in a step.
_MOMENTUM, _FARTHEST = 0.8, 5.0
#: The widest cell of the grid, in units where q falls to a half at 1. Then the fewest and the most nodes in a
#: direction.
_CELL, _FEWEST_NODES, _MOST_NODES = 0.2, 128, 2048
_LEAST_CELL = 1e-9
_CORNERS_APART = ((0, 1, 1, 2), (1, 0, 2, 1), (1, 2, 0, 1), (2, 1, 1, 0))


@dataclass(frozen=True)
class JointShares:
    """Pairs of n rows, each once, and ``p_ij`` (m,): the sum over both directions of all pairs is 1."""

    heads: Tensor
    tails: Tensor
    p: Tensor
    n: int


def joint_shares(indices: Tensor, distances: Tensor, perplexity: float) -> JointShares:
    """Return t-SNE's ``p_ij`` for rows whose nearest other rows are `indices` (n, k), at `distances` (n, k)."""
    heads, tails, one, other = each_pair_once(indices, perplexity_weights(distances, perplexity))
    return JointShares(heads, tails, (one + other) / (2 * len(indices)), len(indices))


def tsne_layout(
    shares: JointShares,
    start: Tensor,
    *,
    early: int,
    later: int,
    after_step: Callable[[int, Callable[[], float]], None] | None = None,
) -> tuple[Tensor, float]:
    """Return positions (n, 2) after `early` iterations with exaggerated attraction and `later` ones; the KL divergence.

    `start` (n, 2) is on the device of the shares. `after_step` receives the number of iterations so far, and a function
    that returns the divergence.
    """
    Y = start.double()
    for steps, exaggeration, before in ((early, EXAGGERATION, 0), (later, 1.0, early)):
        now = Motion(Y, 0 * Y, 0 * Y + 1)
        for number in range(steps):
            pushed = _repulsion(now.Y)
            gradient = exaggeration * _attraction(now.Y, shares) - pushed.force
            now = moved(now, gradient, rate=1 / exaggeration, momentum=_MOMENTUM, farthest=_FARTHEST)
            if after_step is not None:
                after_step(before + number + 1, lambda now=now: _divergence(now.Y, shares))  # type: ignore[misc]
        Y = now.Y - now.Y.mean(0)
    return Y, _divergence(Y, shares)


def _attraction(Y: Tensor, shares: JointShares) -> Tensor:
    """Return ``n sum_j p_ij q_ij (y_i - y_j)`` (n, 2)."""
    D = (Y[shares.heads] - Y[shares.tails]).T
    pull = D * (shares.n * shares.p / (1 + (D * D).sum(0)))
    return (sums_by_row(shares.heads, pull, shares.n) - sums_by_row(shares.tails, pull, shares.n)).T


@dataclass(frozen=True)
class _Pushed:
    """The repulsive force (n, 2) on each point, times n, and Z, the sum of q over all pairs."""

    force: Tensor
    Z: Tensor


def _repulsion(Y: Tensor) -> _Pushed:
    """Return ``n sum_j q_ij^2 (y_i - y_j) / Z`` from a histogram of the positions Y (n, 2)."""
    import torch

    low, high = Y.amin(0), Y.amax(0)
    size, cell = _grid(float((high - low).max()))
    at = (Y - low) / cell
    corner = at.floor()
    part = at - corner
    corner = corner.long()
    offsets = torch.tensor([0, 1, size, size + 1], device=Y.device)
    nodes = (corner[:, :1] * size + corner[:, 1:]) + offsets
    x, y = part.T
    weights = torch.stack([(1 - x) * (1 - y), (1 - x) * y, x * (1 - y), x * y], dim=1)
    histogram = sums_by_row(nodes.reshape(-1), weights.reshape(1, -1), size * size).reshape(size, size)
    wide = 2 * size
    product = _kernels(size, cell, str(Y.device)) * torch.fft.rfft2(histogram, (wide, wide))
    fields = torch.fft.irfft2(product, (wide, wide))[:, :size, :size]
    q, fx, fy = (weights[None] * fields.reshape(3, -1)[:, nodes]).sum(2)
    apart = torch.tensor(_CORNERS_APART, dtype=Y.dtype, device=Y.device)
    own = ((weights @ (1 / (1 + cell**2 * apart))) * weights).sum()
    Z = q.sum() - own
    return _Pushed(torch.stack([fx, fy], dim=1) * (len(Y) / Z), Z)


def _grid(width: float) -> tuple[int, float]:
    """Return the number of nodes in a direction, and the width of a cell, of a grid for a map of this width.

    Both are from a short list, so that the kernels of one grid serve many iterations.

    Examples
    --------
    >>> _grid(3.0), _grid(100.0), _grid(1000.0)
    ((128, 0.025), (512, 0.2), (2048, 0.8))
    """
    cell = _CELL
    while width / cell > _MOST_NODES - 2:
        cell *= 2
    while width / cell < _FEWEST_NODES / 2 - 2 and cell > _LEAST_CELL:
        cell /= 2
    size = _FEWEST_NODES
    while size < width / cell + 2:
        size *= 2
    return size, cell


@lru_cache(maxsize=2)
def _kernels(size: int, cell: float, device: str) -> Tensor:
    """Return the transforms of q, and of ``q^2 (y - y_j)`` in both directions, on a grid (3, 2 size, size + 1)."""
    import torch

    wide = 2 * size
    steps = cell * torch.fft.fftfreq(wide, 1.0 / wide, dtype=torch.float64, device=device)
    q = 1.0 / (1.0 + steps[:, None] ** 2 + steps**2)
    return torch.fft.rfft2(torch.stack([q, q * q * steps[:, None], q * q * steps]))


def _divergence(Y: Tensor, shares: JointShares) -> float:
    """Return the Kullback-Leibler divergence of the map: ``sum p log p + sum p log(1 + d^2) + log Z``."""
    D = Y[shares.heads] - Y[shares.tails]
    p = shares.p
    terms = p * ((p + 1e-300).log() + (1 + (D * D).sum(1)).log())
    return float(2 * terms.sum() + _repulsion(Y).Z.log())
