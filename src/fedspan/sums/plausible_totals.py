"""Refuse totals that no honest sites can have: impossible numbers, wrong shapes, row counts that change.

A total hides the single replies, so that one false reply spoils it. These checks end such a run with a reason.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedspan.errors import InputError, MessageError
from fedspan.federation import Federation, Total
from fedspan.federation.calling import StepLike
from fedspan.federation.outcomes import FailureKind

#: Replies that another request may bring, and the number of other requests.
_LOST, _MORE_TRIES = (FailureKind.NO_REPLY, FailureKind.MALFORMED, FailureKind.STALE), 2
ABSURD = 1e100  # its square is still a finite number


def refuse_absurd(*values: ArrayLike) -> None:
    """Refuse numbers that would overflow when they are multiplied or added up."""
    if not all((np.abs(np.asarray(value)) < ABSURD).all() for value in values):
        raise InputError(
            f"sites sent numbers beyond {ABSURD:g}: scale the features and targets, or use an aggregator if some "
            "sites may be malicious"
        )


def whole(total: Total, **shapes: tuple[int, ...]) -> Total:
    """Return `total` if its keys have these shapes and plausible numbers, or refuse it."""
    for name, shape in shapes.items():
        if name not in total or np.shape(total[name]) != shape:
            found = f"the shape {np.shape(total[name])}" if name in total else "nothing"
            raise MessageError(f"most sites sent {found} as {name!r}, and it must have the shape {shape}")
        refuse_absurd(total[name])
    return total


def sum_of_all(seen: Federation, step: StepLike, **payload: object) -> Total:
    """Return the sum of a step that no site may miss: where a reply was lost, it is requested again, twice at most.

    Under secure sums there is no other request: two totals, with and without a site, would reveal its reply.
    """
    total = seen.sum(step, **payload)
    for _ in range(0 if seen.policy.secure_sum else _MORE_TRIES):
        if not any(failure.kind in _LOST for failure in total.failed.values()):
            break
        total = seen.sum(step, **payload)
    return total


def not_negative(total: Total, *keys: str) -> Total:
    """Return `total` if the values of these keys, which count or add up what is not negative, are not, or refuse it."""
    for name in keys:
        if np.asarray(total[name]).min(initial=0) < 0:
            raise MessageError(
                f"the sites' values of {name!r} add up to less than 0: some site sends impossible numbers"
            )
    return total


class CountedRows:
    """Compare the number of rows from one sum to the next; keeps `n` and `sites` of the sum over the most sites.

    Each sum counts the rows of all its sites, and not those of each. A site that reports another number in some sums
    shows when the same sites, some of them, or they and others are summed again.
    """

    def __init__(self, n: int = 0, sites: tuple[str, ...] = ()) -> None:
        self.n, self.sites = n, sites

    def compare(self, total: Total) -> None:
        """Refuse a sum whose number of rows contradicts an earlier one."""
        n, now, known = total["n"], set(total.sites), set(self.sites)
        if not isinstance(n, int) or n < 0:
            raise MessageError(f"the sites' numbers of rows add up to {n!r}: some site sends an impossible number")
        if (now <= known and n > self.n) or (self.sites and now >= known and n < self.n):
            raise MessageError(
                f"{len(now)} sites report {n} rows together, and {len(known)} sites reported {self.n} before: some "
                "site's number of rows has changed, or is false; leave out the site that you do not trust"
            )
        if len(now) > len(known):
            self.n, self.sites = n, tuple(total.sites)
