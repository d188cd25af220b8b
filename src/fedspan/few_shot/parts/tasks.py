"""The tasks of a federation: which sites have rows of them, which sites can learn, and what rank their rows allow.

One round finds them, with the size of targets and features at each site.
"""

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
from fedspan.checks import frames_inside
from fedspan.errors import InputError, QuorumError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import ArrayOf, Flag, Indices, Matrix, Real
from fedspan.few_shot.parts.task_rows import DistinctLabels, Labels, TaskRows, least_rows, rows_of_smallest_task
from fedspan.linalg import orthonormalize
from fedspan.wire import Message

#: Where sites may be malicious, a site that names more tasks than this, and this many times the median, is left out.
MOST_TASKS, MOST_TIMES = 1000, 100
#: Most rows of a task that a site may report.
MOST_ROWS = 10**15
#: Rows that `feature_spread` looks at: this many times the number of features, or all.
_ROWS_PER_FEATURE = 4
#: A largest eigenvalue counts beyond this many times what white features give by chance.
_WHITE = 1.1
_NUMBERS = ("power", "offset", "spread", "uneven", "middle", "largest")


@dataclass(frozen=True)
class Tasks:
    """The tasks of a federation. All attributes but `labels` and `strange` are dicts by site.

    Attributes
    ----------
    labels : array (q,)
        All tasks, sorted: whole numbers where all sites have such, otherwise text.
    held : pairs of arrays
        Positions of the site's tasks among `labels`, and the rows of each.
    power : floats
        Mean square of the targets (about the mean of their task, where there is an intercept).
    offset : floats
        Share of the targets' square that lies in the tasks' means.
    spread, uneven : floats
        `spread` is the largest second moment of the features in any direction, without sampling errors. `uneven` is
        that moment as a multiple of the mean over all directions: 1 for white features.
    strange : tuple of site names
        Sites to leave out. Their rows have no task where those of most sites have one, or the reverse, or their labels
        are unlike those of most sites.
    middle, largest : floats
        Mean square of the targets, as `power`, of the site's middle and largest task; tasks of four rows or more.
    """

    labels: Labels
    held: Mapping[str, tuple[NDArray[np.intp], Indices]]
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
        return sum(len(at) for at, _ in self.held.values()) == len(self.labels)

    @property
    def own(self) -> bool:
        """Whether sites have tasks of their own: fewer than half of the sites name most tasks of a typical site."""
        holders = [np.median(self._holders[at]) for at, _ in self.held.values()]
        return float(np.median(holders)) <= max(1, len(self.held) / 2)

    @cached_property
    def _holders(self) -> NDArray[np.intp]:
        """How many sites name each task (q,)."""
        return np.bincount(np.concatenate([at for at, _ in self.held.values()]), minlength=len(self.labels))

    @cached_property
    def pooled(self) -> Indices:
        """Rows of each task at all sites together (q,)."""
        rows = np.zeros(len(self.labels), dtype=np.int64)
        for at, counts in self.held.values():
            rows[at] += counts
        return rows

    @cached_property
    def meddling(self) -> frozenset[str]:
        """Sites that name tasks of more than half of the others, where the median site shares tasks with fewer.

        Such a site is a register or malicious. Its reports on a task do not count while an owner reports on it.
        """
        at = {site: set(positions.tolist()) for site, (positions, _) in self.held.items()}
        half = (len(at) - 1) / 2
        if half < 1 or (self._holders <= 1).all():
            return frozenset()
        shared = {site: sum(not mine.isdisjoint(other) for other in at.values()) - 1 for site, mine in at.items()}
        typical = np.median(list(shared.values())) >= half
        return frozenset() if typical else frozenset(site for site, count in shared.items() if count > half)

    def sites_without(self, least: int) -> tuple[str, ...]:
        """Return the sites that have no task of at least `least` rows."""
        return tuple(site for site, (_, rows) in self.held.items() if rows.max() < least)


