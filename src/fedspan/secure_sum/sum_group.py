"""The sites of one sum, as its participants see them, and what a site demands of such a set."""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import FedspanError, MessageError
from fedspan.federation.policy import MOST_SITES
from fedspan.secure_sum.sum_fixed_point import FixedPoint
from fedspan.secure_sum.sum_masks import KEY_BYTES
from fedspan.wire import encode

Bytes = NDArray[np.uint8]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Group:
    """The sites of a sum as its participants see it. `view` is the same at two sites only if all of it is."""

    names: tuple[str, ...]
    keys: tuple[bytes, ...]  # for the masks of this sum
    threshold: int
    form: str
    view: bytes

    def among(self, flags: Sequence[bool]) -> tuple[str, ...]:
        """Return the names of the sites that have a flag."""
        return tuple(name for name, flag in zip(self.names, flags, strict=True) if flag)


def group_of(
    session: str, asked: bytes, numbers: FixedPoint, names: str, keys: Bytes, threshold: int, form: str
) -> Group:
    """Return the set of sites that a message describes; `asked` is the digest of what is to be added up."""
    listed = tuple(json.loads(names))
    view = digest(
        {
            "session": session,
            "asked": np.frombuffer(asked, dtype=np.uint8),
            "names": names,
            "keys": keys,
            "threshold": threshold,
            "form": form,
            "largest": numbers.largest,
            "fraction_bits": numbers.fraction_bits,
        }
    )
    return Group(listed, tuple(row.tobytes() for row in keys), threshold, form, view)


def checked_group(
    question: Mapping[str, Any], session: str, asked: bytes, numbers: FixedPoint, me: str, key: bytes, least: int
) -> Group:
    """Return the set of sites of a sum, if the site `me`, whose public key in it is `key`, may take part in it."""
    keys, threshold = question["keys"], question["threshold"]
    try:
        group = group_of(session, asked, numbers, **question)
        right = all(isinstance(name, str) for name in group.names) and tuple(sorted(set(group.names))) == group.names
        right &= keys.dtype == np.uint8 and keys.shape == (len(group.names), KEY_BYTES)
    except (ValueError, TypeError, AttributeError):
        right = False
    if not right:
        raise MessageError("the set of sites is not a sorted list of names with a key for each")
    n = len(group.names)
    if n > MOST_SITES:
        raise FedspanError(f"a secure sum is over at most {MOST_SITES} sites, not over {n}")
    if type(threshold) is not int or threshold > n:
        raise FedspanError(f"the set has {n} sites, fewer than the threshold of {threshold}")
    if threshold < least:
        raise FedspanError(f"a threshold of {threshold} is below the {least} sites that this site demands")
    if 2 * threshold <= n:
        raise FedspanError(f"a threshold of {threshold} is not more than half of the {n} sites")
    if me not in group.names or not hmac.compare_digest(group.keys[group.names.index(me)], key):
        raise FedspanError("this site is not in the set with the key that it gave for this sum")
    if len(set(group.keys)) < n:
        raise FedspanError("two sites of the set have the same key")
    return group


def checked_flags(alive: Flags, group: Group, me: int) -> tuple[bool, ...]:
    """Return who is left of a set, if these are enough and site number `me` is among them."""
    n = len(group.names)
    if not isinstance(alive, np.ndarray) or alive.dtype != np.bool_ or alive.shape != (n,):
        raise MessageError(f"the sites that are left must be told by {n} flags")
    left = int(alive.sum())
    if left < group.threshold:
        raise FedspanError(f"{left} sites are left, fewer than the threshold of {group.threshold}")
    if not alive[me]:
        raise FedspanError("this site is not among those that are left")
    return tuple(alive.tolist())


def digest(question: Mapping[str, object]) -> bytes:
    """Return what tells two messages apart."""
    return blake2b(encode({key: question[key] for key in sorted(question)}), digest_size=32).digest()
