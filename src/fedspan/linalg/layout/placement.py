"""New points on an existing map: weighted means of their neighbours' positions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Matrix = NDArray[np.float64]

_HALVINGS = 50


def perplexity_weights(distances: Array, perplexity: float) -> Matrix:
    """Return weights (n, k), ``exp(-beta_i d_ij^2)`` over their sum, whose entropy is that of `perplexity` neighbours.

    Examples
    --------
    >>> perplexity_weights(np.array([[1.0, 1.0, 9.0]]), 2.0).round(3)
    array([[0.5, 0.5, 0. ]])
    """
    squares = np.asarray(distances, dtype=np.float64) ** 2
    squares -= squares.min(axis=1, keepdims=True)
    widest = squares.max(axis=1, keepdims=True)
    squares /= np.where(widest > 0, widest, 1.0)
    # ln beta by bisection: the entropy falls with it
    low, high = np.full((len(squares), 1), -20.0), np.full((len(squares), 1), 60.0)
    weights = np.empty_like(squares)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        weights = np.exp(-np.exp(middle) * squares)
        weights /= weights.sum(axis=1, keepdims=True)
        entropy = -np.sum(weights * np.log(np.maximum(weights, 1e-300)), axis=1, keepdims=True)
        wide = entropy > np.log(perplexity)
        low, high = np.where(wide, middle, low), np.where(wide, high, middle)
    return weights


def placed(embedding: Array, indices: Array, distances: Array, perplexity: float) -> Matrix:
    """Return positions (n, q): means of those of the neighbours `indices` (n, k), weighted by their distances."""
    weights = perplexity_weights(distances, min(perplexity, indices.shape[1]))
    return np.asarray(np.einsum("ik,ikq->iq", weights, np.asarray(embedding, dtype=np.float64)[indices]))
