"""Gaussian kernels, distances by landmarks, nearest neighbours and nearest centres."""
