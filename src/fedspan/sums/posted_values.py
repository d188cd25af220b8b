"""Collect one entry per row from every site, and request again what is missing."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

from fedspan.errors import QuorumError
from fedspan.federation import Federation
from fedspan.wire import Message

_TRIES = 3


def posted(
    sites: Federation, step: Callable[..., Any], what: str, check: Callable[[Message], Message], **payload: object
) -> dict[str, Message]:
    """Return the checked replies by site name, in name order; warn about sites that failed three times."""
    found: dict[str, Message] = {}
    for attempt in range(_TRIES):
        missing = tuple(name for name in sites.sites if name not in found)
        if not missing:
            break
        with suppress(QuorumError) if attempt else nullcontext():  # the quorum is of all sites, not of the rest
            found |= sites.accept(sites.ask(step, missing, **payload), check).ok
    lost = [name for name in sites.sites if name not in found]
    if lost:
        warnings.warn(f"no {what} of the rows of these sites, which did not post them: {', '.join(lost)}", stacklevel=3)
    return {name: found[name] for name in sites.sites if name in found}
