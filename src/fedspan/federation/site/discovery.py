"""Discovery of installed steps: import all modules of the rooms that define them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from fedspan.errors import InputError, MissingPackageError
from fedspan.federation.site.steps import Step, installed_steps
from fedspan.federation.versions import EXTRAS

#: Packages of fedspan that define no steps: what stands above or below the rooms.
_OTHERS = {
    *("aggregation", "attacks", "audit", "cli", "datasets", "durable", "engines", "federation", "linalg", "owner"),
    *("gateway", "papers", "plots", "report", "tracking"),
}
#: All other packages of fedspan, by name: a lower layer does not import them. A new room is among them.
ROOMS = tuple(
    f"fedspan.{module.name}"
    for module in pkgutil.iter_modules([str(Path(__file__).parents[2])])
    if module.ispkg and module.name not in _OTHERS
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
                missing = (error.name or "").partition(".")[0]
                if missing not in EXTRAS or find_spec(missing) is not None:
                    raise
    for name in own:
        try:
            importlib.import_module(name)
        except Exception as error:  # the module is the owner's own
            raise InputError(f"the module {name!r} cannot be imported: {type(error).__name__}: {error}") from None
    return installed_steps()
