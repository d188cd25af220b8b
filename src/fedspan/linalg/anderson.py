"""Anderson's extrapolation of a fixed-point iteration: fewer rounds for the same messages."""

from __future__ import annotations

import numpy as np

from fedspan.arrays import Floats

GROWTH = 2.0  # a residual that grows by more discards the history


class Anderson:
    """Extrapolate ``x <- x + f(x)`` from its last few points and residuals.

    For affine maps, such as averages of local steps, it is as good as the best polynomial method. Where a residual
    grows, it discards its history and takes the plain step.

    Parameters
    ----------
    memory : int
        The number of differences to keep; 0 is the plain iteration.

    References
    ----------
    H. F. Walker and P. Ni, "Anderson acceleration for fixed-point iterations", SIAM J. Numer. Anal. 49 (2011).

    Examples
    --------
    >>> A, x = np.diag([0.9, 0.5]), np.zeros(2)           # the fixed point of x <- x + (1 - A x)
    >>> faster = Anderson(memory=2)
    >>> for _ in range(4):
    ...     x = faster.next(x, 1.0 - A @ x)
    >>> bool(np.allclose(A @ x, 1.0))
    True
    """

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self._points: list[Floats] = []
        self._residuals: list[Floats] = []

    def next(self, point: Floats, residual: Floats) -> Floats:
        """Return the next point, given the present one and its residual f(x), of any shape."""
        if self._residuals and np.linalg.norm(residual) > GROWTH * np.linalg.norm(self._residuals[-1]):
            self.forget()
        self._points.append(point.ravel().copy())
        self._residuals.append(residual.ravel().copy())
        del self._points[: -self.memory - 1], self._residuals[: -self.memory - 1]
        plain = point + residual
        if len(self._points) < 2:
            return plain
        dx = np.diff(np.array(self._points), axis=0)
        df = np.diff(np.array(self._residuals), axis=0)
        mix = np.linalg.lstsq(df.T, residual.ravel(), rcond=1e-10)[0]
        found = plain - (mix @ (dx + df)).reshape(point.shape)
        return found if np.isfinite(found).all() else plain

    def forget(self) -> None:
        """Discard the history: the map has changed."""
        self._points.clear()
        self._residuals.clear()
