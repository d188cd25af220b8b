"""Reading cells, column kinds, category names and heavy tails."""
