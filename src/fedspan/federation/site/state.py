"""What a site keeps from call to call: named arrays and numbers that change all at once or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field

import numpy as np

from fedspan.wire import Message, Value, canonical


@dataclass(frozen=True)
class Changes:
    """What one call did to a site's state."""

    put: Message = field(default_factory=dict)
    deleted: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.put or self.deleted)

    def applied_to(self, state: Mapping[str, Value]) -> Message:
        """Return `state` with these changes."""
        return {key: value for key, value in state.items() if key not in self.deleted} | self.put


NO_CHANGES = Changes()


class State(MutableMapping[str, Value]):
    """A call's working copy of its site's state.

    Values are copied when they are set or first read, and may then be changed in place. The site's state itself
    changes only after the coordinator has accepted the call's reply, by `changes`.

    Examples
    --------
    >>> state = State({})
    >>> state["w"] = np.zeros(2)
    >>> state["w"] += 1.0
    >>> state["w"]
    array([1., 1.])
    """

    __slots__ = ("_base", "_deleted", "_own")

    def __init__(self, base: Message) -> None:
        self._base = base
        self._own: Message = {}
        self._deleted: set[str] = set()

    def __getitem__(self, key: str) -> Value:
        if key in self._own:
            return self._own[key]
        if key in self._deleted or key not in self._base:
            raise KeyError(key)
        self._own[key] = value = _own_copy(self._base[key])
        return value

    def __setitem__(self, key: str, value: object) -> None:
        self._own[key] = _own_copy(canonical({key: value}, "site state")[key])
        self._deleted.discard(key)

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        self._own.pop(key, None)
        if key in self._base:
            self._deleted.add(key)

    def setdefault(self, key: str, default: object = None) -> Value:
        """Return the kept value of `key`, at first a copy of `default`; it may be changed in place."""
        if key not in self:
            self[key] = default
        return self[key]

    def __iter__(self) -> Iterator[str]:
        yield from (key for key in self._base if key not in self._deleted)
        yield from (key for key in self._own if key not in self._base)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, key: object) -> bool:
        return key in self._own or (key in self._base and key not in self._deleted)

    def changes(self) -> Changes:
        """Return what differs from the state that the call began with."""
        if not self._own and not self._deleted:
            return NO_CHANGES
        put = {
            key: value for key, value in self._own.items() if key not in self._base or not _same(value, self._base[key])
        }
        deleted = tuple(sorted(self._deleted))
        return Changes(canonical(put, "site state"), deleted) if put or deleted else NO_CHANGES


def _own_copy(value: Value) -> Value:
    return value.copy() if isinstance(value, np.ndarray) else value


def _same(a: Value, b: Value) -> bool:
    """Return whether two values are the same to the last bit (NaN equals itself, 0.0 differs from -0.0)."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return type(a) is type(b) and repr(a) == repr(b)
