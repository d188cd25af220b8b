"""Lenses: transforms that a federation's sites apply to their own data before a step sees it.

A fitted transformer's ``transform(federation)`` gives a federation with one more lens. Like a step, a lens is an
installed function known by its dotted name; only its parameters travel, with every call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar

from numpy.typing import NDArray

from fedspan.errors import UnknownStepError
from fedspan.federation.step import dotted_name
from fedspan.wire import Message, canonical, encode

F = TypeVar("F", bound=Callable[..., NDArray[Any]])

_installed: dict[str, Callable[..., NDArray[Any]]] = {}


def lens(function: F) -> F:
    """Register ``f(X, **parameters) -> X`` as a transform that sites may apply to blocks of rows.

    Examples
    --------
    >>> @lens
    ... def shifted(X, by):
    ...     return X + by
    """
    _installed[dotted_name(function)] = function
    return function


@dataclass(frozen=True)
class Lens:
    """An installed transform and its parameters."""

    name: str
    parameters: Message
    digest: bytes = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        body = encode({key: self.parameters[key] for key in sorted(self.parameters)})
        object.__setattr__(self, "digest", blake2b(self.name.encode() + b"\0" + body, digest_size=16).digest())
        object.__setattr__(self, "size", len(body))

    @classmethod
    def of(cls, function: Callable[..., Any], parameters: Mapping[str, object]) -> Lens:
        """Make the lens that applies `function` with `parameters`."""
        return cls(dotted_name(function), canonical(parameters, "lens"))

    def function(self) -> Callable[[NDArray[Any]], NDArray[Any]]:
        """Return the installed function with its parameters, ready for rows."""
        if self.name not in _installed:
            raise UnknownStepError(f"{self.name!r} is not an installed lens at this site")
        return partial(_installed[self.name], **self.parameters)
