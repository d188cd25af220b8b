"""Queries to the sites of one secure sum: repeated once where no answer came."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import replace
from typing import Any

import numpy as np

from fedspan.federation.calls.call import Call, Collected, Exchange
from fedspan.federation.outcomes import Failure, FailureKind
from fedspan.federation.policy import SecureSum
from fedspan.federation.site.noise_query import request_digest
from fedspan.federation.site.steps import find_step
from fedspan.secure_sum.sum_fixed_point import FixedPoint
from fedspan.wire import Message, canonical


class TooFewError(Exception):
    """Fewer sites are left than a sum needs."""


class Queries:
    """The queries of the sum of the replies to `call`; they fill `found` as sites answer."""

    def __init__(self, call: Call, settings: SecureSum, exchange: Exchange, found: Collected) -> None:
        self.call = call
        self.numbers = FixedPoint.of(settings)
        self.threshold = settings.needed(len(call.to))
        self.exchange = exchange
        self.found = found
        self.parts = 0
        # No other sum has this name, not even one of a coordinator that was killed and begins again.
        self.session = f"{call.run}/{call.number}/{secrets.token_hex(8)}"
        # Every site computes this digest of what it received: sites that received something else do not agree.
        self.asked = request_digest(
            call.step.id, call.payload, call.transform_digests, call.run, call.number, call.seed
        )

    def ask(
        self,
        step: Callable[..., Any],
        to: Sequence[str],
        payload: Message,
        apart: Mapping[str, Message] | None = None,
        reads: bool = False,
    ) -> dict[str, Message]:
        """Send one query to the sites `to`, and once more to those that did not answer; return the replies.

        With `reads` it is the query that reads data, through the call's transforms.
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
                transforms=self.call.transforms if reads else (),
                how="ask",
                part=self.parts,
                apart={site: canonical(apart[site], "payload") for site in left} if apart else {},
            )
            self.parts += 1
            came = self.exchange(call)
            replies |= came.replies
            silent = came.failed
            self.found.changes |= came.changes
            _count(self.found.bytes_up, came.bytes_up)
            _count(self.found.bytes_down, came.bytes_down)
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
        """Return the replies whose arrays have the right types and shapes: most sites may agree on wrong ones."""
        good: dict[str, Message] = {}
        for site, reply in replies.items():
            arrays = {key: np.asarray(reply.get(key)) for key in shapes}
            if all(array.shape == shapes[key] and array.dtype == dtype for key, array in arrays.items()):
                good[site] = reply
            else:
                self.fail(
                    site,
                    Failure(FailureKind.MISSHAPEN, f"{', '.join(shapes)} must have the shapes {list(shapes.values())}"),
                )
        self.check_enough(good)
        return good

    def fail(self, site: str, failure: Failure) -> None:
        """Note that a site is out of this sum."""
        self.found.failed[site] = failure

    def check_enough(self, left: Sized) -> None:
        """Give up where fewer sites are left than the threshold."""
        if len(left) < self.threshold:
            raise TooFewError


def _count(totals: dict[str, int], sizes: Mapping[str, int]) -> None:
    for site, size in sizes.items():
        totals[site] = totals.get(site, 0) + size
