"""Heavy packages that tests import when they run, so that collecting them takes no time."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import pytest


def needs(name: str) -> pytest.MarkDecorator:
    """Return the mark of tests that are skipped where a package is not installed."""
    return pytest.mark.skipif(find_spec(name) is None, reason=f"needs {name}, which is not installed")


class Late:
    """Stands for a package, and imports it when it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):  # pytest looks for marks and wrapped functions in all that a module holds
            raise AttributeError(name)
        return getattr(import_module(self._name), name)
