"""Trackers of runs: what a run does, sent to MLflow or TensorBoard while it goes on."""

from __future__ import annotations

from fedspan.tracking.mlflow_observer import MlflowObserver, mlflow_observer
from fedspan.tracking.tensorboard_observer import TensorboardObserver, tensorboard_observer

__all__ = ["MlflowObserver", "TensorboardObserver", "mlflow_observer", "tensorboard_observer"]
