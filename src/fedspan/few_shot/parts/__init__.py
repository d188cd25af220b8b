"""Tasks, starts, steps and coefficients behind AltGDmin."""
