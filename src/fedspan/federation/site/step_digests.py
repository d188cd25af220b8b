"""Digests of steps and transforms: two versions of fedspan that have the same one compute the same.

A digest is of the whole module in which a function stands, so that what it calls there counts, too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from hashlib import blake2b
from typing import Any

from fedspan.federation.site.steps import installed_steps
from fedspan.federation.site.transforms import installed_transforms


def digests() -> dict[str, str]:
    """Return the digest of each installed step and transform, by id.

    >>> len(digests().get("sums.sums", "0" * 8))
    8
    """
    found = {id: _digest(one.function) for id, one in installed_transforms().items()}
    return found | {id: _digest(one.function) for id, one in installed_steps().items()}


def differing(theirs: Mapping[str, str], ids: Iterable[str]) -> list[str]:
    """Return which of these steps and transforms another side lacks, or has in another form."""
    mine = digests()
    return [id for id in ids if theirs.get(id) != mine.get(id)]


def altered(theirs: Mapping[str, str]) -> frozenset[str]:
    """Return which of fedspan's own steps another side of the same version has in another form: another checkout."""
    own = {id for id, one in {**installed_steps(), **installed_transforms()}.items() if _is_own(one.function)}
    mine = digests()
    return frozenset(id for id in own.intersection(theirs) if mine[id] and theirs[id] and mine[id] != theirs[id])


def neighbours(one: str, other: str) -> bool:
    """Return whether two versions of fedspan may work together: the same, or minor versions next to each other.

    >>> neighbours("1.4.2", "1.5.0"), neighbours("1.4.0", "1.6.0"), neighbours("1.4.0", "2.4.0")
    (True, False, False)
    """
    if one == other:
        return True
    try:
        (major, minor), (other_major, other_minor) = (tuple(map(int, text.split(".")[:2])) for text in (one, other))
    except ValueError:
        return False
    return major == other_major and abs(minor - other_minor) <= 1


def _is_own(function: Callable[..., Any]) -> bool:
    return str(getattr(function, "__module__", "")).startswith("fedspan.")


def _digest(function: Callable[..., Any]) -> str:
    return _module_digest(getattr(function, "__module__", "")) if inspect.isfunction(function) else ""


@cache
def _module_digest(module: str) -> str:
    import sys

    try:
        source = inspect.getsource(sys.modules[module])
    except (KeyError, OSError, TypeError):  # of a console, which has no file
        return ""
    return blake2b(source.encode(), digest_size=4).hexdigest()
