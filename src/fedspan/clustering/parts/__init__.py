"""Starts, assignments and guarded sums of k-means."""
