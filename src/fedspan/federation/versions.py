"""What a result depends on: versions of Python and packages, kind of processor, number of BLAS threads."""

from __future__ import annotations

import platform
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

#: What every result depends on.
ALWAYS = ("fedspan", "numpy", "scipy", "scikit-learn")
#: Optional modules and their packages: a process that has loaded one may have used it.
EXTRAS = {
    "array_api_compat": "array-api-compat",
    "cryptography": "cryptography",
    "dp_accounting": "dp-accounting",
    "nvflare": "nvflare",
    "openTSNE": "openTSNE",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
    "pynndescent": "pynndescent",
    "sqlalchemy": "SQLAlchemy",
    "torch": "torch",
    "umap": "umap-learn",
}
_PYTHON = platform.python_version()
#: The keys beside those of versions.
PROCESSOR, THREADS = "processor", "BLAS threads"


def versions() -> dict[str, str]:
    """Return versions, processor and BLAS threads, which decide the last bits; no name of the machine.

    Of the optional packages it has those that this process has loaded.

    Examples
    --------
    >>> list(versions())[:5]
    ['python', 'fedspan', 'numpy', 'scipy', 'scikit-learn']
    """
    loaded = [package for module, package in EXTRAS.items() if module in sys.modules]
    found = {package: version_of(package) for package in (*ALWAYS, *loaded)}
    threads = blas_threads()
    found |= {PROCESSOR: processor()} | ({} if threads is None else {THREADS: str(threads)})
    return {"python": _PYTHON, **found}


@cache
def version_of(package: str) -> str:
    """Return the version of a package, or ``"not installed"``."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


@cache
def processor() -> str:
    """Return the kind of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return model or platform.processor() or platform.machine()


def blas_threads() -> int | None:
    """Return the largest number of threads that a BLAS of this process uses now.

    ``None`` before threadpoolctl is loaded, which the engines do.
    """
    if "threadpoolctl" not in sys.modules:
        return None
    return max((int(library["num_threads"]) for library in _blas().info()), default=None)


@cache
def _blas() -> Any:
    return sys.modules["threadpoolctl"].ThreadpoolController().select(user_api="blas")
