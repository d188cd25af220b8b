"""The report of a run: one self-contained HTML file that opens offline, in any browser."""

from __future__ import annotations

from fedspan.report.atlas_page import write_atlas_page
from fedspan.report.drift_page import write_drift_page
from fedspan.report.live_page import LivePage
from fedspan.report.models.labelled_rows import Judged
from fedspan.report.models.scatter_map import Scatter
from fedspan.report.page import write_index, write_report

__all__ = ["Judged", "LivePage", "Scatter", "write_atlas_page", "write_drift_page", "write_index", "write_report"]
