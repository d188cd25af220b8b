"""Which steps a protocol or an estimator may ask for: read off the names that its code uses, nothing is run."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

from fedspan import estimators, protocols
from fedspan.federation.site.steps import dotted_name, find_step, installed_steps


@cache
def known_estimators() -> dict[str, frozenset[str]]:
    """Return the steps that each estimator may ask for, whatever its parameters."""
    kinds = {name: getattr(estimators, name) for name in estimators.__all__ if name.startswith(("Fed", "Local"))}
    return {name: needed_steps(kind) for name, kind in sorted(kinds.items())}


@cache
def known_protocols() -> dict[str, frozenset[str]]:
    """Return the steps that each public protocol of fedspan may ask for."""
    found = {}
    for module in pkgutil.iter_modules(protocols.__path__):
        loaded = importlib.import_module(f"{protocols.__name__}.{module.name}")
        for name, function in inspect.getmembers(loaded, inspect.isfunction):
            first = next(iter(inspect.signature(function).parameters), None)
            if function.__module__ == loaded.__name__ and first == "fed" and not name.startswith("_"):
                found[f"{module.name}.{name}"] = needed_steps(function)
    return found


def needed_steps(thing: Callable[..., Any]) -> frozenset[str]:
    """Return the steps that a function or a class leads to: all that any of its branches could ask for.

    Examples
    --------
    >>> from fedspan.pca.covariance import covariance_pca
    >>> sorted(name.rpartition(".")[2] for name in needed_steps(covariance_pca))
    ['local_gram', 'local_phi']
    """
    known = frozenset(name for name in installed_steps() if not name.startswith("fedspan.federation."))
    steps: set[str] = set()
    seen: set[int] = set()
    waiting: list[Any] = [thing]
    while waiting:
        found = waiting.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found, str):
            steps |= {found} & known
        elif isinstance(found, FunctionType) and _is_step(found, known):
            steps.add(dotted_name(found))
        elif isinstance(found, FunctionType) and _is_ours(found):
            waiting += _used(found.__code__, found.__globals__)
        elif isinstance(found, type):
            waiting += [value for kind in found.__mro__ if _is_ours(kind) for value in vars(kind).values()]
        elif isinstance(found, dict):
            waiting += list(found.values())
        elif isinstance(found, list | tuple):
            waiting += list(found)
        elif isinstance(found, property):
            waiting += [found.fget]
        elif isinstance(found, classmethod | staticmethod):
            waiting += [found.__func__]
        elif hasattr(found, "__wrapped__"):
            waiting += [found.__wrapped__]
    return frozenset(steps)


def _used(code: CodeType, names: dict[str, Any]) -> Iterator[Any]:
    """Yield what a function's code names: globals, attributes of modules, imports of its own, and texts."""
    modules: list[ModuleType] = []
    for name in code.co_names:
        if name in names:
            value = names[name]
            if isinstance(value, ModuleType):
                modules.append(value)
            else:
                yield value
        elif name.startswith("fedspan."):
            modules.append(importlib.import_module(name))
    for module in modules:
        if module.__name__.startswith("fedspan."):
            yield from (getattr(module, name) for name in code.co_names if hasattr(module, name))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _used(constant, names)
        elif isinstance(constant, str):
            yield constant


def _is_step(function: FunctionType, known: frozenset[str]) -> bool:
    name = dotted_name(function)
    return name in known and find_step(name).function is function


def _is_ours(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).startswith("fedspan.")
