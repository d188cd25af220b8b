"""What a reply that is to be added up looks like, and the way from a reply to words modulo a power of two and back.

The form of a reply is told in the open: its keys, shapes and kinds are the step's, the same at all sites.
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

from fedspan.errors import FedspanError, InputError, MessageError
from fedspan.secure_sum.sum_fixed_point import LARGEST_WHOLE, FixedPoint, decoded_whole, encoded_whole
from fedspan.secure_sum.sum_modular import Words
from fedspan.wire import Message, Value

#: Kinds of values in the order in which they give way to each other: counts, whole numbers, reals, complex numbers.
_KINDS = "uifc"
_TEXT = "t"
_MOST_NUMBERS = 2**40
_DTYPES = {"u": np.uint64, "i": np.int64, "f": np.float64, "c": np.complex128}


class SpoiltError(FedspanError):
    """Some site had no part to give, and has said so to the sum alone."""


@dataclass(frozen=True)
class Part:
    """One key of a reply: an `array` or a Python number, of a `kind` of ``uifc``, or ``t`` for anything else."""

    key: str
    kind: str
    array: bool
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many real or whole numbers it is."""
        return math.prod(self.shape) * (2 if self.kind == "c" else 1)

    def example(self) -> Value:
        """Return a value of this form that takes no memory."""
        if self.kind == _TEXT:
            return ""
        zero: NDArray[Any] = np.zeros((), dtype=_DTYPES[self.kind])
        return np.broadcast_to(zero, self.shape) if self.array else zero.item()


Form = tuple[Part, ...]


def form_of(reply: Message) -> Form:
    """Return the form of a site's reply, in the order of its keys."""
    return tuple(_part(key, value) for key, value in reply.items())


def _part(key: str, value: Value) -> Part:
    if isinstance(value, np.ndarray):
        kind = {"b": "i", "U": _TEXT, "S": _TEXT}.get(value.dtype.kind, value.dtype.kind)
        return Part(key, kind, True, value.shape)
    kinds = {bool: "i", int: "i", float: "f", complex: "c"}
    return Part(key, kinds.get(type(value), _TEXT), False, ())


def as_text(form: Form) -> str:
    """Return a form as it travels."""
    return json.dumps([[part.key, part.kind, part.array, part.shape] for part in form])


def from_text(text: object) -> Form:
    """Read a form from outside, or refuse it."""
    try:
        form = tuple(Part(key, kind, array, tuple(shape)) for key, kind, array, shape in json.loads(str(text)))
    except (ValueError, TypeError):
        form = (Part("", "", False, ()),)
    if not all(map(_is_sound, form)) or len({part.key for part in form}) < len(form):
        raise MessageError("the form of a reply is not a list of keys, kinds and shapes")
    return form


def _is_sound(part: Part) -> bool:
    extents = len(part.shape) <= 32 and all(type(extent) is int and extent >= 0 for extent in part.shape)
    extents = extents and math.prod(max(extent, 1) for extent in part.shape) < _MOST_NUMBERS
    right = isinstance(part.key, str) and isinstance(part.kind, str) and isinstance(part.array, bool)
    return right and extents and part.kind in tuple(_KINDS + _TEXT) and (part.array or not part.shape)


def agreed(forms: Sequence[Form], step: str) -> Form:
    """Return the form that holds the values of all `forms`, which have the same keys and shapes."""
    by_key = [{part.key: part for part in form} for form in forms]
    result = []
    for part in forms[0]:
        parts = [form[part.key] for form in by_key]
        kinds = {one.kind for one in parts}
        array = any(one.array for one in parts)
        if _TEXT in kinds:
            what = "text" if array else "not a number or an array of numbers"
            raise InputError(f"the replies of step {step!r} cannot be added up: {part.key!r} is {what}")
        result.append(replace(part, kind=max(kinds, key=_KINDS.index), array=array))
    return tuple(result)


def out_of_range(reply: Message, numbers: FixedPoint) -> str:
    """Say in words why a secure sum cannot take a reply, if so: nobody else can look at it, so the site itself must."""
    for key, value in reply.items():
        array = np.asarray(value)
        if array.dtype.kind in "fc":
            real = np.abs(array.real if array.dtype.kind == "f" else np.maximum(abs(array.real), abs(array.imag)))
            largest, bound = real.max(initial=0.0), numbers.largest
            if not np.isfinite(largest):
                return f"{key!r} holds NaN or infinity"
        elif array.dtype.kind in "biu" or isinstance(value, int):
            largest, bound = max(abs(int(array.max(initial=0))), abs(int(array.min(initial=0)))), LARGEST_WHOLE
        else:
            continue
        if largest > bound:
            return f"{key!r} holds a number beyond {bound:g}, the most in a secure sum"
    return ""


