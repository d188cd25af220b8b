"""The coordinator's side of a remote federation."""
