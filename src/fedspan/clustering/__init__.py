"""Clusters of rows: k-means by sums, and spectral clustering by landmarks."""
