"""The report of a run: one HTML file that opens offline, in any browser, with nothing beside it."""

from __future__ import annotations

from fedspan.report.models.scatter_map import Scatter
from fedspan.report.page import write_report
from fedspan.report.report_index import write_index
from fedspan.report.sections.labelled_rows import Judged

__all__ = ["Judged", "Scatter", "write_index", "write_report"]
