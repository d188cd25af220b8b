"""The coordinator's side of the secure sum: five queries to the sites, none of which reveals a single part.

After Bonawitz et al. (2017), "Practical secure aggregation for privacy-preserving machine learning". A site that leaves
after it has shared its secrets costs its part alone: the others' shares of its key remove its masks. A query without an
answer is sent once more; a site that has answered it repeats its answer.
"""

from __future__ import annotations

import json
import secrets
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.checks import frames_inside
from fedspan.errors import FedspanError, InputError, MessageError, PolicyError
from fedspan.federation.calls.call import Call, Collected, Exchange
from fedspan.federation.calls.reply_checks import misshapen
from fedspan.federation.message_sizes import added
from fedspan.federation.outcomes import Failure, FailureKind
from fedspan.federation.policy import MOST_SITES, SecureSum
from fedspan.federation.site.noise_query import query_digest, request_digest
from fedspan.federation.site.steps import find_step
from fedspan.secure_sum import sum_layout as layouts
from fedspan.secure_sum import sum_site_steps as site_steps
from fedspan.secure_sum.sum_fixed_point import FixedPoint, Words, add
from fedspan.secure_sum.sum_group import Group, commitment, given_away, group_of
from fedspan.secure_sum.sum_masks import KEY_BYTES, KeyPair, mask, primitives
from fedspan.secure_sum.sum_secret_shares import SHARE_BYTES, Joiner
from fedspan.wire import Message, canonical

Bytes = NDArray[np.uint8]


class SecureSummation:
    """Adds replies up by the double-masking protocol (`fedspan.federation.calls.call.Summation`)."""

    def __init__(self, settings: SecureSum) -> None:
        self.settings = settings
        self._made: dict[bytes, list[_Made]] = {}  # by query

    def check_possible(self, what: str, n_sites: int) -> None:
        """Refuse a sum that can't be secure, before any site is contacted."""
        primitives()
        least = self.settings.least
        if not least <= n_sites <= MOST_SITES:
            raise PolicyError(
                f"{what} over {n_sites} site{'s' * (n_sites != 1)} cannot be a secure one: that takes from {least} to "
                f"{MOST_SITES} sites (the sum over one would be its part)"
            )

    def check_set(self, call: Call) -> None:
        """Refuse a sum over other sites than before, if together they reveal the sum over too few.

        Warn of such a difference with another run: sites remember the sets of each run alone.
        """
        now, others = frozenset(call.to), [made for made in self._made.get(_query(call), ()) if made.to != call.to]
        why = _reveals(call, [made.sites for made in others if made.run == call.run], now, self.settings.least)
        if why:
            raise PolicyError(why)
        if all(made.to != call.to for made in self._made.get(_query(call), ())):
            why = _reveals(call, [made.sites for made in others], now, self.settings.least)
            if why:
                warnings.warn(why, stacklevel=frames_inside())

    def made(self, call: Call, answered: tuple[str, ...]) -> None:
        """Note a total that the coordinator has."""
        known, new = self._made.setdefault(_query(call), []), _Made(call.run, call.to, frozenset(answered))
        if new not in known:
            known.append(new)

    def collect(self, call: Call, exchange: Exchange, needed: int) -> Collected:
        """Return the sum of the replies to `call`, without showing them to the coordinator.

        A sum over fewer than `needed` sites is given up before it is uncovered. It may be made again over more sites,
        and the difference would be one site's part.
        """
        found = Collected()
        before = [made.sites for made in self._made.get(_query(call), ()) if made.run == call.run]
        try:
            _Sum(call, self.settings, exchange, found).make(needed, before)
        except TooFewError:
            found.answered = ()
        except InputError as error:
            found.error = str(error)
        except layouts.SpoiltError as error:
            found.error = f"the secure sum of step {call.step.id!r} is refused: {error}"
        except FedspanError as error:
            found.error = f"the secure sum of step {call.step.id!r} failed: {error}"
        # A site that gave a masked reply is in the total, even if it was not reached again.
        failed = found.failed.keys() - set(found.answered)
        found.failed = {site: found.failed[site] for site in call.to if site in failed}
        found.changes = {site: found.changes[site] for site in found.answered if site in found.changes}
        return found


@dataclass(frozen=True)
class _Made:
    """A sum that was made: its run, the sites that were requested, and those that are in it."""

    run: str
    to: tuple[str, ...]
    sites: frozenset[str]


