"""fedspan."""
