"""Finds what is to be tested, and makes it, without anybody's list.

What has a default for each of its parameters, or calls them what the others call them, is made as it is found. What
cannot be made that way needs an example, and says so.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Collection, Iterator, Mapping
from types import ModuleType
from typing import Any


class NeedsAnExampleError(AssertionError):
    """Something that was found cannot be made without help; the words say where to give it."""


def modules_of(package: ModuleType) -> Iterator[ModuleType]:
    """Yield a package and all modules below it, at any depth; a folder that cannot be imported here says so itself."""
    yield package
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        yield importlib.import_module(found.name)


def public_classes(package: ModuleType, wanted: Callable[[type], bool]) -> dict[str, type]:
    """Return the wanted classes by name that the modules of a package define: public, and not abstract."""
    return {
        name: kind
        for module in modules_of(package)
        for name, kind in inspect.getmembers(module, inspect.isclass)
        if kind.__module__ == module.__name__ and not name.startswith("_")
        if not inspect.isabstract(kind) and not getattr(kind, "_is_protocol", False) and wanted(kind)
    }


def name_of(thing: Any) -> str:
    """Return what a function or an object is called, the same in every process."""
    if inspect.isfunction(thing) or type(thing).__repr__ is object.__repr__:
        return str(getattr(thing, "__qualname__", type(thing).__qualname__))
    return repr(thing)


def can_be_called(thing: Any) -> bool:
    """Whether a thing can be called, or, of a class, whether its instances can."""
    return any("__call__" in vars(base) for base in thing.__mro__) if inspect.isclass(thing) else callable(thing)


def callables_of(package: ModuleType, others: Collection[str], table: str) -> dict[str, Any]:
    """Return all that a package exports, whatever it looks like, and its public classes of what can be called.

    `others` are the names that it exports beside, and `table` is where they are.
    """
    found: dict[str, Any] = {name: getattr(package, name) for name in package.__all__ if name not in others}
    for name, thing in found.items():
        if not can_be_called(thing):
            raise NeedsAnExampleError(
                f"{package.__name__}.{name} is exported, and cannot be called as the others are: "
                f"if it is none of them, add its name to {table}"
            )
    return found | public_classes(package, can_be_called)


def arguments(function: Callable[..., Any], usual: Mapping[str, Any], table: str) -> dict[str, Any]:
    """Return an argument for each parameter that has no default, the `usual` one for its name.

    `table` is where an example can be given where there is no usual one.
    """
    wanted = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    ]
    unknown = [name for name in wanted if name not in usual]
    if unknown:
        raise NeedsAnExampleError(
            f"{function.__module__}.{function.__qualname__} cannot be tested by itself: nothing is known of its "
            f"{', '.join(unknown)}. Give a default, use one of the usual names ({', '.join(sorted(usual))}), or add an "
            f"example to {table}"
        )
    return {name: usual[name] for name in wanted}


def check_exported(found: Mapping[str, Any], package: ModuleType) -> None:
    """Compare what a package's modules define with what the package says it has."""
    for name, kind in found.items():
        assert name in package.__all__, f"{kind.__module__}.{name} is not in __all__ of {package.__name__}"
        assert getattr(package, name) is kind
