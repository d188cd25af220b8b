"""Many small regressions at once: local steps in closed form, and stacked least squares."""
