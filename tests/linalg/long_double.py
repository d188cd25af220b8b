"""The geometric median in long double, on its own: what the certificates in float64 are held against."""

from __future__ import annotations

import numpy as np

LONG = np.longdouble


def lengths(rows):
    """Euclidean norms of rows of any magnitude."""
    largest = np.abs(rows).max(axis=1)
    largest = np.where(largest > 0, largest, LONG(1))
    return largest * np.sqrt(((rows / largest[:, None]) ** 2).sum(axis=1))


def distances(points, z):
    return lengths(np.asarray(points).astype(LONG) - np.asarray(z).astype(LONG))


def objective(points, weights, z):
    return (np.asarray(weights).astype(LONG) * distances(points, z)).sum()


def excess(points, weights, z):
    """``f(z) - f(y)`` for the best y that can be found: never more than ``f(z) - min f``, and nearly that.

    Everything is relative to z, and so is f: the difference of two distances is that of their squares over their sum.
    """
    V = np.asarray(points).astype(LONG) - np.asarray(z).astype(LONG)
    w = np.asarray(weights).astype(LONG)
    at_start = lengths(V)

    def change(y):
        scale = np.maximum(np.abs(V).max(axis=1), np.abs(y).max())
        scale = np.where(scale > 0, scale, LONG(1))
        squares = ((y / scale[:, None]) * ((y - 2 * V) / scale[:, None])).sum(axis=1)
        sums = (lengths(V - y) + at_start) / scale
        return (w * scale * np.where(sums > 0, squares / np.where(sums > 0, sums, LONG(1)), LONG(0))).sum()

    y = min([np.zeros_like(V[0]), *V], key=change)
    away = lengths(V - y)
    own = w[away == 0].sum()
    if own > 0:  # a data point: leave it only if the others pull harder than its weight (Kuhn; Vardi and Zhang)
        pulls = np.where(away > 0, w / np.where(away > 0, away, LONG(1)), LONG(0))
        pull = (pulls[:, None] * (V - y)).sum(axis=0)
        strength = np.sqrt((pull**2).sum())
        if strength <= own:
            return -change(y)
        left = y + (1 - own / strength) * pull / pulls.sum()
        y = left if change(left) < change(y) else y
    return -change(_descended(V, w, y, change))


def _descended(V, w, y, change):
    for iteration in range(60):
        difference = V - y
        away = lengths(difference)
        if (away == 0).any():
            break
        pulls, units = w / away, difference / away[:, None]
        gradient = (w[:, None] * units).sum(axis=0)
        step = gradient / pulls.sum()
        if iteration >= 4:
            hessian = pulls.sum() * np.eye(len(y), dtype=LONG) - (units * pulls[:, None]).T @ units
            newton = _solution(hessian, gradient)
            if newton is not None and (newton * gradient).sum() > 0:
                step = newton
        here = change(y)
        for halvings in range(40):
            if change(y + step / 2**halvings) < here:
                y = y + step / 2**halvings
                break
        else:
            break
    return y


def _solution(A, b):
    """Gaussian elimination with partial pivoting, for numpy's solvers know no long double."""
    A, b = A.copy(), b.copy()
    n = len(b)
    for i in range(n):
        pivot = i + int(np.argmax(np.abs(A[i:, i])))
        if A[pivot, i] == 0:
            return None
        A[[i, pivot]], b[[i, pivot]] = A[[pivot, i]], b[[pivot, i]]
        factor = A[i + 1 :, i] / A[i, i]
        A[i + 1 :] -= factor[:, None] * A[i]
        b[i + 1 :] -= factor * b[i]
    x = np.zeros(n, dtype=LONG)
    for i in reversed(range(n)):
        x[i] = (b[i] - (A[i, i + 1 :] * x[i + 1 :]).sum()) / A[i, i]
    return x


def projectors(bases):
    """Projectors onto the spans of the columns, (L, n * n), orthonormalised twice by Gram-Schmidt in long double."""
    out = []
    for basis in bases:
        U = np.asarray(basis).astype(LONG)
        for _ in range(2):
            for i in range(U.shape[1]):
                for j in range(i):
                    U[:, i] -= (U[:, j] * U[:, i]).sum() * U[:, j]
                U[:, i] /= np.sqrt((U[:, i] ** 2).sum())
        out.append((U @ U.T).ravel())
    return np.stack(out)
