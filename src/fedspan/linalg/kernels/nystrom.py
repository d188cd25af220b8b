"""Normalised spectral embedding of the Nystrom kernel ``K_hat = K W^+ K'``, from its factor: O(n n_y^2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.checks import whole_number
from fedspan.linalg.subspaces import with_fixed_signs

Array = NDArray[Any]
Matrix = NDArray[np.float64]

#: Eigenvalues of W below this part of the largest one are rounding.
THINNEST = 1e-8


@dataclass(frozen=True)
class SpectralFactor:
    """The leading eigenvectors of ``D^-1/2 K_hat D^-1/2``, and how new rows get theirs.

    Attributes
    ----------
    eigenvalues : array (k,)
        Falling, at most 1.
    vectors : array (n, k)
        Orthonormal columns.
    axes : array (n_y, k), degrees : array (n_y,)
        A row with kernel values ``kappa`` (n_y,) has the degree ``kappa @ degrees`` and the coordinates
        ``kappa @ axes / sqrt(degree)``: see `spectral_places`.
    """

    eigenvalues: Matrix
    vectors: Matrix
    axes: Matrix
    degrees: Matrix


def spectral_factor(K: Array, W: Array, k: int) -> SpectralFactor:
    """Return the k leading eigenpairs of the normalised Nystrom kernel.

    Parameters
    ----------
    K : array (n, n_y)
        Kernel of rows and landmarks.
    W : array (n_y, n_y)
        Kernel of the landmarks.
    k : int

    Notes
    -----
    O(n n_y^2) time; memory is one array of the size of K.

    Examples
    --------
    >>> K = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> spectral_factor(K, np.eye(2), 2).eigenvalues
    array([1., 1.])
    """
    values, vectors = np.linalg.eigh(np.asarray(W, dtype=np.float64))
    kept = values > THINNEST * values[-1]
    whole_number("k", k, 1, int(kept.sum()), why=", the rank of the landmarks' kernel")
    root = vectors[:, kept] / np.sqrt(values[kept])
    F = K @ root
    degrees = root @ F.sum(axis=0)
    G = F
    G /= _roots(K @ degrees)[:, None]
    spectrum, axes = np.linalg.eigh(G.T @ G)
    top = slice(None, -k - 1, -1)
    spectrum, axes = spectrum[top], with_fixed_signs(axes[:, top])
    axes = axes / np.sqrt(np.maximum(spectrum, np.finfo(float).tiny))
    return SpectralFactor(spectrum, G @ axes, root @ axes, degrees)


def spectral_places(K: Array, axes: Matrix, degrees: Matrix) -> Matrix:
    """Return the coordinates (n, k) of rows with kernel values K (n, n_y), from a factor's `axes` and `degrees`."""
    return np.asarray((K @ axes) / _roots(K @ degrees)[:, None])


def _roots(degrees: Matrix) -> Matrix:
    """Return the roots of degrees; K_hat may have negative entries, and a row far from all landmarks no degree."""
    least = 1e-12 * max(float(degrees.max(initial=0.0)), np.finfo(float).tiny * 1e12)
    return np.asarray(np.sqrt(np.maximum(degrees, least)))
