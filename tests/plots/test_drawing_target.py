"""Pictures without matplotlib."""

from __future__ import annotations

import sys

import pytest

from fedspan.errors import MissingPackageError
from fedspan.plots.drawing_target import new_axes


def test_axes_without_matplotlib_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingPackageError, match=r"\.\[plots\]"):
        new_axes()
