"""The site's side of a remote federation."""
