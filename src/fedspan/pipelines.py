"""Whole pipelines: keep learning from new rows, and write one file that runs without fedspan."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from typing import Any, TypeVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fedspan.anomaly.export.exported_detector import export as write_detector
from fedspan.anomaly.parts.explained_detector import ExplainedDetector
from fedspan.anomaly.parts.learning_detector import Watcher
from fedspan.arrays import Vector
from fedspan.errors import FedspanError, InputError
from fedspan.federation import Federation
from fedspan.sums.batches import mixed_columns
from fedspan.tables.encoder import FedTabularEncoder
from fedspan.tables.scaler import FedStandardScaler

Model = TypeVar("Model")

#: Times that a pipeline learns a batch again, because its steps have not seen the same sites.
_MOST_TRIES = 3


def partial_fit(
    model: Model,
    X: Any,
    *,
    sites: Any = None,
    decay: float = 1.0,
    half_life: float | str | timedelta | None = None,
    batch: str | None = None,
    at: str | float | datetime | None = None,
    monitor: Watcher | None = None,
) -> Model:
    """Let a pipeline, or a single estimator, keep learning from new rows alone; the first call is a fit.

    Each step learns from the batch as the steps before it show it by then. A scaler or an encoder that has moved its
    means and scales reports this to the steps behind it. They convert what they keep to the new units. So with
    ``decay=1`` the pipeline is that of all rows at once, if its steps are. A detector right behind an encoder also
    follows the means that stand for missing cells; other steps keep those of the time.

    Parameters
    ----------
    model : estimator or Pipeline
        Before its last step a pipeline may have `FedTabularEncoder` and `FedStandardScaler`.
    X : table (with ``sites``) or federation
        The new rows.
    decay, half_life, batch, at
        As of `FedPCA.partial_fit`. The rows of a site count in all steps, or in none.
    monitor : DriftMonitor, optional
        Of this pipeline: it compares the rows with its reference before the model learns from them.

    Examples
    --------
    >>> import fedspan as fs
    >>> from sklearn.pipeline import make_pipeline
    >>> X = np.random.default_rng(0).normal(size=(6000, 3)) * [1.0, 10.0, 100.0]
    >>> model = make_pipeline(fs.FedStandardScaler(), fs.FedPCADetector())
    >>> for rows in np.split(X, 6):
    ...     model = fs.partial_fit(model, rows)
    >>> bool(0.045 <= np.mean(model.predict(X) == -1) <= 0.055)  # 5 % were requested
    True
    """
    steps = _steps(model)
    if monitor is not None:
        monitor.watch(X, sites=sites, window=batch)
    options: dict[str, Any] = {"decay": decay, "half_life": half_life, "batch": batch, "at": at}
    if len(steps) == 1:
        steps[0].partial_fit(X, sites=sites, **options)
        return model
    before = [dict(vars(step)) for step in steps]
    for _ in range(_MOST_TRIES):
        try:
            whole, seen = _learn_steps(steps, X, sites, options), steps[-1].batch_sites_
        except BaseException:
            _restore(steps, before)
            raise
        if whole:
            return model
        _restore(steps, before)
        if not isinstance(X, Federation) or not seen:
            break
        X = X.subset(seen)
    raise FedspanError("the steps of the pipeline have not learned from the same sites: send the batch again")


def _learn_steps(steps: list[Any], X: Any, sites: Any, options: dict[str, Any]) -> bool:
    """Let each step learn; return whether all have counted the rows of the same sites."""
    for step, behind in zip(steps, [*steps[1:], None], strict=True):
        before = (*_units(step), step.mean_) if behind is not None and hasattr(step, "mean_") else None
        step.partial_fit(X, sites=sites, **options)
        if behind is None:
            break
        if before is not None:
            (mean, scale, fill), (new_mean, new_scale) = before, _units(step)
            behind._change_units(scale / new_scale, (mean - new_mean) / new_scale)
            if isinstance(step, FedTabularEncoder) and "moments_" in vars(behind):
                behind.moments_ = _filled_again(behind.moments_, step, (step.mean_ - fill) / new_scale)
        X = step.transform(X)
    return len({step.batch_sites_ for step in steps}) == 1


def _filled_again(kept: Vector, encoder: FedTabularEncoder, moved: Vector) -> Vector:
    """Return moments as if cells that were missing had the encoder's new means, which have `moved` in new units.

    The mark of a missing cell, 0 or 1, follows its number: so that is a linear map of the encoded columns.
    """
    mean, scale = _units(encoder)
    mixing, shift = np.eye(len(mean)), np.zeros(len(mean))
    marks = encoder._marks_of_numbers()
    mixing[marks - 1, marks] = moved[marks - 1] * scale[marks]
    shift[marks - 1] = moved[marks - 1] * mean[marks]
    return mixed_columns(kept, mixing, shift)


def _units(step: Any) -> tuple[Any, Any]:
    """Return mean and scale (D,) of the columns that a step returns: ``(x - mean) / scale``."""
    scaled = getattr(step, "with_std", getattr(step, "scale", True))
    centred = getattr(step, "with_mean", getattr(step, "scale", True))
    return step.mean_ if centred else np.zeros_like(step.mean_), step.scale_ if scaled else np.ones_like(step.mean_)


def _restore(steps: list[Any], before: list[dict[str, Any]]) -> None:
    for step, known in zip(steps, before, strict=True):
        vars(step).clear()
        vars(step).update(known)


def _steps(model: Any) -> list[Any]:
    """Return the steps of a pipeline, or the one estimator; refuse those that can't learn on."""
    steps = [step for _, step in model.steps] if hasattr(model, "steps") else [model]
    for step in steps:
        if not hasattr(step, "partial_fit") or not hasattr(step, "_change_units"):
            raise InputError(f"{type(step).__name__} does not learn on: it has no partial_fit of fedspan")
    for step in steps[:-1]:
        if not isinstance(step, FedTabularEncoder | FedStandardScaler):
            raise InputError(
                f"{type(step).__name__} before the last step of a pipeline can't learn on: only FedTabularEncoder and "
                "FedStandardScaler can"
            )
    return steps


def export(model: Any, path: str | os.PathLike[str], *, precision: str = "double") -> None:
    """Write a detector, or a pipeline that ends with one, to a file that runs without fedspan.

    Parameters
    ----------
    model : detector or Pipeline
        Before the detector a pipeline may have one `FedTabularEncoder`, as its first step, and `FedStandardScaler`.
    path : path
        ``detector.npz`` for ``fedspan gateway``, or ``detector.onnx`` (see `FedPCADetector.export`). With an encoder a
        gateway reads raw cells. An ONNX graph then has the inputs ``numbers`` (NaN where missing) and ``texts`` (empty
        where missing), with the columns that its properties of these names list.
    precision : {"double", "single"}, default="double"
        Of the input and the output of an ONNX file.
    """
    steps = [step for _, step in model.steps] if hasattr(model, "steps") else [model]
    if not isinstance(steps[-1], ExplainedDetector):
        raise InputError(
            f"export takes a detector, or a pipeline that ends with one, and no {type(steps[-1]).__name__}"
        )
    for number, step in enumerate(steps[:-1]):
        if not isinstance(step, FedStandardScaler) and not (number == 0 and isinstance(step, FedTabularEncoder)):
            raise InputError(
                f"export takes FedStandardScaler, and FedTabularEncoder as the first step, before a detector, and no "
                f"{type(step).__name__}"
            )
    for step in steps:
        check_is_fitted(step)
    write_detector(steps[-1], path, precision, before=steps[:-1])