@step("few_shot.tasks", reveals="rows", ragged=["task", "rows"], fewest=rows_of_smallest_task)
def local_tasks(site: Site, intercept: bool) -> dict[str, Any]:
    """Leaves the site: labels and numbers of rows of its tasks, and six numbers about y and X.

    These are `power`, `offset`, `spread`, `uneven`, `middle` and `largest` of `Tasks`.
    """
    tasks = TaskRows.of(site)
    total = in_means = long = 0.0
    squares = [np.zeros(0)]
    for block in tasks.blocks():
        means = block.y.mean(axis=1)
        y = block.y - means[:, None] if intercept else block.y
        total += float(np.vdot(y, y))
        if block.y.shape[1] >= 4:  # in tasks of one or two rows the mean is most of the square by chance
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


def feature_spread(X: NDArray[Any], centre: bool) -> tuple[float, float]:
    """Return the largest and the mean eigenvalue of the rows' second moment; for white features, the mean for both.

    The largest eigenvalue of a sample of N white rows with n features is ``(1 + sqrt(n / N))^2`` times too large.

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_normal((2000, 50))
    >>> feature_spread(X, False), feature_spread(X * np.r_[3.0, np.ones(49)], False)
    ((1.0..., 1.0...), (9..., 1.1...))
    """
    n = X.shape[1]
    some = X[:: max(1, len(X) // max(1000, _ROWS_PER_FEATURE * n))]
    S = np.asarray(some, dtype=np.float64)
    S = S - S.mean(axis=0) if centre else S
    mean = float(np.vdot(S, S)) / max(1, S.size)
    V = orthonormalize(np.random.default_rng(0).standard_normal((n, min(4, n))))
    largest = 0.0
    for _ in range(8):
        W = S.T @ (S @ V) / len(S)
        largest = float(np.linalg.eigvalsh(V.T @ W).max())
        V = orthonormalize(W, complete=True)
    chance = (1.0 + np.sqrt(n / len(S))) ** 2
    return (largest if largest > _WHITE * chance * mean else mean), mean


def agree_on_tasks(fed: Federation, *, intercept: bool = False, resilient: bool = False) -> Tasks:
    """Return the tasks of all sites that answer.

    `resilient`: fewer than half of the sites may be malicious. Then the majority decides whether labels are whole
    numbers. A site that names more than `MOST_TASKS` tasks and `MOST_TIMES` the median number is left out.
    """
    replies = ask_repeatedly(fed, local_tasks, _checked, intercept=intercept)
    silent = [site for site in fed.sites if site not in replies]
    if silent:
        warn(f"{len(silent)} of {len(fed.sites)} sites have no rows, or did not report their tasks: {listed(silent)}")
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
    numbers: dict[str, Any] = {key: {site: replies[site][key] for site in held} for key in _NUMBERS}
    return Tasks(labels, held, strange=tuple(sorted(strange)), **numbers)


def merged_labels(own: Mapping[str, Labels], outvoted: bool) -> tuple[Labels, dict[str, NDArray[np.intp]]]:
    """Return all sites' labels, sorted, and where those of each site stand among them.

    They are whole numbers where most sites have such and the text of the others reads like such, otherwise text. Where
    sites can be `outvoted` the majority decides alone, and a site whose text is not a number has no place.
    """
    numbers = {site: _as_numbers(labels) for site, labels in own.items()}
    plain = sum(labels.dtype.kind != "U" for labels in own.values())
    if 2 * plain > len(own) and (outvoted or all(labels is not None for labels in numbers.values())):
        own = {site: labels for site, labels in numbers.items() if labels is not None}
    else:
        own = {site: labels.astype(str) for site, labels in own.items()}
    common = np.unique(np.concatenate(list(own.values())))
    return common, {site: np.searchsorted(common, labels) for site, labels in own.items()}


def _as_numbers(labels: Labels) -> Labels | None:
    """Return labels as whole numbers, if they read the same."""
    if labels.dtype.kind != "U":
        return labels
    with suppress(ValueError, OverflowError):
        numbers = labels.astype(np.int64)
        if (numbers.astype(str) == labels).all():
            return numbers
    return None


def known_sites(federation: Federation, tasks: Tasks) -> Federation:
    """Return the federation without the sites whose labels are not like those of most sites."""
    why = "their rows have no task, or have one where most sites' have none, or their labels are unlike others'"
    return _without(federation, tasks.strange, f"left out, because {why}")


def eligible_sites(federation: Federation, tasks: Tasks, rank: int, intercept: bool, parts: int) -> Federation:
    """Return the federation of the sites that have a task with more rows than unknowns, or did not report their tasks.

    A task with no more rows at a site than unknowns is fitted exactly, whatever the representation is. A site with such
    tasks alone would vote for standing still.
    """
    few = tasks.sites_without(least_rows(rank + intercept, parts))
    why = f"none of their tasks has more than {rank + intercept} rows"
    return _without(federation, few, f"left out of learning the representation, because {why}")


def _without(federation: Federation, names: Sequence[str], why: str) -> Federation:
    if not names:
        return federation
    warn(f"{why}: {listed(names)}")
    return federation.subset(site for site in federation.sites if site not in names)


def check_rank(tasks: Tasks, rank: int, n_columns: int, intercept: bool, parts: int) -> None:
    """Refuse a rank that the rows of no site can determine."""
    most = min(n_columns, len(tasks.labels))
    if not 1 <= rank <= most:
        raise InputError(f"rank={rank} must be between 1 and the smaller number of features and tasks, {most}")
    unknowns = rank + intercept
    if len(tasks.sites_without(least_rows(unknowns, parts))) == len(tasks.held):
        largest = max(int(rows.max()) for _, rows in tasks.held.values())
        cut = f" in each of the {parts} parts of the sample split" if parts > 1 else ""
        raise InputError(
            f"no site has a task with more than {unknowns} rows{cut}, the number of unknowns of a task; the largest "
            f"task has {largest}: take a smaller rank"
        )


def listed(names: Sequence[str]) -> str:
    """Return at most five names, for a sentence."""
    return f"{', '.join(names[:5])}{', ...' if len(names) > 5 else ''}"


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line that called fedspan."""
    warnings.warn(text, category, stacklevel=frames_inside())


def ask_repeatedly(
    federation: Federation, what: Callable[..., Any], check: Callable[[Message], Message], **payload: object
) -> dict[str, Message]:
    """Request a step at every site, at most twice more where it failed; return the replies by site, in name order."""
    replies = federation.accept(federation.ask(what, **payload), check)
    found, failed = dict(replies.ok), list(replies.failed)
    for _ in range(2):
        if not failed:
            break
        with suppress(QuorumError):  # the first call reached its quorum, and these sites can only add to it
            again = federation.subset(failed)
            replies = again.accept(again.ask(what, **payload), check)
            found |= replies.ok
            failed = list(replies.failed)
    return {site: found[site] for site in sorted(found)}


def _checked(reply: Message) -> Message:
    """Return a site's report on its tasks, or refuse it."""
    named = Flag().check("named", reply.get("named"))
    numbers = {key: Real(least=0.0).check(key, reply.get(key)) for key in _NUMBERS}
    return {**reported_tasks(reply), "named": named, **numbers}


def reported_tasks(reply: Message) -> Message:
    """Return the labels and numbers of rows that a site reports for its tasks, or refuse them."""
    labels = DistinctLabels().check("task", reply.get("task"))
    rows = ArrayOf("whole", 1, least=1, most=MOST_ROWS).check("rows", reply.get("rows"))
    if len(rows) != len(labels):
        raise InputError(f"'rows' must have one number for each of {len(labels)} tasks, not {len(rows)}")
    return {"task": labels, "rows": rows}


def reported_array(reply: Message, key: str, shape: tuple[int, ...]) -> Matrix:
    """Return an array of real numbers of this shape from a reply, or refuse it."""
    value = ArrayOf("float", len(shape)).check(key, reply.get(key))
    if value.shape != shape:
        raise InputError(f"{key!r} has the shape {value.shape}, and must have {shape}")
    return value.astype(np.float64)
