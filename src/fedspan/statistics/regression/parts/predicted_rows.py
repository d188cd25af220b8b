"""Predictions of a regression at the sites, in place of their rows."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedspan.arrays import Array
from fedspan.errors import InputError
from fedspan.federation import transform
from fedspan.federation.site.parameters import Matrix, OneOf, Vector


@transform("regression.predicted")
def predicted(
    X: Array,
    slopes: Matrix,
    intercepts: Vector,
    link: Annotated[str, OneOf(("identity", "log", "class"))],
    classes: Vector | None = None,
) -> Array:
    """Return predictions (n, 1): linear ones, mean counts, or the most probable of `classes`.

    `slopes` are (r, d) and `intercepts` (r,): one row, or with more than two classes one for each but the first.
    Their numbers are checked before rows are read: a failure that depends on rows would reveal them.

    Examples
    --------
    >>> predicted(np.array([[2.0], [-1.0]]), np.array([[1.5]]), np.array([0.5]), "identity").ravel().tolist()
    [3.5, -1.0]
    """
    rows = 1 if classes is None else len(classes) - 1
    if rows < 1 or (link == "class") != (classes is not None) or len(slopes) != rows or len(intercepts) != rows:
        raise InputError("slopes and intercepts are one row, or with link='class' one for each class but the first")
    found: Array = np.asarray(X, dtype=np.float64) @ slopes.T + intercepts
    if classes is not None:
        found = classes[np.hstack([np.zeros((len(found), 1)), found]).argmax(axis=1)][:, None]
    return np.exp(np.clip(found, -700.0, 700.0)) if link == "log" else found
