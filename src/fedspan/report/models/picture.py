"""Pictures of models, found by registration, and careful access to what a fitted model has.

A function that draws something of a model is decorated with `picture`, which names the attributes that it needs. The
report draws every registered picture that a model has the attributes for; there is no list of pictures or models.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, NamedTuple

import numpy as np

from fedspan.arrays import Matrix
from fedspan.report.charts.svg import figure
from fedspan.report.markup import MOST_SITES, Html, count

#: The names of a model's features, where these are known.
Names = Sequence[str] | None

#: Columns with such names, line by line, are the pixels of an image.
_PIXEL = re.compile(r"pixel_(\d+)_(\d+)")


class Picture(NamedTuple):
    """A picture with its title, a remark and the meaning of its colours."""

    title: str
    body: Html
    remark: str = ""
    key: Sequence[tuple[int, str]] = ()

    def figure(self, over: str = "") -> Html:
        """Return the picture for the page, with the name of its model `over` it."""
        return figure(self.title, self.body, over=over, remark=self.remark, key=self.key)


@dataclass(frozen=True)
class Drawing:
    """A registered picture: `attributes` and their numbers of axes, the function, and whether it belongs to the map."""

    draw: Callable[..., Picture | None]
    attributes: dict[str, int]
    beside_map: bool

    def __call__(self, model: Any, names: Names = None) -> Picture | None:
        """Return the picture, or None where the model is of another kind."""
        arrays = [array_of(model, name, ndim) for name, ndim in self.attributes.items()]
        return None if any(array is None for array in arrays) else self.draw(model, names, *arrays)


_registered: list[Drawing] = []


def picture(*, beside_map: bool = False, **attributes: int) -> Callable[[Callable[..., Picture | None]], Drawing]:
    """Register ``f(model, names, *arrays) -> Picture or None``, drawn for models that have certain attributes.

    Parameters
    ----------
    beside_map : bool, default=False
        Whether it stands in the map's own section, where the model has a map.
    **attributes : int
        The attributes that a model must have, as arrays with this number of axes, 0 for a number; `f` gets them in
        this order.

    Examples
    --------
    >>> @picture(example_=1)
    ... def example(model, names, values):
    ...     return Picture("Example", Html(f"<b>{values.sum():g}</b>"))
    >>> class Model:
    ...     example_ = [1.0, 2.0]
    >>> example(Model()).body, example(object())
    ('<b>3</b>', None)
    """

    def register(draw: Callable[..., Picture | None]) -> Drawing:
        _registered.append(Drawing(draw, attributes, beside_map))
        return _registered[-1]

    return register


def pictures_of(model: Any, names: Names = None, *, beside_map: bool | None = None) -> list[Picture]:
    """Return all pictures of a model; only those that belong to its map, or only the others, where this is given."""
    for module in iter_modules(import_module("fedspan.report.models").__path__):
        import_module(f"fedspan.report.models.{module.name}")
    # Whatever the order of imports, a page is the same.
    wanted = sorted(_registered, key=lambda drawing: drawing.draw.__module__)
    drawn = (drawing(model, names) for drawing in wanted if beside_map in (None, drawing.beside_map))
    return [one for one in drawn if one is not None]


def steps_of(model: Any) -> list[Any]:
    """Return the steps of a pipeline, or the model itself if it is not a pipeline."""
    named = getattr(model, "named_steps", None)
    if named is None:
        return [model]
    return [step for step in dict(named).values() if step is not None and not isinstance(step, str)]


def array_of(model: Any, name: str, ndim: int) -> Matrix | None:
    """Return an attribute as an array of numbers, or None where it does not exist or is something else."""
    value = getattr(model, name, None)
    if value is None:
        return None
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return array if array.ndim == ndim and array.size else None


def names_in(model: Any, before: Names) -> Names:
    """Return the names of a model's features: its own, or those of the results of the step before it."""
    own = getattr(model, "feature_names_in_", getattr(model, "names_before_", None))
    names = before if own is None or image_shape(before) is not None else [str(name) for name in own]
    return names if names is not None and len(names) == getattr(model, "n_features_in_", len(names)) else None


def names_out(model: Any, names: Names) -> Names:
    """Return the names of a model's results."""
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


def more_sites(sites: Sequence[str]) -> str:
    """Return the remark that not all sites are shown, where they are too many."""
    return f"{count(len(sites) - MOST_SITES)} more sites not shown." if len(sites) > MOST_SITES else ""


def pixel_names(shape: tuple[int, int]) -> list[str]:
    """Return the names of the columns of images (height, width)."""
    return [f"pixel_{i}_{j}" for i in range(shape[0]) for j in range(shape[1])]


def image_shape(names: Names) -> tuple[int, int] | None:
    """Return height and width where the columns are the pixels of an image, line by line, by their names."""
    last = _PIXEL.fullmatch(names[-1]) if names else None
    if names is None or last is None:
        return None
    shape = int(last[1]) + 1, int(last[2]) + 1
    return shape if shape[0] * shape[1] == len(names) and list(names) == pixel_names(shape) else None
