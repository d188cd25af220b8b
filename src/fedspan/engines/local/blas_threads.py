"""The number of BLAS threads, which decides the last bits of a matrix product: it is fixed for a whole run."""

from __future__ import annotations

from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


@cache
def _controller() -> Any:
    import scipy.linalg  # noqa: F401  (its BLAS must be loaded to be found)

    return ThreadpoolController().select(user_api="blas")


def blas_threads() -> int:
    """Return the largest number of threads that a BLAS of this process uses now."""
    return max((int(library["num_threads"]) for library in _controller().info()), default=1)


class PinnedThreads:
    """Keeps the number of BLAS threads at `number` until `release`."""

    def __init__(self, number: int) -> None:
        self._limiter = None if number == blas_threads() else _controller().limit(limits=number)

    def release(self) -> None:
        """Restore the previous number of threads."""
        if self._limiter is not None:
            self._limiter.restore_original_limits()
            self._limiter = None
