"""The layout of a reply that is added up, and the way from a reply to words modulo a power of two and back.

The layout travels in the open: keys, shapes and kinds are those of the step, the same at all sites.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.checks import json_value
from fedspan.errors import FedspanError, InputError, MessageError
from fedspan.secure_sum.sum_fixed_point import LARGEST_WHOLE, FixedPoint, Words, encoded_whole
from fedspan.secure_sum.sum_masks import random_words
from fedspan.wire import Message, Value

#: Kinds of values, each of which can hold those before it: counts, whole numbers, reals, complex numbers.
_KINDS = "uifc"
_TEXT = "t"
_MOST_NUMBERS = 2**40
_DTYPES = {"u": np.uint64, "i": np.int64, "f": np.float64, "c": np.complex128}


class SpoiltError(FedspanError):
    """A site had nothing to add, and has made the sum invalid."""


@dataclass(frozen=True)
class Summand:
    """One key of a reply: an `array` or a Python number, of a `kind` of ``uifc``, or ``t`` for anything else."""

    key: str
    kind: str
    array: bool
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of its real or whole numbers."""
        return math.prod(self.shape) * (2 if self.kind == "c" else 1)

    @property
    def is_sound(self) -> bool:
        """Whether a summand from outside is one at all."""
        extents = len(self.shape) <= 32 and all(type(extent) is int and extent >= 0 for extent in self.shape)
        extents = extents and math.prod(max(extent, 1) for extent in self.shape) < _MOST_NUMBERS
        types = isinstance(self.key, str) and isinstance(self.kind, str) and isinstance(self.array, bool)
        return types and extents and self.kind in (*_KINDS, _TEXT) and (self.array or not self.shape)

    def example(self) -> Value:
        """Return a value of this layout that takes no memory."""
        if self.kind == _TEXT:
            return ""
        zero: NDArray[Any] = np.zeros((), dtype=_DTYPES[self.kind])
        return np.broadcast_to(zero, self.shape) if self.array else zero.item()


Layout = tuple[Summand, ...]


def layout_of_reply(reply: Message) -> Layout:
    """Return the layout of a site's reply, in the order of its keys."""
    found = []
    for key, value in reply.items():
        if isinstance(value, np.ndarray):
            kind = {"b": "i", "U": _TEXT, "S": _TEXT}.get(value.dtype.kind, value.dtype.kind)
            found.append(Summand(key, kind, True, value.shape))
        else:
            kinds = {bool: "i", int: "i", float: "f", complex: "c"}
            found.append(Summand(key, kinds.get(type(value), _TEXT), False, ()))
    return tuple(found)


def as_text(layout: Layout) -> str:
    """Return a layout as it travels."""
    return json.dumps([[one.key, one.kind, one.array, one.shape] for one in layout])


def from_text(text: object) -> Layout:
    """Read a layout from outside, or refuse it."""
    try:
        layout = tuple(Summand(key, kind, array, tuple(shape)) for key, kind, array, shape in json_value(str(text)))
        sound = all(one.is_sound for one in layout) and len({one.key for one in layout}) == len(layout)
    except (ValueError, TypeError):
        sound = False
    if not sound:
        raise MessageError("the layout of a reply is not a list of keys, kinds and shapes")
    return layout


def agreed(layouts: Sequence[Layout], step: str) -> Layout:
    """Return the layout that holds the values of all `layouts`, which have the same keys and shapes."""
    by_key = [{one.key: one for one in layout} for layout in layouts]
    result = []
    for summand in layouts[0]:
        same = [layout[summand.key] for layout in by_key]
        kinds, array = {one.kind for one in same}, any(one.array for one in same)
        if _TEXT in kinds:
            what = "text" if array else "not a number or an array of numbers"
            raise InputError(f"the replies of step {step!r} cannot be added up: {summand.key!r} is {what}")
        result.append(replace(summand, kind=max(kinds, key=_KINDS.index), array=array))
    return tuple(result)


def check_fits(own: Layout, layout: Layout) -> None:
    """Refuse a layout that a reply of the layout `own` does not have, or that would cut its numbers off."""
    by_key = {one.key: one for one in own}
    keys = [one.key for one in layout]
    if by_key.keys() != set(keys):
        raise InputError(f"this site's reply has the keys {list(by_key)}, and {keys} were agreed")
    for one in layout:
        mine = by_key[one.key]
        if mine.shape != one.shape:
            raise InputError(f"{one.key!r} has the shape {mine.shape} at this site, and {one.shape} was agreed")
        if _TEXT in (mine.kind, one.kind) or _KINDS.index(mine.kind) > _KINDS.index(one.kind):
            raise InputError(f"{one.key!r} has numbers of kind {mine.kind!r} at this site, {one.kind!r} was agreed")


