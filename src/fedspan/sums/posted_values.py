"""Values per row that sites post one by one; those that fail are requested again, and then left out with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

from fedspan.errors import QuorumError
from fedspan.federation import Failure, Federation
from fedspan.wire import Message

Check = Callable[[Message], Message]

_TRIES = 3


def requested(
    seen: Federation, to: tuple[str, ...], step: Callable[..., Any], check: Check, **payload: object
) -> tuple[dict[str, Message], dict[str, Failure]]:
    """Return the checked replies by site name, and why the other sites failed; each has three tries."""
    found: dict[str, Message] = {}
    failed: dict[str, Failure] = {}
    for attempt in range(_TRIES):
        missing = tuple(name for name in to if name not in found)
        if not missing:
            break
        with suppress(QuorumError) if attempt else nullcontext():  # the quorum is of all sites, not of the rest
            replies = seen.accept(seen.ask(step, missing, **payload), check)
            found |= replies.ok
            failed = replies.failed
    return found, {name: failed[name] for name in to if name not in found}


def posted(
    sites: Federation, step: Callable[..., Any], what: str, check: Check, **payload: object
) -> dict[str, Message]:
    """Return the checked replies by site name, in name order."""
    found, lost = requested(sites, sites.sites, step, check, **payload)
    if lost:
        warnings.warn(f"no {what} of the rows of these sites, which did not post them: {', '.join(lost)}", stacklevel=3)
    return {name: found[name] for name in sites.sites if name in found}
