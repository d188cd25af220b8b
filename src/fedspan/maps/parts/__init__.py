"""Centres, noise, placement and rounds behind the maps."""
