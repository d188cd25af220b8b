"""What decides the bits of a result besides the data: versions and processor, and which steps are installed."""

from __future__ import annotations

import importlib
import pkgutil
import platform
from collections.abc import Iterable
from functools import cache

from fedspan.errors import MissingPackageError
from fedspan.federation.site.steps import installed_steps
from fedspan.federation.versions import processor, version_of

_PACKAGES = ("numpy", "scipy", "scikit-learn")
#: Where the steps of this package are. (By name: an engine does not import what it carries.)
STEPS = ("fedspan.protocols", "fedspan.secure_sum")


@cache
def fedspan_version() -> str:
    """Return the version of fedspan: both sides of a call must have the same."""
    return version_of("fedspan")


@cache
def environment() -> dict[str, str]:
    """Return what the last bits of a result depend on, besides fedspan itself."""
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    found |= {name: version_of(name) for name in _PACKAGES}
    return found | {"processor": processor()}


def differences(theirs: dict[str, str]) -> list[str]:
    """Say in words how another environment differs from this one."""
    mine = environment()
    return [f"{name} {theirs.get(name)} (here {mine[name]})" for name in mine if theirs.get(name) != mine[name]]


def install_steps(packages: Iterable[str] = STEPS) -> tuple[str, ...]:
    """Import all modules of these packages, and return the names of the steps that are now installed."""
    for package in packages:
        loaded = importlib.import_module(package)
        for module in pkgutil.iter_modules(getattr(loaded, "__path__", ())):
            try:
                importlib.import_module(f"{package}.{module.name}")
            except (MissingPackageError, ModuleNotFoundError):
                continue  # its steps are not installed here
    return installed_steps()
