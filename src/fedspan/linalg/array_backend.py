"""Arrays of numpy and tensors of torch, on a CPU or a GPU, through one interface: the array API.

numpy is the default and needs nothing else. Devices have their torch names (``"cuda"``, ``"cuda:1"``, ``"cpu"``) and
need torch and array-api-compat (extra ``gpu``), which are imported on first use.
"""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError, MissingPackageError

Array = Any  # of numpy, or of any library that follows the array API


def namespace(array: Array) -> Any:
    """Return the module whose functions take `array`: numpy itself for its own arrays."""
    return np if isinstance(array, np.ndarray) else _package("array_api_compat").array_namespace(array)


def on_processor(array: Array) -> bool:
    """Return whether an array is in the CPU's memory, where small blocks stay in its cache."""
    return isinstance(array, np.ndarray) or str(array.device) == "cpu"


def to_device(array: NDArray[Any], device: str | None) -> Array:
    """Return a tensor on `device` with the values of an array; None: the array itself."""
    if device is None:
        return array
    torch = _package("torch")
    if device.startswith("cpu"):
        return torch.tensor(array, device=device)  # a copy: torch can't share read-only memory
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # it is only read
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)


def to_numpy(array: Array) -> NDArray[Any]:
    """Return a numpy array with the values of any array."""
    return array if isinstance(array, np.ndarray) else np.asarray(array.cpu().numpy())


def check_device(device: object) -> None:
    """Refuse a device that does not exist on this machine."""
    if device is None:
        return
    if not isinstance(device, str):
        raise InputError(f"device={device!r} must be None (numpy) or the name of a torch device such as 'cuda'")
    torch = _package("torch")
    _package("array_api_compat")
    try:
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"device={device!r} is not available: {reason}; None computes with numpy") from None


def device_here(device: str | None) -> str | None:
    """Return `device`, or None (numpy) on a machine that does not have it."""
    try:
        check_device(device)
    except (InputError, MissingPackageError):
        return None
    return device


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingPackageError(
            f'device=... needs {error.name}, which is not installed: pip install ".[gpu]" in a checkout'
        ) from None
