"""Pictures of fitted models: an interactive page that opens offline, or matplotlib axes."""

from __future__ import annotations

from fedspan.plots.component_plot import plot_components
from fedspan.plots.map_plot import plot_map
from fedspan.plots.score_plot import plot_scores

__all__ = ["plot_components", "plot_map", "plot_scores"]
