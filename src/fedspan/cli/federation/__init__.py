"""Commands for real federations."""
