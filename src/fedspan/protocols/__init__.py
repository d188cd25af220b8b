"""The algorithms: one file each, both sides of it, in the paper's order."""
