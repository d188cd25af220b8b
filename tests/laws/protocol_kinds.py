"""Tells the protocols of a package from all else that is public in its files: everything there is one of four kinds.

A *step* is decorated. A *protocol* takes a federation first. A *part* takes one, too, or names a step, but is called by
a protocol, does not call the federation ``fed``, and is tested where it is called. All else, which neither takes a
federation nor names a step, is arithmetic. What fits nowhere says what to do.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from fedspan.errors import UnknownStepError
from fedspan.federation.site.steps import find_step

from .discovery import NeedsAnExampleError, modules_of


def public_in(package: ModuleType) -> dict[str, Any]:
    """Return the functions and classes that the files of a package define in public, by their short names."""
    return {
        f"{module.__name__.removeprefix(package.__name__).lstrip('.')}.{name}": thing
        for module in modules_of(package)
        for name, thing in inspect.getmembers(module, lambda value: inspect.isfunction(value) or inspect.isclass(value))
        if thing.__module__ == module.__name__ and not name.startswith("_")
    }


def functions_of(thing: Any) -> list[FunctionType]:
    """Return a function itself, or the methods of a class."""
    own = vars(thing).values() if inspect.isclass(thing) else [thing]
    plain = (inspect.unwrap(getattr(one, "__func__", getattr(one, "fget", one) or one)) for one in own)
    return [one for one in plain if inspect.isfunction(one)]


def named_by(thing: Any) -> Iterator[Any]:
    """Yield the functions and classes that the code of a function or a class names."""

    def names(code: CodeType) -> Iterator[str]:
        yield from code.co_names
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                yield from names(inner)

    for function in functions_of(thing):
        found = (function.__globals__.get(name) for name in names(function.__code__))
        yield from (one for one in found if inspect.isfunction(one) or inspect.isclass(one))


def reached_from(protocols: Iterable[Any], package: ModuleType) -> set[Any]:
    """Return what runs in the package when these protocols run."""
    seen, waiting = set(), list(protocols)
    while waiting:
        thing = waiting.pop()
        if thing not in seen and thing.__module__.startswith(package.__name__):
            seen.add(thing)
            waiting += named_by(thing)
    return seen


def is_step(thing: Any) -> bool:
    try:
        return find_step(thing).function is thing
    except UnknownStepError:
        return False


def takes_federation(parameter: inspect.Parameter) -> bool:
    return parameter.name in ("fed", "federation") or bool(re.search(r"Federation\b", str(parameter.annotation)))


def first_parameter(thing: Any) -> inspect.Parameter | None:
    return next(iter(inspect.signature(thing).parameters.values()), None) if inspect.isfunction(thing) else None


def is_arithmetic(thing: Any) -> bool:
    """Whether a function or class has nothing to do with sites, as far as its parameters and its code say.

    What does not say what it takes may take a federation.
    """
    first = first_parameter(thing)
    if first is not None and first.annotation is first.empty:
        return False
    taken = [one for function in functions_of(thing) for one in inspect.signature(function).parameters.values()]
    return not any(map(takes_federation, taken)) and not any(map(is_step, named_by(thing)))


def protocols_of(package: ModuleType) -> dict[str, Callable[..., Any]]:
    """Return every protocol by its short name, or refuse what may be one and does not look like it."""
    asking = {
        name: thing for name, thing in public_in(package).items() if not is_step(thing) and not is_arithmetic(thing)
    }
    named = {thing for thing in asking.values() if (first := first_parameter(thing)) and first.name == "fed"}
    parts = reached_from(named, package) - named
    found = {name: thing for name, thing in asking.items() if thing not in parts}
    for thing in found.values():
        first = first_parameter(thing)
        if first is None or not takes_federation(first):
            raise NeedsAnExampleError(
                f"{thing.__module__}.{thing.__qualname__} is public, and neither a protocol nor a part of one nor "
                "arithmetic: a protocol is a function whose first parameter is 'fed', the federation; a part is called "
                "by a protocol; and arithmetic says with the annotation of its first parameter what it takes"
            )
    return found
