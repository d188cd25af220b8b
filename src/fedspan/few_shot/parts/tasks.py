"""Which tasks the sites have rows of, and how large their targets and features are: one round."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.aggregation.safe_arithmetic import lower_median
from fedspan.errors import InputError, QuorumError
from fedspan.federation import Federation, Site, step
from fedspan.few_shot.parts.disclosure_counts import of_tasks
from fedspan.few_shot.parts.feature_spread import feature_spread
from fedspan.few_shot.parts.task_names import Labels, merged_labels, told_labels
from fedspan.few_shot.parts.task_rows import TaskRows
from fedspan.wire import Message

Counts = NDArray[np.int64]

#: A site that names more tasks than this, and this many times as many as most, is not believed where sites may lie.
MOST_TASKS, MOST_TIMES = 1000, 100
#: Rows of a task beyond which no site is believed.
MOST_ROWS = 10**15
_NUMBERS = ("power", "offset", "spread", "uneven", "middle", "largest")


@dataclass(frozen=True)
class Tasks:
    """The tasks of a federation.

    Attributes
    ----------
    labels : array (q,)
        All tasks, sorted: whole numbers where all sites have such, otherwise text.
    held : dict of site name to (positions among `labels`, rows of each)
    power : dict of site name to float
        Mean square of the targets (about the mean of their task, where there is an intercept).
    offset : dict of site name to float
        How much of the targets' square lies in the tasks' means.
    spread : dict of site name to float
        Largest second moment of the features in any direction, sampling errors taken off.
    uneven : dict of site name to float
        The same as a multiple of the mean over all directions: 1 for white features.
    strange : tuple of site names
        Sites to be left out: their rows have no task where those of most sites have, or the other way round, or
        their names of tasks are unlike those of most sites.
    middle, largest : dict of site name to float
        Mean square of the targets of its middle task and of its largest one, as `power`; of tasks with four rows.
    """

    labels: Labels
    held: Mapping[str, tuple[NDArray[np.intp], Counts]]
    power: Mapping[str, float]
    offset: Mapping[str, float]
    spread: Mapping[str, float]
    uneven: Mapping[str, float]
    strange: tuple[str, ...] = ()
    middle: Mapping[str, float] = field(default_factory=dict)
    largest: Mapping[str, float] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether no task has rows at two sites."""
        return sum(len(positions) for positions, _ in self.held.values()) == len(self.labels)

    @property
    def own(self) -> bool:
        """Whether sites have tasks of their own: most of a typical site's are named by less than half of the sites.

        Less than half of the sites cannot decide it, whatever they name.
        """
        holders = np.bincount(np.concatenate([at for at, _ in self.held.values()]), minlength=len(self.labels))
        return float(np.median([np.median(holders[at]) for at, _ in self.held.values()])) <= max(1, len(self.held) / 2)

    @cached_property
    def pooled(self) -> Counts:
        """Rows of each task at all sites together (q,)."""
        rows = np.zeros(len(self.labels), dtype=np.int64)
        for at, counts in self.held.values():
            rows[at] += counts
        return rows

    @cached_property
    def meddling(self) -> frozenset[str]:
        """Sites with tasks of more than half of the others, where the median site has tasks of fewer than half.

        Where sites have tasks of their own, whoever claims everybody's is rather a liar, if he is not a register: in
        what he says of others' tasks he is not believed while an owner speaks.
        """
        at = {site: set(positions.tolist()) for site, (positions, _) in self.held.items()}
        holders = np.bincount(np.concatenate([p for p, _ in self.held.values()]), minlength=len(self.labels))
        if len(at) < 3 or (holders <= 1).all():
            return frozenset()
        shared = {
            site: sum(not mine.isdisjoint(other) for name, other in at.items() if name != site)
            for site, mine in at.items()
        }
        half = (len(at) - 1) / 2
        if np.median(list(shared.values())) >= half:
            return frozenset()
        return frozenset(site for site, count in shared.items() if count > half)

    def sites_without(self, least: int) -> tuple[str, ...]:
        """Return the sites that have no task of at least `least` rows."""
        return tuple(site for site, (_, rows) in self.held.items() if rows.max() < least)

    def typical(self, of: Callable[[Counts], float]) -> float:
        """Return the median over the sites of a number that their rows per task have."""
        return float(np.median([of(rows) for _, rows in self.held.values()]))


