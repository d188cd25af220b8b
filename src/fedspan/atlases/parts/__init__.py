"""Batches of rows, soft clusters, and reading cells."""
