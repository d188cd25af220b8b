"""Anomaly detectors: by principal components, per site, and by trained networks."""
