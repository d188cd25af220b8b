"""Transforms at sites whose ledger is strict: a row that one can't take is not a number, and no failure shows it.

Whether a call fails would answer a question about single rows, such as whether all cells of a column are in a list. No
noise covers that answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedspan.arrays import Array
from fedspan.errors import PolicyError


def hiding_failures(transform: Callable[[Any], Array]) -> Callable[[Any], Array]:
    """Return a transform that fails only where it does so without rows. Rows that make it fail become NaN.

    Examples
    --------
    >>> def listed(X):
    ...     if not np.isin(X, [1, 2]).all():
    ...         raise ValueError("a value is not listed")
    ...     return 10.0 * X
    >>> hiding_failures(listed)(np.array([[1], [3], [2]]))
    array([[10.],
           [nan],
           [20.]])
    """

    def shown(X: Any) -> Array:
        try:
            return transform(X)
        except (PolicyError, MemoryError):
            raise
        except Exception:
            empty = transform(X[:0])
        good = np.array([_takes(transform, X[i : i + 1]) for i in range(len(X))], dtype=np.bool_)
        if not good.any():
            return np.full((len(X), *empty.shape[1:]), np.nan)
        # In place of the others stands a row that works: products round the rest as they do without a failure.
        places = np.where(good, np.arange(len(X)), int(np.argmax(good)))
        found = np.array(transform(X.iloc[places] if hasattr(X, "iloc") else X[places]))
        found = found if found.dtype.kind == "f" else found.astype(np.float64)
        found[~good] = np.nan
        return found

    return shown


def _takes(transform: Callable[[Any], Array], row: Any) -> bool:
    try:
        transform(row)
    except (PolicyError, MemoryError):
        raise
    except Exception:
        return False
    return True
