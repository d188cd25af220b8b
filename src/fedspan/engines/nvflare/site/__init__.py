"""A site's side of a federation over NVIDIA FLARE."""
