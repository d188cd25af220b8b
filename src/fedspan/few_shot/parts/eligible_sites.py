"""Which sites can tell anything about a shared representation, and what rank their rows allow."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.few_shot.parts.task_rows import least_rows
from fedspan.few_shot.parts.tasks import Tasks, listed


def check_rank(tasks: Tasks, rank: int, n_columns: int, intercept: bool, parts: int) -> None:
    """Refuse a rank that the tasks of no site can tell."""
    most = min(n_columns, len(tasks.labels))
    if not 1 <= rank <= most:
        raise InputError(f"rank={rank} must be between 1 and the smaller number of features and tasks, {most}")
    unknowns = rank + intercept
    if len(tasks.sites_without(least_rows(unknowns, parts))) < len(tasks.held):
        return
    largest = max(int(rows.max()) for _, rows in tasks.held.values())
    cut = f" in each of the {parts} parts of the sample split" if parts > 1 else ""
    raise InputError(
        f"no site has a task with more than {unknowns} rows{cut}, one for each direction"
        f"{' and the intercept' if intercept else ''}, the largest has {largest}: there is nothing to learn the "
        "representation from; take a smaller rank"
    )


def known_sites(federation: Federation, tasks: Tasks) -> Federation:
    """Return the federation without the sites whose tasks are not named as those of most sites are."""
    why = "their rows have no task, or have one where most sites' have none, or their tasks' names are unlike others'"
    return _without(federation, tasks.strange, f"left out, because {why}")


def learners(federation: Federation, tasks: Tasks, rank: int, intercept: bool, parts: int) -> Federation:
    """Return the federation of the sites that have a task with more rows than unknowns.

    A task with no more rows at a site than unknowns is fitted exactly whatever the representation is. A site that has
    only such tasks would vote for standing still: it is left out of the descent. One that did not tell its tasks stays.
    """
    unknowns = rank + intercept
    why = f"none of their tasks has more than {unknowns} rows"
    silent = tasks.sites_without(least_rows(unknowns, parts))
    return _without(federation, silent, f"left out of learning the representation, because {why}")


def _without(federation: Federation, names: Sequence[str], why: str) -> Federation:
    if not names:
        return federation
    warnings.warn(f"{why}: {listed(names)}", stacklevel=4)
    return federation.subset(site for site in federation.sites if site not in names)
