"""The base of the survival models: targets are a time and an event."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from fedspan.base import FedEstimator
from fedspan.checks import as_table
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.statistics.survival.event_counts import checked_target


class FedSurvival(FedEstimator):
    """Base of the survival models."""

    learns_target = True

    def _target(self, X: Any, y: Any) -> Any:
        """Return the targets of a table as two columns; a federation has its own."""
        return y if isinstance(X, Federation) else checked_target(y, np.shape(as_table(X))[0])

    def _validated(self, X: Any, *, reset: bool = False, **checks: Any) -> Any:
        if not self.takes_text:
            return super()._validated(X, reset=reset, **checks)
        if isinstance(X, Federation):
            raise InputError("X is a federation, and a table of rows is needed here: its rows stay at their sites")
        if hasattr(X, "iloc") and hasattr(X, "columns"):
            validate_data(self, X, reset=reset, skip_check_array=True)
            return X
        return validate_data(self, as_table(X), reset=reset, dtype=None, **{**checks, "ensure_all_finite": False})

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = tags.target_tags.two_d_labels = True
        if self.takes_text:
            tags.input_tags.allow_nan = tags.input_tags.string = True
        return tags
