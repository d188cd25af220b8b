"""Forces, graphs, placement and quality of two-dimensional maps."""
