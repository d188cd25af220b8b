"""The models' own pictures, chosen by what a fitted model has.

A new kind of model adds a function to `PICTURES`, which is the one place: from a model and the names of its features,
where these are known, to a picture, or to None where the model is of another kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fedspan.errors import InputError
from fedspan.report.charts.svg import charts, figure
from fedspan.report.markup import Html, count, join, note, number, section, table
from fedspan.report.models.cluster_pictures import (
    cluster_centres,
    cluster_models,
    eigenvalues,
    rows_by_cluster,
    sites_by_cluster,
)
from fedspan.report.models.density_map_pictures import density_of
from fedspan.report.models.detector_pictures import threshold, thresholds_by_site, training_history, training_scores
from fedspan.report.models.encoded_columns import encoded_columns
from fedspan.report.models.landmark_pictures import landmarks
from fedspan.report.models.map_pictures import BESIDE, cluster_sizes, landmark_mmd2, neighbourhoods
from fedspan.report.models.model_attributes import array_of, names_in, names_out, shown_names, steps_of
from fedspan.report.models.picture import Names, Picture
from fedspan.report.models.principal_components import explained_variance, loadings
from fedspan.report.models.site_weights import site_weights
from fedspan.report.models.task_pictures import of_a_new_task, representation, task_errors
from fedspan.report.sections.labelled_rows import Judged, is_detector, roc

MOST_COLUMNS = 12


def models_section(
    models: Sequence[Any], mapped: Any = None, *, judged: Judged | None = None, names: Names = None
) -> Html:
    """Return the pictures of every model; of a pipeline, those of its steps.

    Those that stand beside the map of the model `mapped` are left out. `names` are those of the columns, where models
    do not know them; rows to be `judged` pass through the models as rows of the training did.
    """
    figures: list[Html] = []
    without: list[str] = []
    steps = [step for given in models for step in steps_of(given)]
    if names is not None and (not steps or getattr(steps[0], "n_features_in_", None) != len(names)):
        raise InputError(f"image=... has {len(names)} pixels, and the first model must have as many columns")
    if judged is not None and not (steps and is_detector(steps[-1])):
        raise InputError("judged=... goes with a detector as the last of the models: no other has a threshold to judge")
    for model in steps:
        name = type(model).__name__
        names = names_in(model, names)
        found = pictures_of(model, names, mapped)
        if judged is not None and model is steps[-1]:
            found = [roc(model, judged), *found]
        elif judged is not None:
            judged = Judged(model.transform(judged.X), judged.outlier)
        names = names_out(model, names)
        figures += [figure(title, body, over=name, remark=remark, key=key) for title, body, remark, key in found]
        without += [] if found or model is mapped else [name]
    rest = note(f"No picture for this kind of model: {', '.join(without)}.") if without else Html("")
    if mapped is not None and not figures:
        rest = join([rest, note(f"What {type(mapped).__name__} has to show is under Map.")])
    return section("models", "Models", charts(figures), rest, lead="What was learned.")


def pictures_of(model: Any, names: Names = None, mapped: Any = None) -> list[Picture]:
    """Return what a model has to show, besides what stands beside its map."""
    wanted = [picture for picture in PICTURES if model is not mapped or picture not in BESIDE]
    return [drawn for picture in wanted if (drawn := picture(model, names)) is not None]


def centre_and_scale(model: Any, names: Names = None) -> Picture | None:
    """List the mean and scale of the first features (``mean_`` and ``scale_``, either may be None) of a scaler."""
    if not (hasattr(model, "mean_") and hasattr(model, "scale_")) or hasattr(model, "components_"):
        return None
    columns = {name: array_of(model, name, 1) for name in ("mean_", "scale_")}
    given = {name.rstrip("_"): values for name, values in columns.items() if values is not None}
    if not given:
        return None
    total = min(map(len, given.values()))
    shown = shown_names(names if total == getattr(model, "n_features_in_", total) else names_out(model, names), total)
    rows = [[shown[j], *(number(float(v[j])) for v in given.values())] for j in range(min(total, MOST_COLUMNS))]
    remark = f"The first {MOST_COLUMNS} of {count(total)} features." if total > MOST_COLUMNS else ""
    return Picture("Centre and scale", table(["feature", *given], rows), remark)


def map_density(model: Any, names: Names = None) -> Picture | None:
    """Draw the density and the centres of a private map."""
    found = density_of(model)
    return None if found is None else Picture("Density of the map", *found)


PICTURES: list[Callable[[Any, Names], Picture | None]] = [
    explained_variance,
    loadings,
    centre_and_scale,
    encoded_columns,
    training_scores,
    threshold,
    thresholds_by_site,
    training_history,
    representation,
    task_errors,
    of_a_new_task,
    cluster_models,
    sites_by_cluster,
    cluster_centres,
    rows_by_cluster,
    eigenvalues,
    landmarks,
    landmark_mmd2,
    neighbourhoods,
    cluster_sizes,
    map_density,
    site_weights,
]
