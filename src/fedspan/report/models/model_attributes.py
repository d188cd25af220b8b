"""What fitted models have, read with care: whatever object it is, a picture must not fail on it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.report.markup import number
from fedspan.report.models.picture import Names

#: Columns with such names, line by line, are the pixels of an image.
_PIXEL = re.compile(r"pixel_(\d+)_(\d+)")


def steps_of(model: Any) -> list[Any]:
    """Return the steps of a pipeline, or a model that is none."""
    named = getattr(model, "named_steps", None)
    if named is None:
        return [model]
    return [step for step in dict(named).values() if step is not None and not isinstance(step, str)]


def array_of(model: Any, name: str, ndim: int) -> NDArray[np.float64] | None:
    """Return an attribute as an array of numbers, or None where it is not there or is something else."""
    value = getattr(model, name, None)
    if value is None:
        return None
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return array if array.ndim == ndim and array.size else None


def names_in(model: Any, before: Names) -> Names:
    """Return the names of a model's features: its own, or what the step before it calls its results."""
    own = getattr(model, "feature_names_in_", None)
    names = before if own is None or image_shape(before) is not None else [str(name) for name in own]
    return names if names is not None and len(names) == getattr(model, "n_features_in_", len(names)) else None


def names_out(model: Any, names: Names) -> Names:
    """Return what a model calls its results."""
    try:
        if image_shape(names) is None:
            return [str(name) for name in model.get_feature_names_out(names)]
        # Pixels stay pixels where each column becomes one of the same name.
        own = [str(name) for name in model.get_feature_names_out()]
        same = [str(name) for name in getattr(model, "feature_names_in_", [f"x{j}" for j in range(len(names or ()))])]
        return names if own == same else own
    except (AttributeError, ValueError):
        return None


def shown_names(names: Names, total: int) -> Sequence[str]:
    """Return the names of `total` features, or numbers in their place."""
    return names if names is not None and len(names) == total else [f"feature {j}" for j in range(total)]


def pixel_names(shape: tuple[int, int]) -> list[str]:
    """Return the names of the columns of images (height, width).

    Examples
    --------
    >>> pixel_names((1, 2)), image_shape(pixel_names((8, 9))), image_shape(["age", "dose"])
    (['pixel_0_0', 'pixel_0_1'], (8, 9), None)
    """
    return [f"pixel_{i}_{j}" for i in range(shape[0]) for j in range(shape[1])]


def image_shape(names: Names) -> tuple[int, int] | None:
    """Return height and width where the columns are the pixels of an image, line by line, by their names."""
    last = _PIXEL.fullmatch(names[-1]) if names else None
    if names is None or last is None:
        return None
    shape = int(last[1]) + 1, int(last[2]) + 1
    return shape if shape[0] * shape[1] == len(names) and list(names) == pixel_names(shape) else None


def percent(value: float) -> str:
    """Return a share in percent.

    Examples
    --------
    >>> percent(0.1234)
    '12.3 %'
    """
    return f"{number(100 * float(value), 3)} %"
