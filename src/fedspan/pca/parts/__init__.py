"""What several PCA protocols share."""
