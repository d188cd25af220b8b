"""Describe data that stay at their sites: moments, quantiles, counts, correlations, and what differs."""
