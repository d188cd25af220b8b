"""The command line."""

from __future__ import annotations

from fedspan.cli.main import main

__all__ = ["main"]
