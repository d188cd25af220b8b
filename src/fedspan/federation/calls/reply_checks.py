"""Which replies a protocol gets to see: everything from outside is hostile until checked here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fedspan.errors import MessageError
from fedspan.federation.calls.call import Call, Delivery, Failure, Outcome
from fedspan.federation.policy import Policy
from fedspan.wire import Message, canonical, encoded_size, non_finite_key

#: What a reply looks like: key, kind and shape of each value (shape ``None``: any; first extent -1: one per row).
Form = tuple[tuple[str, str, tuple[int, ...] | None], ...]

_NO_KEYS: frozenset[str] = frozenset()
_SILENT = Failure("no reply")


@dataclass
class Judged:
    """The replies that keep to the policy and their sizes, in name order, and the failures with their reasons."""

    ok: dict[str, Message] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    failed: dict[str, Failure] = field(default_factory=dict)


def judge(call: Call, outcomes: Mapping[str, Outcome], policy: Policy) -> Judged:
    """Check every reply against the policy and against the others."""
    judged = Judged()
    ok, sizes, failed = judged.ok, judged.sizes, judged.failed
    sizer = _Sizer()
    for name in call.to:
        outcome = outcomes.get(name, _SILENT)
        if isinstance(outcome, Failure):
            failed[name] = outcome
            continue
        try:
            if outcome.canonical and sizer.is_usual(outcome, call.number, policy):
                ok[name], sizes[name] = _counted(call, outcome.reply), sizer.size
                continue
            ok[name], sizes[name] = _checked(call, outcome, policy, sizer)
        except MessageError as error:
            failed[name] = Failure(str(error))
    if not sizer.all_alike:
        for name, reason in misshapen(call, ok, outcomes).items():
            del ok[name], sizes[name]
            failed[name] = Failure(reason)
    return judged


class _Sizer:
    """Sizes of replies: those that look like the first one, as most do, have its size."""

    def __init__(self) -> None:
        self.first: Message | None = None
        self.size = 0
        self.all_alike = True

    def is_usual(self, delivery: Delivery, number: int, policy: Policy) -> bool:
        """Whether an untouched reply looks like the first one and is in order: most are, and need no second look."""
        if self.first is None or delivery.number != number or delivery.sent is not None:
            return False
        return _alike(delivery.reply, self.first) and not (policy.finite and non_finite_key(delivery.reply))

    def __call__(self, reply: Message) -> int:
        if self.first is None:
            self.first, self.size = reply, encoded_size(reply)
            return self.size
        if _alike(reply, self.first):
            return self.size
        self.all_alike = False
        return encoded_size(reply)


def _checked(call: Call, delivery: Delivery, policy: Policy, size_of: _Sizer) -> tuple[Message, int]:
    if delivery.number != call.number:
        raise MessageError(f"stale: a reply to call {delivery.number} came for call {call.number}")
    if delivery.reply is None:
        raise MessageError("no reply")
    reply: Message = delivery.reply if delivery.canonical else canonical(delivery.reply, "reply")
    if delivery.sent is not None and form_of(reply) != form_of(delivery.sent):
        raise MessageError(_difference(form_of(reply), form_of(delivery.sent), "the site sent"))
    size = size_of(reply)
    if size > policy.max_bytes:
        raise MessageError(f"oversize: the reply has {size} bytes, more than the {policy.max_bytes} allowed")
    if policy.finite:
        key = non_finite_key(reply)
        if key is not None:
            raise MessageError(f"non-finite: {key!r} holds NaN or infinity")
    return _counted(call, reply), size


def _counted(call: Call, reply: Message) -> Message:
    """Return a reply whose counts can be."""
    for key in call.step.counts:
        value = reply.get(key, 0)
        if not isinstance(value, int) or value < 0:
            raise MessageError(f"miscounted: {key!r} is {value!r:.40}, and must be a whole number of at least 0")
    return reply


def misshapen(call: Call, ok: Mapping[str, Message], outcomes: Mapping[str, Outcome]) -> dict[str, str]:
    """Return the sites whose reply has not the keys and shapes that most others have, with the reason.

    Shapes are compared but for the step's `ragged` keys and, where most sites say that a key has one entry per
    row, for its first axis; what is to be added up must have one shape altogether. Where no form is the most common
    one nobody can be blamed: then all stay, but none of them can be added up.
    """
    adding = call.how != "ask"
    per_row = _NO_KEYS if adding else _mostly_per_row(ok, outcomes)
    ragged = _NO_KEYS if adding else call.step.ragged
    forms = {name: _form(reply, ragged, per_row) for name, reply in ok.items()}
    ranked = Counter(forms.values()).most_common(2)
    if len(ranked) <= 1:  # all alike, or nobody left
        return {}
    (common, most), (other, next_most) = ranked
    if most > next_most:
        hint = "" if adding else " (if that is as it should be, name the key in @step(ragged=[...]))"
        told = {name: _difference(form, common, "most sites sent") for name, form in forms.items() if form != common}
        return {name: reason + hint for name, reason in told.items()}
    if not adding:
        return {}
    return {name: _difference(form, other if form == common else common, "others sent") for name, form in forms.items()}


def _alike(a: Message, b: Message) -> bool:
    """Whether two replies have the same keys, kinds, shapes and size: the quick test for the usual case."""
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


def form_of(message: Message) -> Form:
    """Return what a message looks like."""
    return _form(message, _NO_KEYS, _NO_KEYS)


def _form(reply: Message, ragged: frozenset[str], per_row: frozenset[str]) -> Form:
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


def _difference(form: Form, right: Form, whose: str) -> str:
    """Say what is wrong with `form`, in words."""
    keys, right_keys = {part[0] for part in form}, {part[0] for part in right}
    if keys != right_keys:
        return f"misshapen: the reply has the keys {sorted(keys)}, {whose} {sorted(right_keys)}"
    (key, kind, shape), (_, right_kind, right_shape) = next(
        (mine, theirs) for mine, theirs in zip(form, right, strict=True) if mine != theirs
    )
    if kind != right_kind:
        return f"misshapen: {key!r} is {kind}, {whose} {right_kind}"
    return f"misshapen: {key!r} has the shape {_shown(shape)}, {whose} {_shown(right_shape)}"


def _shown(shape: tuple[int, ...] | None) -> str:
    return "(" + ", ".join("rows" if extent == -1 else str(extent) for extent in shape or ()) + ")"
