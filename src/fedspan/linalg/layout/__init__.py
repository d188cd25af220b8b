"""Two-dimensional maps: graphs, forces, descent and quality."""
