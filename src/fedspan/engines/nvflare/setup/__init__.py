"""Kits, and the processes of coordinator and sites."""
