"""Choose models on data that stay at their sites: cross-validation and grid search, with scores from sums."""

from __future__ import annotations

from fedspan.model_selection.cross_validation import cross_validate
from fedspan.model_selection.folds import RowFolds, SiteFolds
from fedspan.model_selection.grid_search import GridSearch, grid_search

__all__ = ["GridSearch", "RowFolds", "SiteFolds", "cross_validate", "grid_search"]
