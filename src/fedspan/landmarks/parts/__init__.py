"""Kernel sums, noise and neighbour search behind the landmarks."""
