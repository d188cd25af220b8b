"""Geometric medians of vectors and of subspaces, with a proven certificate."""
