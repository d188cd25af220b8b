"""What a result depends on, beside the versions of packages."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from fedspan.federation import versions


@pytest.mark.parametrize(
    ("lines", "said"),
    [("processor\t: 0\nmodel name\t: A Processor @ 3 GHz\n", "A Processor @ 3 GHz"), ("Hardware\t: board\n", "kind")],
)
def test_the_processor_is_named_by_its_model_or_else_by_its_kind(monkeypatch, lines, said):
    monkeypatch.setattr(Path, "read_text", lambda self: lines)
    monkeypatch.setattr(platform, "processor", lambda: "kind")
    assert versions.processor.__wrapped__() == said
