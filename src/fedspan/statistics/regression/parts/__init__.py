"""What the regressions share: rows of the design, families, Newton's method, tables of results."""
