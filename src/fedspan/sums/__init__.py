"""Sums over rows that several capabilities share: columns, moments, quantiles, and transforms of fitted models."""
