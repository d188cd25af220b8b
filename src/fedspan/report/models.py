"""The models' own pictures, chosen by what a fitted model has.

A new kind of model adds a function to `PICTURES`, which is the one place: from a model and the names of its features,
where these are known, to a picture, or to None where the model is of another kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.report.blocks import heat_map
from fedspan.report.charts import bar_chart
from fedspan.report.maps import BESIDE, cluster_sizes, landmark_mmd2, neighbourhoods
from fedspan.report.markup import Html, count, join, note, number, section, table
from fedspan.report.picture import Names, Picture
from fedspan.report.private_maps import density_of
from fedspan.report.svg import charts, figure

MOST_BARS = 40
MOST_COMPONENTS = 6
MOST_LOADINGS = 12
MOST_FEATURES = 12


def models_section(models: Sequence[Any], mapped: Any = None) -> Html:
    """Return the pictures of every model; of a pipeline, those of its steps.

    Those that stand beside the map of the model `mapped` are left out.
    """
    figures: list[Html] = []
    without: list[str] = []
    names: Names = None
    for model in (step for given in models for step in steps_of(given)):
        name = type(model).__name__
        names = _names_in(model, names)
        wanted = [picture for picture in PICTURES if model is not mapped or picture not in BESIDE]
        found = [drawn for picture in wanted if (drawn := picture(model, names)) is not None]
        names = _names_out(model, names)
        figures += [figure(title, body, over=name, remark=remark, key=key) for title, body, remark, key in found]
        without += [] if found or model is mapped else [name]
    rest = note(f"No picture for this kind of model: {', '.join(without)}.") if without else Html("")
    if mapped is not None and not figures:
        rest = join([rest, note(f"What {type(mapped).__name__} has to show is under Map.")])
    return section("models", "Models", charts(figures), rest, lead="What was learned.")


def explained_variance(model: Any, names: Names = None) -> Picture | None:
    """Draw the share of variance of each component, and of all up to it (``explained_variance_ratio_``)."""
    ratio = _array(model, "explained_variance_ratio_", 1)
    if ratio is None or not len(ratio):
        return None
    shown = ratio[:MOST_BARS]
    so_far = np.cumsum(shown)
    chart = bar_chart(
        shown.tolist(),
        [str(i + 1) for i in range(len(shown))],
        label="share of variance by component",
        x_label="component",
        line=so_far.tolist(),
        show=_percent,
    )
    bad = int(np.count_nonzero(~np.isfinite(ratio)))
    remark = f"{bad} not finite" if bad else f"{_percent(float(ratio.sum()))} in {count(len(ratio))} components"
    if len(ratio) > len(shown):
        remark += f"; the first {len(shown)} are shown"
    return Picture("Explained variance", chart, remark, [(0, "each"), (6, "all so far")])


def loadings(model: Any, names: Names = None) -> Picture | None:
    """Draw the largest loadings of the first components (``components_``, of shape (components, features))."""
    components = _array(model, "components_", 2)
    if components is None or not components.size:
        return None
    first = components[:MOST_COMPONENTS]
    sizes = np.where(np.isfinite(first), np.abs(first), 0.0)
    largest = np.argsort(-sizes.max(axis=0), kind="stable")[:MOST_LOADINGS]
    # Features of one component stand together, the largest first, so that the blocks can be seen.
    order = largest[np.lexsort((-sizes.max(axis=0)[largest], sizes.argmax(axis=0)[largest]))]
    shown = _shown_names(names, components.shape[1])
    chart = heat_map(
        first[:, order].T,
        [shown[j] for j in order],
        [str(i + 1) for i in range(len(first))],
        label="largest loadings by feature and component",
    )
    total = components.shape[1]
    remark = f"The {len(order)} of {count(total)} features with the largest loadings." if len(order) < total else ""
    return Picture("Loadings of the first components", chart, remark, [(0, "positive"), (6, "negative")])


def centre_and_scale(model: Any, names: Names = None) -> Picture | None:
    """List the mean and scale of the first features (``mean_`` and ``scale_``, either may be None) of a scaler."""
    if not (hasattr(model, "mean_") and hasattr(model, "scale_")) or hasattr(model, "components_"):
        return None
    columns = {name: _array(model, name, 1) for name in ("mean_", "scale_")}
    given = {name.rstrip("_"): values for name, values in columns.items() if values is not None}
    if not given:
        return None
    total = min(map(len, given.values()))
    shown = _shown_names(names, total)
    rows = [[shown[j], *(number(float(v[j])) for v in given.values())] for j in range(min(total, MOST_FEATURES))]
    remark = f"The first {MOST_FEATURES} of {count(total)} features." if total > MOST_FEATURES else ""
    return Picture("Centre and scale", table(["feature", *given], rows), remark)


def threshold(model: Any, names: Names = None) -> Picture | None:
    """List what a detector calls an outlier (``offset_``, ``quantile``)."""
    offset, quantile = getattr(model, "offset_", None), getattr(model, "quantile", None)
    if not isinstance(offset, float) or not isinstance(quantile, int | float):
        return None
    rows = [
        ["anomaly score above", number(-offset)],
        ["quantile of the training scores", number(float(quantile))],
        ["false alarms to expect among rows like those", _percent(1.0 - quantile)],
    ]
    score = getattr(model, "score", None)
    rows = [["score", score], *rows] if isinstance(score, str) else rows
    return Picture("What is an outlier", table(["what", "value"], rows))


def map_density(model: Any, names: Names = None) -> Picture | None:
    """Draw the density and the centres of a private map."""
    found = density_of(model)
    return None if found is None else Picture("Density of the map", *found)


PICTURES: list[Callable[[Any, Names], Picture | None]] = [
    explained_variance,
    loadings,
    centre_and_scale,
    threshold,
    landmark_mmd2,
    neighbourhoods,
    cluster_sizes,
    map_density,
]


def steps_of(model: Any) -> list[Any]:
    """Return the steps of a pipeline, or a model that is none."""
    named = getattr(model, "named_steps", None)
    if named is None:
        return [model]
    return [step for step in dict(named).values() if step is not None and not isinstance(step, str)]


def _array(model: Any, name: str, ndim: int) -> NDArray[np.float64] | None:
    """Return an attribute as an array of numbers, or None where it is not there or is something else."""
    value = getattr(model, name, None)
    if value is None:
        return None
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return array if array.ndim == ndim else None


def _names_in(model: Any, before: Names) -> Names:
    """Return the names of a model's features: its own, or what the step before it calls its results."""
    own = getattr(model, "feature_names_in_", None)
    names = before if own is None else [str(name) for name in own]
    return names if names is not None and len(names) == getattr(model, "n_features_in_", len(names)) else None


def _names_out(model: Any, names: Names) -> Names:
    try:
        return [str(name) for name in model.get_feature_names_out(names)]
    except (AttributeError, ValueError):
        return None


def _shown_names(names: Names, total: int) -> Sequence[str]:
    return names if names is not None and len(names) == total else [f"feature {j}" for j in range(total)]


def _percent(value: float) -> str:
    return f"{number(100 * value, 3)} %"
