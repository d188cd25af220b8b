"""The server's side of a federation over NVIDIA FLARE."""
