"""A user's side of a federation over NVIDIA FLARE."""
