"""Write a detector to a file that runs without fedspan: plain arrays for gateways, or ONNX."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from fedspan.anomaly.parts.isolation_trees import isolation_gains
from fedspan.anomaly.parts.recalibration import sketch_edges
from fedspan.arrays import Array
from fedspan.checks import one_of
from fedspan.errors import InputError
from fedspan.gateway.cell_encoder import PREFIX
from fedspan.gateway.scorer import FORMAT, Scorer

if TYPE_CHECKING:
    from fedspan.anomaly.parts.explained_detector import ExplainedDetector


#: Attributes that are new objects when a detector has learned on; and what scores single rows of detectors.
_LEARNED = ("mean_", "scale_", "centers_", "features_", "cuts_", "leaf_counts_", "score_counts_", "score_edges_")
_SCORERS: WeakKeyDictionary[Any, tuple[tuple[Any, ...], Scorer]] = WeakKeyDictionary()


def export(
    detector: ExplainedDetector,
    path: str | os.PathLike[str],
    precision: str = "double",
    before: Sequence[Any] = (),
    threshold: float | None = None,
) -> None:
    """Write a fitted detector to ``.npz`` (for ``fedspan gateway``) or ``.onnx``, with the steps `before` it.

    A `threshold` takes the place of the detector's own.
    """
    one_of("precision", precision, ("double", "single"))
    target = Path(path)
    if target.suffix not in (".npz", ".onnx"):
        raise InputError(f"{target} must end in .npz, for 'fedspan gateway', or in .onnx")
    if not target.parent.is_dir():
        raise InputError(f"the folder {target.parent} does not exist: make it first")
    arrays: dict[str, Any] = {**gateway_arrays(detector), **_before(before, detector)}
    if threshold is not None:
        arrays["threshold"] = np.asarray(threshold)
    if target.suffix == ".npz":
        with target.open("wb") as file:
            np.savez_compressed(file, **arrays)
        return
    from fedspan.anomaly.export.onnx_detector import onnx_model

    target.write_bytes(onnx_model(arrays, precision))


def gateway_arrays(detector: ExplainedDetector) -> dict[str, Array]:
    """Return what `fedspan.gateway.scorer.Scorer` needs."""
    parameters = {name: value for name, value in detector._score_transform()[1].items() if value is not None}
    parameters.pop("growth", None)
    if "features" in parameters:
        known: Any = detector
        parameters["gains"] = isolation_gains(known.leaf_counts_, known.n_samples_, subsample=known.subsample_)
        parameters["features"] = parameters["features"].astype(np.int32)
    if hasattr(detector, "_ranks"):
        parameters |= detector._ranks()
    d = detector.n_features_in_
    columns = detector._names() or tuple(f"feature {j}" for j in range(d))
    edges = getattr(detector, "sketch_edges_", sketch_edges(-detector.offset_)[0])
    about = {"format": FORMAT, "threshold": -detector.offset_, "columns": np.array(columns, dtype=str)}
    return {name: np.asarray(value) for name, value in {**about, "sketch_edges": edges, **parameters}.items()}


def one_row_scorer(detector: ExplainedDetector) -> Scorer:
    """Return what scores single rows of a fitted detector; it is made again when the detector has learned on."""
    learned = tuple(vars(detector).get(name) for name in _LEARNED)
    made, scorer = _SCORERS.get(detector, ((), None))
    if scorer is None or len(made) != len(learned) or any(a is not b for a, b in zip(made, learned, strict=True)):
        scorer = Scorer(gateway_arrays(detector))
        _SCORERS[detector] = (learned, scorer)
    return scorer


def _before(steps: Sequence[Any], detector: ExplainedDetector) -> dict[str, Array]:
    """Return the arrays of an encoder, and the shift and unit (d,) of all scalers together."""
    if not steps:
        return {}
    encoder = steps[0] if hasattr(steps[0], "categories_") else None
    d = detector.n_features_in_
    shift, unit = np.zeros(d), np.ones(d)
    for scaler in steps if encoder is None else steps[1:]:
        shift = shift + unit * (scaler.mean_ if scaler.with_mean else 0.0)
        unit = unit * (scaler.scale_ if scaler.with_std else 1.0)
    found: dict[str, Any] = {"shift": shift, "unit": unit}
    if encoder is None:
        columns = steps[0]._names() or tuple(f"feature {j}" for j in range(d))
        return {**found, "columns": np.array(columns, dtype=str)}
    parameters = encoder._encoding.parameters(encoder.mean_, encoder.scale_)
    names = [text for known in encoder.categories_.values() for text in known]
    parameters |= {"names": np.array(names, dtype=str), "columns": np.array(encoder._columns(), dtype=str)}
    own = {f"{PREFIX}{name}": np.asarray(value) for name, value in parameters.items() if value is not None}
    return {**found, **own, "columns": np.array(encoder.get_feature_names_out().tolist(), dtype=str)}
