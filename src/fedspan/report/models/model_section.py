"""The section on models: the pictures of every fitted model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedspan.errors import InputError
from fedspan.report.charts.svg import charts
from fedspan.report.markup import Html, PageSection, join, note, section
from fedspan.report.models.labelled_rows import Judged, is_detector, roc
from fedspan.report.models.picture import Names, names_in, names_out, pictures_of, steps_of


def models_section(
    models: Sequence[Any], mapped: Any = None, *, judged: Judged | None = None, names: Names = None
) -> PageSection:
    """Return the pictures of every model; of a pipeline, those of its steps.

    Pictures that stand beside the map of the model `mapped` are left out. `names` are those of the columns, where
    models do not know them. Rows to be `judged` pass through the models as rows of the training did.
    """
    figures: list[Html] = []
    without: list[str] = []
    steps = [step for model in models for step in steps_of(model)]
    if names is not None and (not steps or getattr(steps[0], "n_features_in_", None) != len(names)):
        raise InputError(f"image=... has {len(names)} pixels, and the first model must have as many columns")
    if judged is not None and not (steps and is_detector(steps[-1])):
        raise InputError("judged=... goes with a detector as the last of the models: no other has a threshold")
    for model in steps:
        name = type(model).__name__
        names = names_in(model, names)
        found = pictures_of(model, names, beside_map=False if model is mapped else None)
        if judged is not None and model is steps[-1]:
            found = [roc(model, judged), *found]
        elif judged is not None:
            judged = Judged(model.transform(judged.X), judged.outlier)
        names = names_out(model, names)
        figures += [one.figure(over=name) for one in found]
        without += [] if found or model is mapped else [name]
    rest = [note(f"No picture for this kind of model: {', '.join(without)}.")] if without else []
    if mapped is not None and not figures:
        rest.append(note(f"The pictures of {type(mapped).__name__} are under Map."))
    return section("models", "Models", charts(figures), join(rest), lead="What was learned.")
