"""Exact statistics of data that stay at their sites: what the pooled analysis gives, by sums."""

from __future__ import annotations

import importlib
from typing import Any

#: Every public name and the module that defines it: imported on first use.
_LATER = {
    "Crosstab": "describe.cross_counts",
    "Description": "describe.description",
    "Histogram": "describe.histograms",
    "Overview": "describe.table_overview",
    "PairTable": "describe.pair_statistics",
    "SiteDifferences": "describe.site_differences",
    "correlation": "describe.pair_statistics",
    "covariance": "describe.pair_statistics",
    "crosstab": "describe.cross_counts",
    "histogram": "describe.histograms",
    "log_rank": "survival.log_rank_test",
    "overview": "describe.table_overview",
    "site_differences": "describe.site_differences",
}

__all__ = sorted(_LATER)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(f"fedspan.statistics.{_LATER[name]}"), name)
    raise AttributeError(f"module 'fedspan.statistics' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LATER])
