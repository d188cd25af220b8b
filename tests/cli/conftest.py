"""What the tests of the command line share."""

from __future__ import annotations

import pytest

from fedspan import progress


@pytest.fixture(autouse=True)
def no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print no progress, which depends on how busy the machine is."""
    monkeypatch.setattr(progress, "PATIENCE", 3600.0)
