"""Atlases across sites whose instruments differ: effects of batches, clusters, maps and marker genes, by sums."""
