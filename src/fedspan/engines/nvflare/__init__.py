"""Sites on other machines, reached through NVIDIA FLARE: the only folder that imports it, and only when used."""
