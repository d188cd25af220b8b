"""The sites of one sum, as its participants see them, and what a site demands of such a set."""

from __future__ import annotations

import hmac
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from fedspan.checks import json_value
from fedspan.errors import FedspanError, MessageError
from fedspan.federation.policy import MOST_SITES, SecureSum
from fedspan.federation.site.noise_query import message_digest
from fedspan.federation.site.parameters import ArrayOf
from fedspan.secure_sum.sum_fixed_point import FixedPoint
from fedspan.secure_sum.sum_masks import KEY_BYTES

_NO_SET = "the set of sites is not a sorted list of names with a key for each"

Bytes = Annotated[NDArray[np.uint8], ArrayOf("byte", 2)]


@dataclass(frozen=True)
class Group:
    """The sites of a sum as its participants see it. `view` is the same at two sites only if all of it is."""

    names: tuple[str, ...]
    keys: tuple[bytes, ...]  # for the masks of this sum
    threshold: int
    form: str  # the layout of the replies, as it travels
    view: bytes

    def among(self, flags: Sequence[bool]) -> tuple[str, ...]:
        """Return the names of the sites that have a flag."""
        return tuple(name for name, flag in zip(self.names, flags, strict=True) if flag)


def group_of(
    session: str, asked: bytes, numbers: FixedPoint, names: str, keys: Bytes, threshold: int, form: str
) -> Group:
    """Return the set of sites that a message describes; `asked` is the digest of the request that is added up."""
    seen = {
        "session": session,
        "asked": np.frombuffer(asked, dtype=np.uint8),
        "names": names,
        "keys": keys,
        "threshold": threshold,
        "form": form,
        "largest": numbers.largest,
        "fraction_bits": numbers.fraction_bits,
    }
    try:
        listed = tuple(json_value(names))
    except (ValueError, TypeError):
        raise MessageError(_NO_SET) from None
    return Group(listed, tuple(row.tobytes() for row in keys), threshold, form, message_digest(seen))


def check_group(group: Group, me: str, key: bytes, settings: SecureSum, least: int) -> None:
    """Refuse a set in which the site `me`, with this public `key`, may not take part.

    The federation's `settings` and the `least` sites that the site itself demands bound the threshold from below.
    """
    n, threshold = len(group.names), group.threshold
    sound = all(isinstance(name, str) for name in group.names) and tuple(sorted(set(group.names))) == group.names
    if not sound or [len(one) for one in group.keys] != [KEY_BYTES] * n:
        raise MessageError(_NO_SET)
    if n > MOST_SITES:
        raise FedspanError(f"a secure sum is over at most {MOST_SITES} sites, not over {n}")
    if threshold > n:
        raise FedspanError(f"the set has {n} sites, fewer than the threshold of {threshold}")
    needed = max(settings.needed(n), least)
    if threshold < needed:
        raise FedspanError(f"a threshold of {threshold} of {n} sites is below the {needed} that this site demands")
    if me not in group.names or not hmac.compare_digest(group.keys[group.names.index(me)], key):
        raise FedspanError("this site is not in the set with the key that it gave for this sum")
    if len(set(group.keys)) < n:
        raise FedspanError("two sites of the set have the same key")


def checked_flags(alive: NDArray[np.bool_], group: Group, me: int) -> tuple[bool, ...]:
    """Return the flags of the sites that are left, if they are enough and site number `me` is among them."""
    n, left = len(group.names), int(alive.sum())
    if alive.shape != (n,):
        raise MessageError(f"the sites that are left must be {n} flags")
    if left < group.threshold:
        raise FedspanError(f"{left} sites are left, fewer than the threshold of {group.threshold}")
    if not alive[me]:
        raise FedspanError("this site is not among those that are left")
    return tuple(alive.tolist())


def given_away(sets: Collection[frozenset[str]], new: frozenset[str], least: int) -> tuple[str, ...]:
    """Return sites, fewer than `least`, that the totals of one query over `sets` and over `new` would reveal.

    Those are the sites by which two of the sets differ, or that any combination of all totals leaves over. Sites that
    are in the same sets are left over together.

    Examples
    --------
    >>> given_away([frozenset("abcd")], frozenset("abc"), 2), given_away([frozenset("abcd")], frozenset("ab"), 2)
    (('d',), ())
    >>> given_away([frozenset("abcd"), frozenset("ab")], frozenset("bc"), 2)
    ()
    >>> given_away([frozenset("abcd"), frozenset("ab"), frozenset("bc")], frozenset("ac"), 2)
    ('a',)
    >>> given_away([frozenset("abcd"), frozenset("abef")], frozenset("cdef"), 4)
    ('a', 'b')
    """
    if new in sets or not sets:
        return ()
    for before in sets:
        if len(before ^ new) < least:
            return tuple(sorted(before ^ new))
    names = sorted(new.union(*sets))
    members = np.array([[name in one for name in names] for one in (*sets, new)], dtype=np.float64)
    alike, kinds, counts = np.unique(members, axis=1, return_inverse=True, return_counts=True)
    _, sizes, directions = np.linalg.svd(alike, full_matrices=False)
    # Of each kind of site, how much of its own axis is in the span of the sets.
    inside = np.sum(directions[sizes > 1e-9 * sizes[0]] ** 2, axis=0)
    few = ((inside > 1 - 1e-9) & (counts < least))[kinds.ravel()]
    first = kinds.ravel()[few][:1]
    return tuple(name for name, kind in zip(names, kinds.ravel(), strict=True) if kind in first)


def commitment(seed: bytes) -> bytes:
    """Return a digest that shows whether shares gave the right seed, and reveals nothing about it."""
    return blake2b(seed, digest_size=32, person=b"fedspan seed").digest()
