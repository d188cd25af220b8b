"""Which replies a protocol gets to see: everything from outside is hostile until checked here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from fedspan.errors import MessageError
from fedspan.federation.call import Call, Delivery, Failure, Outcome
from fedspan.federation.policy import Policy
from fedspan.wire import Message, canonical, encoded_size, non_finite_key

#: What a reply looks like: key, kind and shape of each value (shape ``None``: any; first extent -1: one per row).
Form = tuple[tuple[str, str, tuple[int, ...] | None], ...]


@dataclass
class Judged:
    """The replies that keep to the policy and their sizes, in name order, and the failures with their reasons.

    `form` is what the accepted replies have in common, where that could be told.
    """

    ok: dict[str, Message] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    failed: dict[str, Failure] = field(default_factory=dict)
    form: Form | None = None


def judge(call: Call, outcomes: Mapping[str, Outcome], policy: Policy, known: Form | None = None) -> Judged:
    """Check every reply against the policy and against the others; `known` is the form of such replies before."""
    judged = Judged()
    ok, sizes, failed = judged.ok, judged.sizes, judged.failed
    sizer = _Sizer()
    for name in call.to:
        outcome = outcomes.get(name, _SILENT)
        if isinstance(outcome, Failure):
            failed[name] = outcome
            continue
        try:
            ok[name], sizes[name] = _checked(call, outcome, policy, sizer)
        except MessageError as error:
            failed[name] = Failure(str(error))
    for name, reason in _misshapen(judged, call, outcomes, known, sizer.all_alike).items():
        del ok[name], sizes[name]
        failed[name] = Failure(reason)
    return judged


_SILENT = Failure("no reply")


class _Sizer:
    """Sizes of replies: those that look like the first one, as most do, have its size."""

    def __init__(self) -> None:
        self.first: Message | None = None
        self.size = 0
        self.all_alike = True

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
    size = size_of(reply)
    if size > policy.max_bytes:
        raise MessageError(f"oversize: the reply has {size} bytes, more than the {policy.max_bytes} allowed")
    if policy.finite:
        key = non_finite_key(reply)
        if key is not None:
            raise MessageError(f"non-finite: {key!r} holds NaN or infinity")
    return reply, size


def _misshapen(
    judged: Judged, call: Call, outcomes: Mapping[str, Outcome], known: Form | None, all_alike: bool
) -> dict[str, str]:
    """Return the sites whose reply has not the keys and shapes that most others have, with the reason.

    Shapes are compared but for the step's `ragged` keys and, where most sites say that a key has one entry per
    row, for its first axis. Where no form is the most common one, the one that was accepted last decides; where
    there is none either, nobody can be blamed, and all stay.
    """
    if not judged.ok:
        return {}
    if len(judged.ok) > 1 and all_alike:
        first = next(iter(judged.ok))
        judged.form = _form(judged.ok[first], call.step.ragged, _mostly_per_row([first], outcomes))
        return {}
    per_row = _mostly_per_row(judged.ok, outcomes)
    forms = {name: _form(reply, call.step.ragged, per_row) for name, reply in judged.ok.items()}
    ranked = [*Counter(forms.values()).most_common(2), (None, 1)]  # one reply alone is no majority
    if ranked[0][1] > ranked[1][1]:
        judged.form = ranked[0][0]
    elif known is not None:
        per_row = frozenset(key for key, _, shape in known if shape and shape[0] == -1)
        forms = {name: _form(reply, call.step.ragged, per_row) for name, reply in judged.ok.items()}
        judged.form = known
    if judged.form is None:
        return {}
    return {name: _difference(form, judged.form) for name, form in forms.items() if form != judged.form}


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


def _mostly_per_row(names: Collection[str], outcomes: Mapping[str, Outcome]) -> frozenset[str]:
    votes: Counter[str] = Counter()
    for name in names:
        outcome = outcomes[name]
        if isinstance(outcome, Delivery):
            votes.update(outcome.per_row)
    return frozenset(key for key, count in votes.items() if 2 * count > len(names))


def form_of(message: Message) -> Form:
    """Return what a message looks like."""
    return _form(message, frozenset(), frozenset())


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


def _difference(form: Form, common: Form) -> str:
    """Say what is wrong with `form`, in words."""
    keys, common_keys = {part[0] for part in form}, {part[0] for part in common}
    if keys != common_keys:
        return f"misshapen: the reply has the keys {sorted(keys)}, most sites sent {sorted(common_keys)}"
    (key, kind, shape), (_, common_kind, common_shape) = next(
        (mine, theirs) for mine, theirs in zip(form, common, strict=True) if mine != theirs
    )
    if kind != common_kind:
        return f"misshapen: {key!r} is {kind}, most sites sent {common_kind}"
    return (
        f"misshapen: {key!r} has the shape {_shown(shape)}, most sites sent {_shown(common_shape)} "
        f"(if that is as it should be, declare the step with @step(ragged=[{key!r}]))"
    )


def _shown(shape: tuple[int, ...] | None) -> str:
    return "(" + ", ".join("rows" if extent == -1 else str(extent) for extent in shape or ()) + ")"
