"""Of how few rows of a site a number of a reply may be made, where parameters decide it (``@step(fewest=...)``).

The owner of a site judges by it whether a reply is a summary or about single rows. What is looked at are all tasks of
the site, not only those that were asked for: a refusal is not to tell which tasks are there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.federation import Site
from fedspan.few_shot.parts.task_rows import Part, least_rows

Counts = NDArray[np.int64]


def of_tasks(site: Site, *, parts: int = 1, **_: Any) -> int:
    """Return the rows of the first of `parts` parts of the smallest task."""
    return min(_in_part(count, Part(0, parts)) for count in _counts(site))


def of_truncated_tasks(site: Site, *, alpha: float, intercept: bool, parts: int, **_: Any) -> int:
    """Return the fewest rows of a task, in the first of `parts` parts, whose targets are not truncated to 0."""
    fewest = of_tasks(site, parts=parts)
    for task in _targets(site):
        y = task[Part(0, parts).rows]
        y = y - y.mean() if intercept and y.size else y
        kept = int(np.count_nonzero(np.abs(y) <= np.sqrt(max(alpha, 0.0))))
        if 0 < kept < fewest:
            fewest = kept
    return fewest


def of_descent(
    site: Site,
    *,
    U: NDArray[Any],
    intercept: bool = False,
    fit_part: int = 0,
    descend_part: int = 0,
    parts: int = 1,
    **_: Any,
) -> int:
    """Return the fewer of the rows that coefficients are fitted to and those that the gradient is of."""
    used = [count for count in _counts(site) if count >= least_rows(U.shape[1] + intercept, parts)]
    if not used:
        return len(site)  # and the reply is zero
    return min(sum(_in_part(count, Part(number, parts)) for count in used) for number in (fit_part, descend_part))


def of_fitted_tasks(site: Site, *, U: NDArray[Any], intercept: bool, parts: int, least: int, **_: Any) -> int:
    """Return the rows of the first of `parts` parts of all tasks that are large enough."""
    enough = max(least, least_rows(U.shape[1] + intercept, parts))
    used = [count for count in _counts(site) if count >= enough]
    return sum(_in_part(count, Part(0, parts)) for count in used) if used else len(site)


def _in_part(count: int, part: Part) -> int:
    if part.of < 1 or not 0 <= part.number < part.of:
        raise InputError(f"there is no part {part.number} of {part.of}")
    return len(range(*part.rows.indices(count)))


def _counts(site: Site) -> list[int]:
    """Return the rows of each task."""
    return [len(y) for y in _targets(site)]


def _targets(site: Site) -> list[NDArray[Any]]:
    def make() -> list[NDArray[Any]]:
        y = np.zeros(len(site)) if site.y is None else np.ravel(site.y)
        if site.task is None:
            return [y]
        _, codes = np.unique(site.task, return_inverse=True)
        order = np.argsort(codes, kind="stable")
        return np.split(y[order], np.flatnonzero(np.diff(codes[order])) + 1)

    return site.cached("targets by task", make)
