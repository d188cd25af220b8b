"""Whether a resilient descent led anywhere: one round, in which every site has one vote and one bit leaves it.

Losses of different rounds do not compare where sites come and go, and a median of them is moved by whoever lies about
his own. So each site compares on its own rows, and liars below one half of those who reply cannot decide against all
others.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.few_shot.parts.task_rows import Part, TaskRows, descent_sums
from fedspan.wire import Message

Matrix = NDArray[np.float64]

#: Losses that differ by less than this part of the targets' square are the same.
_ROUNDING = 1e-12


@step("few_shot.preference", reveals="sums")
def local_preference(site: Site, start: Matrix, final: Matrix, intercept: bool) -> dict[str, Any]:
    """Leaves the site: whether its rows have smaller squared residuals under `start` than under `final`."""
    own, rows = TaskRows.of(site), Part()
    before, after = (descent_sums(own, U, intercept, rows, rows).loss for U in (start, final))
    return {"start": bool(after - before > _ROUNDING * float(np.vdot(own.y, own.y)))}


def voted(fed: Federation, *, start: Matrix, final: Matrix, intercept: bool = False) -> Matrix:
    """Return `final` (n, r), or `start` with a warning, if more than half of the sites that reply say it fits better.

    What a task's coefficients are is settled anew for each of the two. Sites that fail have no vote.
    """
    replies = fed.accept(fed.ask(local_preference, start=start, final=final, intercept=intercept), _checked)
    against = sum(reply["start"] for reply in replies.values())
    fed.log(votes_for_start=against, votes=len(replies))
    if 2 * against <= len(replies):
        return final
    warnings.warn(
        f"{against} of {len(replies)} sites say that the start fits their rows better than what was learned from it, "
        "and the start is taken: sites lie, or differ too much, or the step is too long",
        stacklevel=3,
    )
    return start


def _checked(reply: Message) -> Message:
    if not isinstance(reply.get("start"), bool | np.bool_):
        raise InputError("a site must say whether the start is better, true or false")
    return {"start": bool(reply["start"])}
