"""The report of a run: one HTML file that opens offline, in any browser, with nothing beside it."""

from __future__ import annotations

from fedspan.report.index import write_index
from fedspan.report.judged import Judged
from fedspan.report.page import write_report
from fedspan.report.scatter import Scatter

__all__ = ["Judged", "Scatter", "write_index", "write_report"]
