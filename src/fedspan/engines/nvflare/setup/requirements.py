"""Say what to install where NVIDIA FLARE is missing."""

from __future__ import annotations

from importlib.util import find_spec

from fedspan.errors import MissingPackageError


def needs_nvflare() -> None:
    """Raise unless NVIDIA FLARE is installed."""
    if find_spec("nvflare") is None:
        raise MissingPackageError("real federations need NVIDIA FLARE: pip install fedspan[nvflare]")
