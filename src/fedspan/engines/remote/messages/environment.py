"""What decides the bits of a result besides the data: versions and processor."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import cache

from fedspan.federation.versions import processor, version_of

_PACKAGES = ("numpy", "scipy", "scikit-learn")


def fedspan_version() -> str:
    """Return the version of fedspan: both sides of a call must have the same."""
    return version_of("fedspan")


@cache
def environment() -> dict[str, str]:
    """Return what the last bits of a result depend on, besides fedspan itself."""
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    found |= {name: version_of(name) for name in _PACKAGES}
    return found | {"processor": processor()}


def differences(theirs: Mapping[str, str]) -> list[str]:
    """Return how another environment differs from this one, in a few words for each difference."""
    mine = environment()
    return [f"{name} {theirs.get(name)} (here {mine[name]})" for name in mine if theirs.get(name) != mine[name]]