def _query(call: Call) -> bytes:
    return query_digest(call.step.id, call.payload, call.transform_digests, b"")


def _reveals(call: Call, sets: list[frozenset[str]], now: frozenset[str], least: int) -> str:
    """Return a sentence about the sites whose sum the totals over `sets` and over `now` reveal, empty if none."""
    few = given_away(sets, now, least)
    if not few:
        return ""
    before = " and ".join(f"over {size}" for size in sorted({len(one) for one in sets}))
    return (
        f"the secure sums of step {call.step.id!r} {before} and over {len(now)} sites reveal the sum over "
        f"{', '.join(map(repr, few))} by their difference, fewer than the {least} sites that a sum may be over: "
        "request the same sites for the same query, or begin a new run"
    )


class TooFewError(Exception):
    """Fewer sites are left than a sum needs."""


class _Sum:
    """One secure sum of the replies to `call`; it fills `found` as sites answer."""

    def __init__(self, call: Call, settings: SecureSum, exchange: Exchange, found: Collected) -> None:
        self.call = call
        self.numbers = FixedPoint.of(settings)
        self.threshold = settings.needed(len(call.to))
        self.least = settings.least
        self.exchange = exchange
        self.found = found
        self.parts = 0
        # No other sum has this name, not even one of a coordinator that was killed and begins again.
        self.session = f"{call.run}/{call.number}/{secrets.token_hex(8)}"
        # Every site computes this digest of the request that it received: they agree only if it is the same one.
        self.asked = request_digest(
            call.step.id, call.payload, call.transform_digests, call.run, call.number, call.seed
        )

    def make(self, needed: int, before: list[frozenset[str]]) -> None:
        """Make the five queries, and keep the total and the sites that are in it.

        A total that reveals too much beside those over the sets `before` is not uncovered.
        """
        group, commitments, sealed = self.share(*self.offer())
        there = [k for k, name in enumerate(group.names) if name in sealed]
        if len(there) < needed:  # a site gives its masked reply to one set a call: not to this one
            raise TooFewError
        came, totals = self.masked(group, there, sealed)
        if len(came) < needed:
            raise TooFewError
        left = frozenset(group.names[k] for k in came)
        if why := _reveals(self.call, before, left, self.least):
            raise InputError(why)
        self.unmask(group, there, came, commitments, totals)
        self.found.replies = {"": layouts.unpacked(*totals, layouts.from_text(group.form), self.numbers, len(came))}
        self.found.answered = tuple(group.names[k] for k in came)

    def offer(self) -> tuple[dict[str, Message], layouts.Layout]:
        """Have the sites run the step; return their keys, and the layout of the replies of most of them."""
        payload = {
            "what": self.call.step.id,
            "largest": self.numbers.largest,
            "fraction_bits": self.numbers.fraction_bits,
            **{site_steps.PAYLOAD + key: value for key, value in self.call.payload.items()},
        }
        replies = self.query(site_steps.offer, self.call.to, payload, transforms=self.call.transforms)
        offers = self.checked(replies, np.uint8, {"key": (KEY_BYTES,)})
        read: dict[str, layouts.Layout] = {}
        for site, reply in offers.items():
            try:
                read[site] = layouts.from_text(reply.get("form"))
            except MessageError as error:
                self.found.failed[site] = Failure(FailureKind.MALFORMED, str(error))
        for site, failure in misshapen(replace(self.call, how="sum"), layouts.examples(read), {}).items():
            self.found.failed[site] = failure
            del read[site]
        self.check_enough(read)
        return {site: offers[site] for site in read}, layouts.agreed(list(read.values()), self.call.step.id)

    def share(
        self, offers: dict[str, Message], layout: layouts.Layout
    ) -> tuple[Group, dict[str, bytes], dict[str, Bytes]]:
        """Have the sites share their secrets; return what each of them sealed for the others."""
        names = tuple(offers)
        described: Message = {
            "names": json.dumps(names),
            "keys": np.stack([offers[name]["key"] for name in names]),
            "threshold": self.threshold,
            "form": layouts.as_text(layout),
        }
        shapes = {"sealed": (len(names), site_steps.SEALED_BYTES), "commitment": (KEY_BYTES,)}
        replies = self.checked(self.query(site_steps.share, names, described), np.uint8, shapes)
        group = group_of(self.session, self.asked, self.numbers, **described)
        commitments = {name: reply["commitment"].tobytes() for name, reply in replies.items()}
        return group, commitments, {name: reply["sealed"] for name, reply in replies.items()}

    def masked(
        self, group: Group, there: list[int], sealed: Mapping[str, Bytes]
    ) -> tuple[list[int], tuple[Words, Words]]:
        """Forward the sealed shares; return which masked replies came, and their sum."""
        names = [group.names[k] for k in there]
        apart = {group.names[k]: {"sealed": np.stack([sealed[name][k] for name in names])} for k in there}
        replies = self.query(site_steps.masked, names, {"alive": _flags(group, there)}, apart)
        whole, real = layouts.sizes(layouts.from_text(group.form), self.numbers)
        replies = self.checked(replies, np.uint64, {"whole": whole, "real": real})
        totals = np.zeros(whole, dtype=np.uint64), np.zeros(real, dtype=np.uint64)
        for reply in replies.values():
            add(totals[0], reply["whole"])
            add(totals[1], reply["real"])
        return [k for k in there if group.names[k] in replies], totals

    def unmask(
        self,
        group: Group,
        there: list[int],
        came: list[int],
        commitments: Mapping[str, bytes],
        totals: tuple[Words, ...],
    ) -> None:
        """Remove the masks from `totals`: the own ones of sites that came, and those of pairs with sites that left."""
        n = len(group.names)
        replies = self.query(site_steps.confirm, [group.names[k] for k in came], {"alive": _flags(group, came)})
        tags = {
            site: reply["tags"] for site, reply in self.checked(replies, np.uint8, {"tags": (n, KEY_BYTES)}).items()
        }
        none = np.zeros((n, KEY_BYTES), dtype=np.uint8)
        apart = {
            group.names[k]: {"tags": np.stack([tags.get(name, none)[k] for name in group.names])}
            for k in came
            if group.names[k] in tags
        }
        replies = self.query(site_steps.unmask, tuple(apart), {}, apart)
        replies = self.checked(replies, np.uint8, {"shares": (n, SHARE_BYTES)})
        held = {k: replies[group.names[k]]["shares"] for k in came if group.names[k] in replies}
        joiner = Joiner(list(held), self.threshold)
        plus: list[bytes] = []
        minus: list[bytes] = []
        for k in there:
            secret = joiner({holder: shares[k].tobytes() for holder, shares in held.items()})
            if k in came:
                right = commitment(secret) == commitments[group.names[k]]
                minus.append(secret)
            else:
                key = KeyPair(secret)
                right = key.public == group.keys[k]
                # The others have added the masks of pairs with later ones, and subtracted those with earlier ones.
                for other, seed in site_steps.pair_seeds(key, k, group, came).items() if right else ():
                    (minus if other < k else plus).append(seed)
            if not right:
                raise FedspanError(f"the shares of site {group.names[k]!r} do not fit: some site sends wrong ones")
        mask(totals, plus, minus)

    def query(
        self,
        step: Callable[..., Any],
        to: Sequence[str],
        payload: Message,
        apart: Mapping[str, Message] | None = None,
        transforms: tuple[Any, ...] = (),
    ) -> dict[str, Message]:
        """Send one query to the sites `to`, and once more to those that did not answer; return the replies."""
        replies: dict[str, Message] = {}
        left = tuple(to)
        for _ in range(2):
            call = replace(
                self.call,
                step=find_step(step),
                payload=canonical({"session": self.session, **payload}, "payload"),
                to=left,
                transforms=transforms,
                how="ask",
                part=self.parts,
                apart={site: canonical(apart[site], "payload") for site in left} if apart else {},
            )
            self.parts += 1
            came = self.exchange(call)
            replies |= came.replies
            self.found.changes |= came.changes
            self.found.bytes_up = added(self.found.bytes_up, came.bytes_up)
            self.found.bytes_down = added(self.found.bytes_down, came.bytes_down)
            left = tuple(came.failed)
            if not left:
                break
        self.found.failed |= came.failed
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
                detail = f"{', '.join(shapes)} must have the shapes {list(shapes.values())}"
                self.found.failed[site] = Failure(FailureKind.MISSHAPEN, detail)
        self.check_enough(good)
        return good

    def check_enough(self, left: Sized) -> None:
        """Give up where fewer sites are left than the threshold."""
        if len(left) < self.threshold:
            raise TooFewError


def _flags(group: Group, members: Iterable[int]) -> NDArray[np.bool_]:
    flags = np.zeros(len(group.names), dtype=np.bool_)
    flags[list(members)] = True
    return flags
