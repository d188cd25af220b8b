"""Discovery of installed steps: import all modules of the rooms that define them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable

from fedspan.errors import InputError, MissingPackageError
from fedspan.federation.site.steps import Step, installed_steps
from fedspan.federation.versions import EXTRAS

#: The packages of fedspan whose modules define steps and transforms, by name: a lower layer does not import them.
ROOMS = (
    "fedspan.anomaly",
    "fedspan.clustering",
    "fedspan.few_shot",
    "fedspan.landmarks",
    "fedspan.maps",
    "fedspan.mixed_regression",
    "fedspan.pca",
    "fedspan.privacy",
    "fedspan.secure_sum",
    "fedspan.sums",
    "fedspan.tables",
)


def install_steps(packages: Iterable[str] = ROOMS, own: Iterable[str] = ()) -> dict[str, Step]:
    """Import all modules of `packages`, at any depth, and the modules `own`; return the steps that are now installed.

    A module that needs an optional package which is not installed is left out. Any other failing import is an error.
    """
    for package in packages:
        loaded = importlib.import_module(package)
        for module in pkgutil.walk_packages(getattr(loaded, "__path__", ()), f"{package}."):
            try:
                importlib.import_module(module.name)
            except MissingPackageError:
                continue
            except ModuleNotFoundError as error:
                if (error.name or "").partition(".")[0] not in EXTRAS:
                    raise
    for name in own:
        try:
            importlib.import_module(name)
        except Exception as error:  # the module is the owner's own
            raise InputError(f"the module {name!r} cannot be imported: {type(error).__name__}: {error}") from None
    return installed_steps()