def out_of_range(reply: Message, numbers: FixedPoint) -> str:
    """Return why a secure sum can't take a reply, or an empty text; only the site itself can look."""
    for key, value in reply.items():
        array = np.asarray(value)
        if array.dtype.kind in "fc":
            parts = [array] if array.dtype.kind == "f" else [array.real, array.imag]
            largest, bound = np.max([np.abs(part).max(initial=0.0) for part in parts]), numbers.largest
            if not np.isfinite(largest):
                return f"{key!r} holds NaN or infinity"
        elif array.dtype.kind in "biu" or isinstance(value, int):
            largest, bound = max(abs(int(array.max(initial=0))), abs(int(array.min(initial=0)))), LARGEST_WHOLE
        else:
            continue
        if largest > bound:
            return f"{key!r} holds a number beyond {bound:g}, the most in a secure sum"
    return ""


def packed(reply: Message, layout: Layout, numbers: FixedPoint, seed: bytes) -> tuple[Words, Words]:
    """Return a reply as words: a flag of 0 and its whole numbers (1, 1 + m), and its real numbers (w, m').

    The site's secret `seed` decides what fills the bits below those that count.
    """
    whole: list[NDArray[Any]] = [np.zeros(1, dtype=np.uint64)]
    real: list[NDArray[np.float64]] = [np.zeros(0)]
    for one in layout:
        value = np.asarray(reply[one.key])
        if one.kind in "ui":
            whole.append(encoded_whole(value.ravel())[0])
        else:
            wide: NDArray[Any] = np.ascontiguousarray(value, dtype=_DTYPES[one.kind])
            real.append(wide.ravel().view(np.float64))
    reals = np.concatenate(real)
    filling = random_words(seed, (numbers.words, len(reals))) if numbers.words > 1 else None
    return np.concatenate(whole)[None], numbers.encoded(reals, filling)


def spoilt(layout: Layout, numbers: FixedPoint) -> tuple[Words, Words]:
    """Return words that make any total meaningless, and its flag another than 0: of a site with nothing to add.

    They are random, so that the sum hides the parts of the others. Zeros instead would let the coordinator leave a site
    out of a sum, by a request that fails there.
    """
    whole, real = (
        np.frombuffer(bytearray(secrets.token_bytes(8 * words * m)), dtype=np.uint64).reshape(words, m)
        for words, m in sizes(layout, numbers)
    )
    whole[0, 0] |= np.uint64(1)
    return whole, real


def unpacked(whole: Words, real: Words, layout: Layout, numbers: FixedPoint, sites: int) -> Message:
    """Return the total over this number of `sites` from the sums of their words; refuse impossible numbers."""
    if whole[0, 0]:
        raise SpoiltError(
            f"at one or more of the {sites} sites the reply holds a number that is not finite or is beyond the range "
            f"of secure sums ({numbers.largest:g}; whole numbers {LARGEST_WHOLE:g}), or the step fails for its rows. "
            "The log of that site names it: give the columns another unit, or more range by SecureSum(largest=...)"
        )
    values = {True: whole[0, 1:].view(np.int64), False: numbers.decoded(real)}
    bounds = {True: LARGEST_WHOLE, False: numbers.largest}
    result: Message = {}
    for one in layout:
        is_whole = one.kind in "ui"
        flat, values[is_whole] = values[is_whole][: one.size], values[is_whole][one.size :]
        if flat.size and np.max(np.abs(flat)) > sites * bounds[is_whole]:
            raise InputError(f"the secure sum of {one.key!r} is beyond what {sites} sites can have")
        value: NDArray[Any] = np.ascontiguousarray(flat).view(_DTYPES[one.kind]).reshape(one.shape)
        result[one.key] = value if one.array else value.item()
    return result


def sizes(layout: Layout, numbers: FixedPoint) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the shapes of the words of a layout; the first whole number is a flag."""
    whole = sum(one.size for one in layout if one.kind in "ui")
    return (1, 1 + whole), (numbers.words, sum(one.size for one in layout) - whole)


def examples(layouts: Mapping[str, Layout]) -> dict[str, Message]:
    """Return for every site a message of its layout, to be compared with the others."""
    return {site: {one.key: one.example() for one in layout} for site, layout in layouts.items()}