def packed(reply: Message, form: Form, numbers: FixedPoint) -> tuple[Words, Words]:
    """Return a reply as words: a flag of 0 and its whole numbers (1, 1 + m), and its real numbers (w, m')."""
    whole: list[NDArray[Any]] = [np.zeros(1, dtype=np.uint64)]
    real: list[NDArray[np.float64]] = []
    for part in form:
        value = np.asarray(reply[part.key])
        if part.kind in "ui":
            whole.append(encoded_whole(value.ravel())[0])
        else:
            wide: NDArray[Any] = np.ascontiguousarray(value, dtype=_DTYPES[part.kind])
            real.append(wide.ravel().view(np.float64))
    return _joined(whole, np.uint64)[None], numbers.encoded(_joined(real, np.float64))


def check_fits(own: Form, form: Form) -> None:
    """Refuse a form that a reply of the form `own` does not have, or that would cut its numbers off."""
    by_key = {part.key: part for part in own}
    if by_key.keys() != {part.key for part in form}:
        keys = [part.key for part in form]
        raise InputError(f"this site's reply has the keys {list(by_key)}, and {keys} were agreed")
    for part in form:
        mine = by_key[part.key]
        if mine.shape != part.shape:
            raise InputError(f"{part.key!r} has the shape {mine.shape} at this site, and {part.shape} was agreed")
        if _TEXT in (mine.kind, part.kind) or _KINDS.index(mine.kind) > _KINDS.index(part.kind):
            raise InputError(f"{part.key!r} has numbers of kind {mine.kind!r} at this site, {part.kind!r} was agreed")


def spoilt(form: Form, numbers: FixedPoint) -> tuple[Words, Words]:
    """Return words that make any total nonsense, and its flag another than 0: of a site that has no part to give.

    They are random, so that the parts of the others are as hidden as if they had not been added up at all: a site that
    sent zeros instead could be made the means of leaving itself out.
    """
    whole, real = (
        np.frombuffer(bytearray(secrets.token_bytes(8 * words * m)), dtype=np.uint64).reshape(words, m)
        for words, m in sizes(form, numbers)
    )
    whole[0, 0] |= np.uint64(1)
    return whole, real


def unpacked(whole: Words, real: Words, form: Form, numbers: FixedPoint, sites: int) -> Message:
    """Return the reply that the sums `whole` and `real` over so many `sites` are words of; refuse impossible ones."""
    if whole[0, 0]:
        raise SpoiltError(
            f"at one or more of the {sites} sites the reply holds a number that is not finite or is beyond the range "
            f"of secure sums ({numbers.largest:g}; whole numbers {LARGEST_WHOLE:g}), or the step fails for its rows: "
            "which site it is only its own log tells; give the columns another unit, or more range by "
            "SecureSum(largest=...)"
        )
    counts, values = decoded_whole(whole), numbers.decoded(real)
    result: Message = {}
    at = {"whole": 1, "real": 0}
    for part in form:
        which, source, bound = (
            ("whole", counts, LARGEST_WHOLE) if part.kind in "ui" else ("real", values, numbers.largest)
        )
        flat = source[at[which] : at[which] + part.size]
        at[which] += part.size
        if flat.size and np.max(np.abs(flat)) > sites * bound:
            raise InputError(f"the secure sum of {part.key!r} is beyond what {sites} sites can have")
        value: NDArray[Any] = np.ascontiguousarray(flat).view(_DTYPES[part.kind]).reshape(part.shape)
        result[part.key] = value if part.array else value.item()
    return result


def sizes(form: Form, numbers: FixedPoint) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the shapes of the words of a form; the first whole number is a flag."""
    whole = sum(part.size for part in form if part.kind in "ui")
    return (1, 1 + whole), (numbers.words, sum(part.size for part in form) - whole)


def examples(form: Mapping[str, Form]) -> dict[str, Message]:
    """Return for every site a message of its form, to be compared with the others."""
    return {site: {part.key: part.example() for part in parts} for site, parts in form.items()}


def _joined(arrays: Sequence[NDArray[Any]], dtype: type) -> NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=dtype)
