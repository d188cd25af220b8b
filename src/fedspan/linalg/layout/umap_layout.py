"""The layout of UMAP (McInnes, Healy and Melville 2018, Algorithm 5), all ties of an epoch at once.

In each epoch the ties that are due, by their weights, pull their two ends together. Each end is pushed away from a few
rows drawn at random. UMAP itself moves rows tie by tie; here an epoch has four turns, in each of which the forces on a
row are added up. On numpy, or with tensors of torch on a GPU. There forces are added as whole numbers, whose sum does
not depend on the order. So a seed gives the same map again on the same device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.linalg.array_backend import namespace
from fedspan.linalg.layout.fuzzy_graph import FuzzyGraph

Array = Any  # of numpy, or of torch

NEGATIVES = 5
#: Parts of an epoch. In one part the forces of all ties of a row overshoot, and neighbourhoods blur.
TURNS = 4
#: No coordinate of a force is larger.
_CLIP = 4.0
#: Forces on a GPU are added in units of this.
_UNIT = 2.0**-32
#: Added to squared distances of rows that push each other; and the least squared distance.
_NEAR, _LEAST_SQUARE = 1e-3, 1e-12


def layout_curve(spread: float, min_dist: float) -> tuple[float, float]:
    """Return a and b of ``1 / (1 + a d^(2 b))``, nearest to 1 within `min_dist` and ``exp(-(d - min_dist) / spread)``.

    Examples
    --------
    >>> [round(value, 3) for value in layout_curve(1.0, 0.1)]
    [1.577, 0.895]
    """
    from scipy.optimize import curve_fit

    d = np.linspace(0, 3 * spread, 300)
    wanted = np.where(d < min_dist, 1.0, np.exp(-(d - min_dist) / spread))
    (a, b), _ = curve_fit(lambda x, a, b: 1.0 / (1.0 + a * x ** (2 * b)), d, wanted)
    return float(a), float(b)


def umap_layout(
    graph: FuzzyGraph,
    start: Array,
    rng: np.random.Generator,
    *,
    epochs: int,
    curve: tuple[float, float],
    after_turn: Callable[[int], None] | None = None,
) -> Array:
    """Return positions (n, q) after all epochs, in single precision, where `start` (n, q) is.

    Parameters
    ----------
    graph : FuzzyGraph
        On the device of `start`.
    rng : numpy.random.Generator
        Of all draws; on a GPU it gives the seed of the device's own generator.
    epochs : int
    curve : (float, float)
        From `layout_curve`.
    after_turn : callable, optional
        Receives the number of the epoch after each of its four turns.
    """
    xp = namespace(start)
    draw = _draws(start, rng)
    Y = xp.asarray(start.T, dtype=xp.float32, copy=True)  # rows of coordinates, which are gathered faster
    for epoch, (i, j) in _due_ties(graph, epochs, draw):
        Y = Y + (1.0 - epoch / epochs) * _forces(Y, i, j, curve, draw)
        if after_turn is not None:
            after_turn(epoch)
    return Y.T


def _due_ties(graph: FuzzyGraph, epochs: int, draw: Any) -> Iterator[tuple[int, tuple[Array, Array]]]:
    """Yield for each turn the number of its epoch, and the ties that act in it.

    A tie belongs to one of the turns. It acts in a share of all epochs, evenly spaced, that is in proportion to its
    weight; ties that would not act at all are left out.
    """
    xp = namespace(graph.weights)
    strongest = float(xp.max(graph.weights)) if len(graph.weights) else 1.0
    kept = graph.weights >= strongest / epochs
    heads, tails = graph.heads[kept], graph.tails[kept]
    due = xp.asarray(graph.weights[kept] / strongest, dtype=xp.float32)
    phase, turn = draw.uniform(len(due)), draw.integers(len(due), TURNS)
    turns = [(heads[turn == t], tails[turn == t], due[turn == t], phase[turn == t]) for t in range(TURNS)]
    for epoch in range(epochs):
        for ends, others, share, begin in turns:
            now = xp.floor(begin + (epoch + 1) * share) > xp.floor(begin + epoch * share)
            yield epoch, (ends[now], others[now])


def _forces(Y: Array, i: Array, j: Array, curve: tuple[float, float], draw: Any) -> Array:
    """Return the forces (q, n) of ties between rows i and j, which pull twice, from either end, and push both ends."""
    xp = namespace(Y)
    a, b = curve
    D = xp.take(Y, i, axis=1) - xp.take(Y, j, axis=1)
    squares, power = _powers(D, b)
    pull = _clipped((-4 * a * b) * power / (squares * (1 + a * power)), D, 2 * _CLIP)
    ends = xp.concat([i, j])
    others = draw.integers(len(ends) * NEGATIVES, Y.shape[1])
    D = xp.reshape(xp.take(Y, others, axis=1), (len(Y), NEGATIVES, -1))
    D -= xp.take(Y, ends, axis=1)[:, None, :]
    squares, power = _powers(D, b)
    power *= a
    power += 1
    squares += _NEAR
    squares *= power
    push = _clipped((-2 * b) / squares, D, _CLIP)
    return draw.summed(ends, xp.sum(push, axis=1) + xp.concat([pull, -pull], axis=1), Y.shape[1])


def _powers(D: Array, b: float) -> tuple[Array, Array]:
    """Return squared lengths ``s`` of D (q, ...), kept above 0, and ``s^b``."""
    xp = namespace(D)
    squares = xp.clip(xp.sum(D * D, axis=0), _LEAST_SQUARE, None)
    power = xp.log(squares)
    power *= b
    return squares, xp.exp(power)


def _clipped(factors: Array, D: Array, most: float) -> Array:
    D *= factors
    return namespace(D).clip(D, -most, most)


def _draws(start: Array, rng: np.random.Generator) -> _NumpyDraws | _TorchDraws:
    return _NumpyDraws(rng) if isinstance(start, np.ndarray) else _TorchDraws(start, rng)


class _NumpyDraws:
    """Random numbers and sums by row on numpy."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def uniform(self, count: int) -> Array:
        return self._rng.random(count, dtype=np.float32)

    def integers(self, count: int, below: int) -> Array:
        return self._rng.integers(below, size=count, dtype=np.int32)

    def summed(self, rows: Array, values: Array, n: int) -> NDArray[np.float32]:
        return np.stack([np.bincount(rows, column, minlength=n) for column in values]).astype(np.float32)


class _TorchDraws:
    """The same with tensors of torch, on their device."""

    def __init__(self, start: Array, rng: np.random.Generator) -> None:
        import torch

        self._torch, self._device = torch, start.device
        self._generator = torch.Generator(device=start.device)
        self._generator.manual_seed(int(rng.integers(2**31)))

    def uniform(self, count: int) -> Array:
        return self._torch.rand(count, generator=self._generator, device=self._device)

    def integers(self, count: int, below: int) -> Array:
        return self._torch.randint(below, (count,), generator=self._generator, device=self._device)

    def summed(self, rows: Array, values: Array, n: int) -> Array:
        return sums_by_row(rows, values, n).float()


def sums_by_row(rows: Array, values: Array, n: int) -> Array:
    """Return the sums (q, n) of torch values (q, m) by their row (m,) in double precision, the same in any order."""
    import torch

    total = torch.zeros((len(values), n), dtype=torch.int64, device=values.device)
    return total.index_add_(1, rows, (values.double() / _UNIT).to(torch.int64)).double() * _UNIT
