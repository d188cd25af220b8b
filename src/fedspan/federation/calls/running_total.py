"""The total of replies while sites still answer: memory does not grow with the number of sites.

Replies come in groups, in the order of the sites' names. The replies of a group that are as usual are added to the
total, and one of them stands for all. From the first group with an unusual reply on, all replies stay, and are
checked as if none had been added up. The sites of the total are alike, so that all of them are accepted, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedspan.errors import FedspanError
from fedspan.federation.calls.call import Call, Collected, Delivery, Outcome
from fedspan.federation.calls.reply_checks import alike_in_form, all_alike
from fedspan.federation.message_sizes import SameSize
from fedspan.federation.outcomes import Failure
from fedspan.federation.policy import Policy
from fedspan.federation.replies import total
from fedspan.federation.site.state import Changes
from fedspan.wire import Message, encoded_size

Check = Callable[[Mapping[str, Message]], Mapping[str, Failure]]

#: The largest number of replies that are added up at a time, a power of 2, and their bytes.
_AT_ONCE, _GROUP_BYTES = 128, 2**22
#: Sites of this process that answer before replies are added up, even large ones: they may run side by side.
_TOGETHER = 16


def at_once(size: int) -> int:
    """Return the number of replies of this size that are added up at a time: a power of 2."""
    fit = _GROUP_BYTES // size
    return min(_AT_ONCE, 1 << (max(1, fit).bit_length() - 1))


def added(
    call: Call, how: str, replies: Sequence[Message], before: Message | None = None, size: int | None = None
) -> Message:
    """Return the sum of replies in their order, or what the step's ``merge`` makes of them, added to a total `before`.

    How many are combined at a time decides the last bits: it depends on the first reply alone. So the total is the same
    whether all replies are there, or are added as they come. A total `before` is of a multiple of that `size`.
    """
    merge = call.step.merge if how == "merge" else None
    size = size or (at_once(encoded_size(replies[0])) if replies else 1)
    for start in range(0, max(1, len(replies)), size):
        group = replies[start : start + size]
        group = group if before is None else [before, *group]
        added_before = before is not None
        before = total(group, call.step.id, into_first=added_before) if merge is None else merge(group)
    assert before is not None
    return before


def _form_of(reply: Message) -> Message:
    """Return a reply of the same form, whose large arrays take no memory."""
    return {
        key: np.broadcast_to(np.zeros((), value.dtype), value.shape)
        if isinstance(value, np.ndarray) and value.nbytes > _GROUP_BYTES
        else value
        for key, value in reply.items()
    }


class RunningTotal:
    """Adds the replies to one call up, group by group, while other sites have yet to answer."""

    def __init__(self, call: Call, how: str, policy: Policy, check: Check | None) -> None:
        self._call, self._how, self._policy, self._check = call, how, policy, check
        self._first: Message = {}
        self._value: Message = {}
        self._sites: list[str] = []
        self._changes: dict[str, Changes] = {}
        self._size = 1  # replies that are added up at a time
        self._bytes = 0  # of a reply
        self._open = True

    def collect(
        self, deliver: Callable[[tuple[str, ...]], dict[str, Outcome]], together: int = 0
    ) -> dict[str, Outcome]:
        """Let `deliver` return the outcomes of one group of sites after the other, and add their replies up.

        The first `together` replies are one group at least, even large ones. The first reply shows how many take little
        memory. Return deliveries whose reply stands for all, and the outcomes that stay.
        """
        to, together = self._call.to, together or _TOGETHER
        outcomes = deliver(to[:together])
        first = outcomes[to[0]]
        if not isinstance(first, Delivery) or type(first.reply) is not dict:  # all replies stay
            return outcomes | deliver(to[together:]) if len(to) > together else outcomes
        self._bytes = encoded_size(first.reply)
        self._size = at_once(self._bytes)
        group = to[: max(together, self._size)]
        if len(group) > together:
            outcomes |= deliver(group[together:])
        sent, at = self._add(group, outcomes), len(group)
        fit = len(to)
        if self._sites:  # of small replies more than are added up at a time
            fit = max(together, _GROUP_BYTES // (self._size * self._bytes) * self._size)
        while at < len(to):
            group = to[at : at + fit]
            sent |= self._add(group, deliver(group))
            at += len(group)
        return sent

    def _add(self, group: tuple[str, ...], outcomes: dict[str, Outcome]) -> dict[str, Outcome]:
        """Add a group's replies; return deliveries whose reply stands for all, or the outcomes where they stay."""
        call = self._call if group == self._call.to else replace(self._call, to=group)
        found = all_alike(call, outcomes, self._policy) if self._open else None
        self._open = found is not None and self._added(found)
        if found is None or not self._open:
            return outcomes
        self._sites += group
        self._changes |= found.changes
        standing: dict[str, Outcome] = {}
        if not self.whole:  # else they are not needed
            standing = dict.fromkeys(group, self._standing_for(outcomes[group[0]]))
            standing |= {site: self._standing_for(outcomes[site]) for site in found.changes}
        for outcome in outcomes.values():
            outcome.reply = None  # type: ignore[union-attr]  # its site keeps it no longer either
        return standing

    def _added(self, found: Collected) -> bool:
        """Add replies that are alike; return whether they are like those before, and can be added."""
        replies = list(found.replies.values())
        first = self._first or replies[0]
        if not alike_in_form(replies[0], first):
            return False
        if self._check is not None and self._check({"": first, **found.replies}):
            return False
        try:
            self._value = added(self._call, self._how, replies, self._value if self._sites else None, self._size)
        except FedspanError:  # the total of all replies states it
            return False
        self._first = first if self._check is not None or self._first else _form_of(first)
        return True

    def _standing_for(self, outcome: Outcome) -> Outcome:
        assert isinstance(outcome, Delivery)
        return replace(outcome, reply=self._first)

    @property
    def whole(self) -> bool:
        """Whether the replies of all sites were checked and added up."""
        return len(self._sites) == len(self._call.to)

    def collected(self) -> Collected:
        """Return the result where the total is `whole`."""
        to = self._call.to
        sizes = SameSize(to, self._bytes)
        return Collected(dict.fromkeys(to, self._first), answered=to, changes=self._changes, bytes_up=sizes)

    def of(self, replies: Mapping[str, Message]) -> Message:
        """Return the total of the accepted replies."""
        if self.whole:
            return self._value
        before = set(self._sites)
        rest = [reply for site, reply in replies.items() if site not in before]
        if not before or self._sites[0] not in replies:
            return added(self._call, self._how, rest)
        return added(self._call, self._how, rest, self._value, self._size) if rest else self._value
