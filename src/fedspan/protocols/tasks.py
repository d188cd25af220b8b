"""Which tasks the sites have rows of, and how large their targets and features are: one round."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError, QuorumError
from fedspan.federation import Federation, Site, step
from fedspan.linalg import orthonormalize
from fedspan.protocols.task_rows import TaskRows
from fedspan.wire import Message

Labels = NDArray[Any]
Counts = NDArray[np.int64]

#: Rows that tell how unequal the features' directions are: this many times their number, or all there are.
_ROWS_PER_FEATURE = 4
#: A largest eigenvalue beyond this many times what white features would give by chance is believed.
_WHITE = 1.1
_NUMBERS = ("power", "offset", "spread", "uneven")


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
        Sites whose rows have no task where those of most sites have, or the other way round: to be left out.
    """

    labels: Labels
    held: Mapping[str, tuple[NDArray[np.intp], Counts]]
    power: Mapping[str, float]
    offset: Mapping[str, float]
    spread: Mapping[str, float]
    uneven: Mapping[str, float]
    strange: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether no task has rows at two sites."""
        return sum(len(positions) for positions, _ in self.held.values()) == len(self.labels)

    def sites_without(self, least: int) -> tuple[str, ...]:
        """Return the sites that have no task of at least `least` rows."""
        return tuple(site for site, (_, rows) in self.held.items() if rows.max() < least)

    def typical(self, of: Callable[[Counts], float]) -> float:
        """Return the median over the sites of a number that their rows per task have."""
        return float(np.median([of(rows) for _, rows in self.held.values()]))


@step(ragged=["task", "rows"])
def local_tasks(site: Site, intercept: bool) -> dict[str, Any]:
    """Leaves the site: names and numbers of rows of its tasks, and four numbers about y and X.

    These are the mean square of y, the part of it in the tasks' means, the largest second moment of X in any direction,
    and how many times the mean over all directions that is.
    """
    tasks = TaskRows.of(site)
    total = in_means = long = 0.0
    for block in tasks.blocks():
        means = block.y.mean(axis=1)
        y = block.y - means[:, None] if intercept else block.y
        total += float(np.vdot(y, y))
        if block.y.shape[1] >= 4:  # of one or two rows the mean is most of them by chance
            in_means += block.y.shape[1] * float(means @ means)
            long += float(np.vdot(block.y, block.y))
    spread, mean = site.cached(f"spread {intercept}", lambda: feature_spread(tasks.X, intercept))
    return {
        "task": tasks.labels,
        "rows": tasks.counts,
        "named": tasks.named,
        "power": total / len(site),
        "offset": in_means / long if long > 0 else 0.0,
        "spread": spread,
        "uneven": spread / mean if mean > 0 else 1.0,
    }


def agree_on_tasks(fed: Federation, *, intercept: bool = False) -> Tasks:
    """Return the tasks of all sites that answer; those that do not are asked again, at most twice."""
    replies = patiently(fed, local_tasks, _checked, intercept=intercept)
    named = {site: bool(reply["named"]) for site, reply in replies.items()}
    if 2 * sum(named.values()) == len(named):
        without = next(site for site in named if not named[site])
        raise InputError(f"the rows of site {without!r} have no task, those of other sites have: give all or none")
    strange = tuple(site for site in named if named[site] != (2 * sum(named.values()) > len(named)))
    own = {site: reply["task"] for site, reply in replies.items() if site not in strange}
    labels, held_at = merged_labels(own)
    held = {site: (at, replies[site]["rows"]) for site, at in held_at.items()}
    power, offset, spread, uneven = ({site: float(replies[site][key]) for site in held} for key in _NUMBERS)
    return Tasks(labels, held, power, offset, spread, uneven, strange)


def merged_labels(own: Mapping[str, Labels]) -> tuple[Labels, dict[str, NDArray[np.intp]]]:
    """Return all sites' labels, sorted, and where those of each site stand among them.

    Whole numbers where most sites have such: a site with text that is no number then has no place. Otherwise text.
    """
    numbers = sum(labels.dtype.kind != "U" for labels in own.values())
    if 2 * numbers > len(own):
        own = {site: labels for site, labels in own.items() if labels.dtype.kind != "U" or _are_numbers(labels)}
        own = {site: labels.astype(np.int64) for site, labels in own.items()}
    else:
        own = {site: labels.astype(str) for site, labels in own.items()}
    common = np.unique(np.concatenate(list(own.values())))
    return common, {site: np.searchsorted(common, labels) for site, labels in own.items()}


def _are_numbers(labels: Labels) -> bool:
    try:
        return bool((labels.astype(np.int64).astype(str) == labels).all())
    except (ValueError, OverflowError):
        return False


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


def positions(own: Labels, common: Labels) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return where a site's tasks stand among the common ones, and which of them are there at all."""
    if own.dtype.kind != common.dtype.kind:
        own, common = own.astype(str), common.astype(str)
    at = np.minimum(np.searchsorted(common, own), len(common) - 1)
    return at, common[at] == own


def feature_spread(X: NDArray[Any], centre: bool) -> tuple[float, float]:
    """Return the largest eigenvalue of the second moment of rows and the mean of all; of white features that one twice.

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


def _checked(reply: Message) -> Message:
    labels, rows = np.asarray(reply["task"]), np.asarray(reply["rows"])
    if labels.dtype.kind not in "iuU" or labels.ndim != 1 or not len(labels) or len(np.unique(labels)) != len(labels):
        raise InputError("the names of a site's tasks must be different whole numbers or texts, at least one")
    if rows.dtype.kind not in "iu" or rows.shape != labels.shape or rows.min() < 1:
        raise InputError("a site must tell one number of rows, of at least 1, for each of its tasks")
    for key in _NUMBERS:
        if np.ndim(reply[key]) or isinstance(reply[key], complex):
            raise InputError(f"{key!r} must be a number")
    return {**reply, "task": labels, "rows": rows.astype(np.int64)}
