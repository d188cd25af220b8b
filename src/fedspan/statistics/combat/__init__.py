"""Adjustment for sites: location and scale of each column by site (ComBat)."""
