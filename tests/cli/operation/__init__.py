"""Tests of the commands of those who run a coordinator or a site."""
