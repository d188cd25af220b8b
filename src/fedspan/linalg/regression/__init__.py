"""Many small regressions at once: local steps, stacks of sites, least squares, matched models."""
