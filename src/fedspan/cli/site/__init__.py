"""Commands for the owner of a site."""