@step("few_shot.tasks", reveals="rows", ragged=["task", "rows"], fewest=of_tasks)
def local_tasks(site: Site, intercept: bool) -> dict[str, Any]:
    """Leaves the site: names and numbers of rows of its tasks, and six numbers about y and X.

    These are the mean square of y, the part of it in the tasks' means, the largest second moment of X in any direction,
    how many times the mean over all directions that is, and the mean square of y of its middle and its largest task.
    """
    tasks = TaskRows.of(site)
    total = in_means = long = 0.0
    squares = [np.zeros(0)]
    for block in tasks.blocks():
        means = block.y.mean(axis=1)
        y = block.y - means[:, None] if intercept else block.y
        total += float(np.vdot(y, y))
        if block.y.shape[1] >= 4:  # of one or two rows the mean is most of them by chance
            in_means += block.y.shape[1] * float(means @ means)
            long += float(np.vdot(block.y, block.y))
            squares.append(np.einsum("km,km->k", y, y) / y.shape[1])
    sizes = np.concatenate(squares)
    spread, mean = site.cached(f"spread {intercept}", lambda: feature_spread(tasks.X, intercept))
    return {
        "task": tasks.labels,
        "rows": tasks.counts,
        "named": tasks.named,
        "power": total / len(site),
        "offset": in_means / long if long > 0 else 0.0,
        "spread": spread,
        "uneven": spread / mean if mean > 0 else 1.0,
        "middle": lower_median(sizes) if sizes.size else 0.0,
        "largest": float(sizes.max(initial=0.0)),
    }


def agree_on_tasks(fed: Federation, *, intercept: bool = False, resilient: bool = False) -> Tasks:
    """Return the tasks of all sites that answer; those that do not are asked again, at most twice.

    `resilient`: fewer than half of the sites may lie. Then the majority decides whether names are whole numbers, and a
    site that names more tasks than `MOST_TASKS` and `MOST_TIMES` as many as the median site is left out.
    """
    replies = patiently(fed, local_tasks, _checked, intercept=intercept)
    silent = [site for site in fed.sites if site not in replies]
    if silent:
        warnings.warn(
            f"{len(silent)} of {len(fed.sites)} sites did not say which tasks they have, or have no rows, and do not "
            f"count unless they come back: {listed(silent)} (see the run's record)",
            stacklevel=2,
        )
    named = {site: bool(reply["named"]) for site, reply in replies.items()}
    if 2 * sum(named.values()) == len(named):
        without = next(site for site in named if not named[site])
        raise InputError(f"the rows of site {without!r} have no task, those of other sites have: give all or none")
    strange = {site for site in named if named[site] != (2 * sum(named.values()) > len(named))}
    if resilient:
        most = max(MOST_TASKS, MOST_TIMES * np.median([len(reply["task"]) for reply in replies.values()]))
        strange |= {site for site, reply in replies.items() if len(reply["task"]) > most}
    own = {site: reply["task"] for site, reply in replies.items() if site not in strange}
    labels, held_at = merged_labels(own, outvoted=resilient)
    strange |= own.keys() - held_at.keys()
    held = {site: (at, replies[site]["rows"]) for site, at in held_at.items()}
    numbers: dict[str, Any] = {key: {site: float(replies[site][key]) for site in held} for key in _NUMBERS}
    return Tasks(labels, held, strange=tuple(sorted(strange)), **numbers)


def listed(names: Sequence[str]) -> str:
    """Return at most five names, for a sentence."""
    return f"{', '.join(names[:5])}{', ...' if len(names) > 5 else ''}"


def patiently(
    federation: Federation, what: Callable[..., Any], check: Callable[[Message], Message], **payload: object
) -> dict[str, Message]:
    """Ask every site, and those that failed again, at most twice: for what only they know. By site, in name order."""
    replies = federation.accept(federation.ask(what, **payload), check)
    found, failed = dict(replies.ok), list(replies.failed)
    for _ in range(2):
        if not failed:
            break
        with suppress(QuorumError):  # it held at first, and these are as good as they are
            again = federation.subset(failed)
            replies = again.accept(again.ask(what, **payload), check)
            found |= replies.ok
            failed = list(replies.failed)
    return {site: found[site] for site in sorted(found)}


def _checked(reply: Message) -> Message:
    """Return what a site says of its tasks, or refuse it: whatever it sends, the run goes on without it."""
    labels = told_labels(reply.get("task"))
    rows = told_rows(reply.get("rows"), len(labels))
    if not isinstance(reply.get("named"), bool | np.bool_):
        raise InputError("'named' must be true or false")
    numbers = {key: _told_number(reply.get(key), key) for key in _NUMBERS}
    return {"task": labels, "rows": rows, "named": bool(reply["named"]), **numbers}


def told_rows(value: object, count: int) -> Counts:
    """Return the numbers of rows that a site tells for its `count` tasks, or refuse them."""
    rows = np.asarray(value)
    if rows.dtype.kind not in "iu" or rows.shape != (count,) or rows.min() < 1 or rows.max() > MOST_ROWS:
        raise InputError(f"a site must tell one number of rows, from 1 to {MOST_ROWS:.0e}, for each of its tasks")
    return rows.astype(np.int64)


def _told_number(value: object, key: str) -> float:
    plain = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not plain or not 0.0 <= value <= np.finfo(np.float64).max:  # type: ignore[operator]
        raise InputError(f"{key!r} must be a finite number of at least 0")
    return float(value)  # type: ignore[arg-type]
