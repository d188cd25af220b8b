"""Two-dimensional maps of rows: t-SNE and UMAP by landmarks, by sums alone, and by centres."""
