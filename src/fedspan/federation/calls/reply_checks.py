"""Checks of replies against the policy and against each other, before a protocol sees them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, cast

import numpy as np

from fedspan.errors import MessageError
from fedspan.federation.calls.call import Call, Collected, Delivery, Outcome
from fedspan.federation.message_sizes import SameSize, sizes_of
from fedspan.federation.outcomes import Failure, FailureKind
from fedspan.federation.policy import Policy
from fedspan.federation.site.state import NO_CHANGES
from fedspan.wire import Message, canonical, encoded_size, non_finite_key

#: Key, kind and shape of each value of a reply (shape ``None``: any; first extent -1: one entry per row).
Layout = tuple[tuple[str, str, tuple[int, ...] | None], ...]

_NUMBER, _REPLY, _CANONICAL, _CHANGES = map(attrgetter, ("number", "reply", "canonical", "changes"))
_SHAPE, _DTYPE = attrgetter("shape"), attrgetter("dtype")
_NO_KEYS: frozenset[str] = frozenset()
#: Arrays of this size in all are checked at once.
_STACKED_BYTES = 2**22


def check_replies(call: Call, outcomes: Mapping[str, Outcome], policy: Policy) -> Collected:
    """Check every reply against the policy and against the others; sort them in name order."""
    found = all_alike(call, outcomes, policy)
    return found if found is not None else _one_by_one(call, outcomes, policy)


def all_alike(call: Call, outcomes: Mapping[str, Outcome], policy: Policy) -> Collected | None:
    """Return the replies if all of them came, are alike, and keep to the policy: the usual case, checked at once.

    ``None``: something is unusual, and each reply must be checked by itself.
    """
    deliveries: list[Any] = list(map(outcomes.get, call.to))
    if set(map(type, deliveries)) != {Delivery} or set(map(_NUMBER, deliveries)) != {call.number}:
        return None
    if not all(map(_CANONICAL, deliveries)):  # an attack or a fault has touched it
        return None
    replies: list[Message] = list(map(_REPLY, deliveries))
    if set(map(type, replies)) != {dict} or len(set(map(tuple, replies))) != 1:
        return None
    first, keys = replies[0], tuple(replies[0])
    if not all(_usual([reply[key] for reply in replies], policy.finite, key in call.step.counts) for key in keys):
        return None
    size = encoded_size(first)
    if size > policy.max_bytes:
        return None
    found = Collected(dict(zip(call.to, replies, strict=True)), answered=call.to, bytes_up=SameSize(call.to, size))
    changes = list(map(_CHANGES, deliveries))
    if set(map(id, changes)) != {id(NO_CHANGES)}:
        found.changes = {name: one for name, one in zip(call.to, changes, strict=True) if one is not NO_CHANGES}
    return found


def _usual(values: list[Any], finite: bool, counts: bool) -> bool:
    """Return whether the values of one key are all of one type and shape, and finite, or counts, where they must be."""
    kind = type(values[0])
    if set(map(type, values)) != {kind}:
        return False
    if kind is int:
        return not counts or min(values) >= 0
    if counts:
        return False
    if kind is float:
        return not finite or math.isfinite(sum(values))
    if kind is str:
        return values.count(values[0]) == len(values)
    if kind is not np.ndarray:
        return kind is bool or kind is type(None)
    shape, dtype = values[0].shape, values[0].dtype
    if set(map(_SHAPE, values)) != {shape} or set(map(_DTYPE, values)) != {dtype}:
        return False
    if not finite or dtype.kind not in "fc":
        return True
    if len(values) * values[0].nbytes > _STACKED_BYTES:
        return all(math.isfinite(abs(np.vdot(value, value))) for value in values)
    stacked = np.concatenate(values, axis=None)
    return math.isfinite(abs(np.vdot(stacked, stacked)))


def _one_by_one(call: Call, outcomes: Mapping[str, Outcome], policy: Policy) -> Collected:
    """Check each reply by itself."""
    found, sizes = Collected(), {}
    first: Message | None = None  # most replies have the layout of the first one, and so its size
    first_size, every_one_alike = 0, True
    for name in call.to:
        outcome = outcomes.get(name) or Failure(FailureKind.NO_REPLY)
        reply = _checked(call, outcome, policy) if isinstance(outcome, Delivery) else outcome
        if not isinstance(reply, Failure):
            alike = first is not None and alike_in_form(reply, first)
            size = first_size if alike else encoded_size(reply)
            if size <= policy.max_bytes:
                if first is None:
                    first, first_size = reply, size
                every_one_alike &= alike or reply is first
                found.replies[name], sizes[name] = reply, size
                continue
            detail = f"the reply has {size} bytes, more than the {policy.max_bytes} allowed"
            reply = Failure(FailureKind.OVERSIZE, detail)
        found.failed[name] = reply
    if not every_one_alike:
        for name, failure in misshapen(call, found.replies, outcomes).items():
            del found.replies[name], sizes[name]
            found.failed[name] = failure
    found.answered = tuple(found.replies)
    found.bytes_up = sizes_of(found.answered, sizes.values())
    for name in found.answered:
        changes = outcomes[name].changes  # type: ignore[union-attr]
        if changes is not NO_CHANGES:
            found.changes[name] = changes
    return found


def _checked(call: Call, delivery: Delivery, policy: Policy) -> Message | Failure:
    """Return a reply that keeps to the policy by itself, or why it does not."""
    reply, sent = delivery.reply, delivery.sent
    if delivery.number != call.number:
        return Failure(FailureKind.STALE, f"a reply to call {delivery.number} came for call {call.number}")
    if reply is None:
        return Failure(FailureKind.NO_REPLY)
    if not delivery.canonical:
        try:
            reply = canonical(reply, "reply")
        except MessageError as error:
            return Failure(FailureKind.MALFORMED, str(error))
    if sent is not None and layout_of(reply) != layout_of(sent):
        return Failure(FailureKind.MISSHAPEN, _difference(layout_of(reply), layout_of(sent), "the site sent"))
    key = non_finite_key(reply) if policy.finite else None
    if key is not None:
        return Failure(FailureKind.NON_FINITE, f"{key!r} holds NaN or infinity")
    for key in call.step.counts:
        value = reply.get(key, 0)
        if not isinstance(value, int) or value < 0:
            detail = f"{key!r} is {value!r:.40}, and must be a whole number of at least 0"
            return Failure(FailureKind.MISCOUNTED, detail)
    return cast(Message, reply)


def misshapen(call: Call, ok: Mapping[str, Message], outcomes: Mapping[str, Outcome]) -> dict[str, Failure]:
    """Return the sites whose reply has other keys or shapes than most others, with the reason.

    The step's `ragged` keys may have any shape, and where most sites send one entry per row the first axis may differ.
    Replies that are added up must have one shape. Without a most common layout no site can be blamed: all replies
    stay, but they can't be added up.
    """
    adding = call.how in ("sum", "mean")
    per_row = _NO_KEYS if adding else _mostly_per_row(ok, outcomes)
    ragged = _NO_KEYS if adding else call.step.ragged
    layouts = {name: _layout(reply, ragged, per_row) for name, reply in ok.items()}
    ranked = Counter(layouts.values()).most_common(2)
    if len(ranked) <= 1:  # all alike, or no site left
        return {}
    (common, most), (other, next_most) = ranked
    if most > next_most:
        hint = "" if adding else " (if that is intended, name the key in @step(ragged=[...]))"
        details = {name: _difference(its, common, "most sites sent") for name, its in layouts.items() if its != common}
        return {name: Failure(FailureKind.MISSHAPEN, detail + hint) for name, detail in details.items()}
    if not adding:
        return {}
    return {
        name: Failure(FailureKind.MISSHAPEN, _difference(its, other if its == common else common, "others sent"))
        for name, its in layouts.items()
    }


def alike_in_form(a: Message, b: Message) -> bool:
    """Return whether two replies have the same keys, types, shapes and size."""
    if a.keys() != b.keys():
        return False
    for key, value in a.items():
        other = b[key]
        if isinstance(value, np.ndarray):
            if not isinstance(other, np.ndarray) or value.shape != other.shape or value.dtype != other.dtype:
                return False
        elif type(value) is not type(other) or (type(value) is str and value != other):
            return False
    return True


def _mostly_per_row(ok: Mapping[str, Message], outcomes: Mapping[str, Outcome]) -> frozenset[str]:
    votes: Counter[str] = Counter()
    for name in ok:
        outcome = outcomes[name]
        if isinstance(outcome, Delivery):
            shapes = ((key, np.shape(value)) for key, value in ok[name].items())
            votes.update(key for key, shape in shapes if shape and shape[0] == outcome.rows)
    return frozenset(key for key, count in votes.items() if 2 * count > len(ok))


def layout_of(message: Message) -> Layout:
    """Return keys, kinds and shapes of a message."""
    return _layout(message, _NO_KEYS, _NO_KEYS)


def _layout(reply: Message, ragged: frozenset[str], per_row: frozenset[str]) -> Layout:
    parts: list[tuple[str, str, tuple[int, ...] | None]] = []
    for key in sorted(reply):
        if key in ragged:
            parts.append((key, "any", None))
            continue
        shape = np.shape(reply[key])
        parts.append((key, _kind(reply[key]), (-1, *shape[1:]) if shape and key in per_row else shape))
    return tuple(parts)


def _kind(value: object) -> str:
    if value is None:
        return "None"
    kind = np.asarray(value).dtype.kind
    return "text" if kind in "US" else "complex numbers" if kind == "c" else "numbers"


def _difference(layout: Layout, right: Layout, whose: str) -> str:
    """Describe in words what is wrong with `layout`."""
    keys, right_keys = {part[0] for part in layout}, {part[0] for part in right}
    if keys != right_keys:
        return f"the reply has the keys {sorted(keys)}, {whose} {sorted(right_keys)}"
    (key, kind, shape), (_, right_kind, right_shape) = next(
        (mine, theirs) for mine, theirs in zip(layout, right, strict=True) if mine != theirs
    )
    if kind != right_kind:
        return f"{key!r} is {kind}, {whose} {right_kind}"
    return f"{key!r} has the shape {_shown(shape)}, {whose} {_shown(right_shape)}"


def _shown(shape: tuple[int, ...] | None) -> str:
    return "(" + ", ".join("rows" if extent == -1 else str(extent) for extent in shape or ()) + ")"
