"""Whether the sites' columns of one name hold things of one kind, as far as the sites say so."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_NUMBERS = ("boolean", "integer", "number")  # one family: whole numbers at one site may be others at the next


def told_kinds(owner: Any) -> dict[str, str]:
    """Return the kinds of columns in what a site's owner lets be known; none where that cannot be read."""
    try:
        columns = json.loads(bytes(owner))["columns"]
        return {str(name)[:200]: str(kind)[:20] for name, kind in columns.items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


def kinds_that_differ(sites: Mapping[str, Mapping[str, str]]) -> str:
    """Return a sentence about the columns whose kinds differ between sites, empty where all agree.

    >>> kinds_that_differ({"north": {"age": "integer"}, "south": {"age": "number"}})
    ''
    >>> kinds_that_differ({"north": {"age": "integer"}, "south": {"age": "text"}})
    "column 'age' holds numbers at north and text at south"
    """
    said = []
    for name in sorted({name for columns in sites.values() for name in columns}):
        found: dict[str, list[str]] = {}
        for site, columns in sorted(sites.items()):
            if name in columns:
                kind = "numbers" if columns[name] in _NUMBERS else columns[name]
                found.setdefault(kind, []).append(site)
        if len(found) > 1:
            parts = [f"{kind} at {', '.join(where)}" for kind, where in found.items()]
            said.append(f"column {name!r} holds {' and '.join(parts)}")
    return "; ".join(said[:5]) + (f"; and {len(said) - 5} more columns" if len(said) > 5 else "")
