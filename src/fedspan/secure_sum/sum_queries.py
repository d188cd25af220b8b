"""Questions to the sites of one secure sum, asked again where no answer came, and what came of them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedspan.federation.calls.call import Call, Failure
from fedspan.federation.calls.reply_checks import Judged
from fedspan.federation.site.noise_query import asked_digest
from fedspan.federation.site.state import Changes
from fedspan.federation.site.steps import find_step
from fedspan.secure_sum.sum_settings import SecureSum
from fedspan.wire import Message, canonical

#: Makes one part of a call: what came back, and what it did to the sites' states.
Exchange = Callable[[Call], tuple[Judged, Mapping[str, Changes]]]


@dataclass
class SecureTotal:
    """What came of a secure sum: the total, or in words why there is none."""

    total: Message | None = None
    error: str | None = None
    answered: tuple[str, ...] = ()  # whose parts are in the total
    failed: dict[str, Failure] = field(default_factory=dict)
    changes: dict[str, Changes] = field(default_factory=dict)
    bytes_up: dict[str, int] = field(default_factory=dict)
    bytes_down: dict[str, int] = field(default_factory=dict)


class TooFewError(Exception):
    """Fewer sites are left than a sum needs."""


class Questions:
    """The questions of the sum of the replies to `call`; `found` is filled as they are answered."""

    def __init__(self, call: Call, settings: SecureSum, exchange: Exchange, found: SecureTotal) -> None:
        self.call = call
        self.numbers = settings.numbers
        self.threshold = settings.needed(len(call.to))
        self.exchange = exchange
        self.found = found
        self.parts = 0
        # Nobody else's sum has this name, be it one of a coordinator that was killed and begins again.
        self.session = f"{call.run}/{call.number}/{secrets.token_hex(8)}"
        # Every site computes it of what it was told itself: those that were told something else do not agree.
        self.asked = asked_digest(call.step.name, call.payload, call.lens_digests, call.run, call.number, call.seed)

    def ask(
        self,
        step: Callable[..., Any],
        to: Sequence[str],
        payload: Message,
        apart: Mapping[str, Message] | None = None,
        reads: bool = False,
    ) -> dict[str, Message]:
        """Put one question to the sites `to`, and once more to those who did not answer; return the replies.

        With `reads` it is the one that reads data, through the call's lenses.
        """
        replies: dict[str, Message] = {}
        silent: dict[str, Failure] = {}
        left = tuple(to)
        for _ in range(2):
            call = replace(
                self.call,
                step=find_step(step),
                payload=canonical({"session": self.session, **payload}, "payload"),
                to=left,
                lenses=self.call.lenses if reads else (),
                how="ask",
                part=self.parts,
                apart={site: canonical(apart[site], "payload") for site in left} if apart else {},
            )
            self.parts += 1
            judged, changes = self.exchange(call)
            replies |= judged.ok
            silent = judged.failed
            self.found.changes |= changes
            _count(self.found.bytes_up, judged.sizes)
            _count(self.found.bytes_down, call.bytes_down)
            left = tuple(silent)
            if not left:
                break
        for site, failure in silent.items():
            self.fail(site, failure)
        self.check_enough(replies)
        return {site: replies[site] for site in to if site in replies}

    def checked(
        self, replies: dict[str, Message], dtype: type, shapes: Mapping[str, tuple[int, ...]]
    ) -> dict[str, Message]:
        """Return the replies whose arrays are what they must be: most sites may agree on wrong ones."""
        good: dict[str, Message] = {}
        for site, reply in replies.items():
            arrays = {key: np.asarray(reply.get(key)) for key in shapes}
            if all(array.shape == shapes[key] and array.dtype == dtype for key, array in arrays.items()):
                good[site] = reply
            else:
                self.fail(site, Failure(f"misshapen: {', '.join(shapes)} must have the shapes {list(shapes.values())}"))
        self.check_enough(good)
        return good

    def fail(self, site: str, failure: Failure) -> None:
        """Take note that a site is out of this sum."""
        self.found.failed[site] = failure

    def check_enough(self, left: Sized) -> None:
        """Give up where fewer sites are left than the threshold."""
        if len(left) < self.threshold:
            raise TooFewError


def _count(totals: dict[str, int], sizes: Mapping[str, int]) -> None:
    for site, size in sizes.items():
        totals[site] = totals.get(site, 0) + size
