"""Exact statistics by sums: regressions, survival, adjustment for sites."""
