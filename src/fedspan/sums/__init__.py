"""Sums over rows that several capabilities share: columns, moments, quantiles, and the row transforms of fitted models."""
