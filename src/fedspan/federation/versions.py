"""The versions that a result depends on: Python, fedspan and what it stands on, and the extras that were loaded."""

from __future__ import annotations

import platform
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version

#: What every result depends on.
ALWAYS = ("fedspan", "numpy", "scipy", "scikit-learn")
#: Modules of extras and the packages that they come from. A process that has loaded one may have used it.
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


def versions() -> dict[str, str]:
    """Return the versions of Python, of what every result depends on, and of the extras that this process has loaded.

    Examples
    --------
    >>> list(versions())[:5]
    ['python', 'fedspan', 'numpy', 'scipy', 'scikit-learn']
    """
    loaded = [package for module, package in EXTRAS.items() if module in sys.modules]
    found = {package: version_of(package) for package in (*ALWAYS, *loaded)}
    return {"python": platform.python_version(), **found}


@cache
def version_of(package: str) -> str:
    """Return the version of an installed package, or say that it is not."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
