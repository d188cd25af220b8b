"""A site: a name and private data. Steps run next to it, and only what they return leaves it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.federation.state import NO_CHANGES, Changes, State
from fedspan.wire import Message, is_plain_text

Array = NDArray[Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Batch:
    """Some consecutive rows of a site: ``X`` and, where the site has them, ``y`` and ``task``."""

    X: Array
    y: Array | None
    task: Array | None


class Site:
    """A name and private data.

    Parameters
    ----------
    name : str
        Unique within its federation.
    X : array (n, ...), memory map or data frame
        One row per sample. Steps see it read-only.
    y, task : array (n,), optional
        Target and task of each row.

    Attributes
    ----------
    feature_names : tuple of str or None
        The frame's column names.
    state : mutable mapping
        During a run: named arrays and numbers that the site keeps from call to call.
    rng : numpy.random.Generator
        During a run: made on first use from run seed, site name and call number, so a retry draws the same numbers.

    Examples
    --------
    >>> site = Site("clinic", np.arange(6.0).reshape(3, 2))
    >>> len(site), [batch.X.shape for batch in site.batches(2)]
    (3, [(2, 2), (1, 2)])
    """

    def __init__(self, name: str, X: Any, y: Any = None, task: Any = None) -> None:
        if not isinstance(name, str) or not name or not is_plain_text(name):
            raise InputError(f"a site's name must be a non-empty string of plain text, not {name!r}")
        self.name = name
        self._frame = X if hasattr(X, "columns") and hasattr(X, "to_numpy") else None
        names = None if self._frame is None else [str(column) for column in self._frame.columns]
        self.feature_names: tuple[str, ...] | None = None if names is None else tuple(names)
        self._X = _read_only(X if self._frame is None else _frame_values(self._frame), name, "X")
        if self._X.ndim == 0:
            raise InputError(f"site {name!r}: X must have rows, and is a single value")
        self.y = self._column(y, "y")
        self.task = self._column(task, "task")
        self._lens: Callable[[Array], Array] | None = None
        self._computed: dict[str, Any] = {}  # shared with the copies that calls see, so it outlives a call
        self._work: _Work | None = None

    def __len__(self) -> int:
        return len(self._X)

    def __repr__(self) -> str:
        return f"Site({self.name!r}, {'x'.join(map(str, self._X.shape))})"

    @property
    def frame(self) -> Any:
        """The data frame that the site was made of, or ``None``: a copy, as far as writing to it goes."""
        return None if self._frame is None else self._frame.copy(deep=False)

    @property
    def X(self) -> Array:
        """The data, seen through the federation's transforms if there are any."""
        lens = self._lens
        if lens is None:
            return self._X
        return self.cached("", lambda: _read_only(lens(self._X), self.name, "X"))

    @property
    def state(self) -> State:
        """What this site keeps from call to call within a run."""
        work = self._at_work
        if work.state is None:
            work.state = State(work.base)
        return work.state

    @property
    def rng(self) -> np.random.Generator:
        """The generator of this call; not for noise that protects privacy, which the coordinator must not replay."""
        work = self._at_work
        if work.rng is None:
            work.rng = generator(work.seed, self.name, work.call)
        return work.rng

    def batches(self, rows: int) -> Iterator[Batch]:
        """Yield the data in consecutive blocks of `rows` rows, for data larger than memory."""
        if rows < 1:
            raise InputError(f"rows={rows} must be at least 1")
        for start in range(0, len(self), rows):
            part = slice(start, start + rows)
            X = self._X[part] if self._lens is None else self._lens(self._X[part])
            yield Batch(X, None if self.y is None else self.y[part], None if self.task is None else self.task[part])

    def cached(self, key: str, make: Callable[[], T]) -> T:
        """Return ``make()``, computed once per site: for what the data alone decide, such as a Gram matrix.

        Unlike `state` it is not recorded: after a restart it is computed again.
        """
        if key not in self._computed:
            self._computed[key] = make()
        return cast(T, self._computed[key])

    def fingerprint(self) -> str:
        """Describe the data's shape and a digest of up to 1024 rows: tells a journal of other data from this one's."""
        digest = blake2b(digest_size=8)
        step = max(1, len(self) // 1024)
        for column in (self._X, self.y, self.task):
            if column is not None:
                sample = column[::step]
                digest.update(repr(sample.tolist()).encode() if sample.dtype == object else sample.tobytes())
        digest.update(repr(self.feature_names).encode())
        shapes = [f"{'x'.join(map(str, c.shape))} {c.dtype}" for c in (self._X, self.y, self.task) if c is not None]
        return f"{', '.join(shapes)} #{digest.hexdigest()}"

    def through(self, lens: Callable[[Array], Array]) -> Site:
        """Return this site as a transform shows it: same rows, ``X`` transformed when it is read."""
        site = copy.copy(self)
        inner = self._lens
        site._lens = lens if inner is None else lambda X: lens(inner(X))
        site._computed = {}
        site._frame = site.feature_names = None
        return site

    def at_work(self, base: Message, seed: int, call: int) -> Site:
        """Return this site as one call sees it, with `state` (a working copy of `base`) and `rng`."""
        site = object.__new__(Site)
        site.__dict__.update(self.__dict__)
        site._work = _Work(base, seed, call)
        return site

    def changes(self) -> Changes:
        """Return what the call that this site is at work for did to its state."""
        state = self._at_work.state
        return NO_CHANGES if state is None else state.changes()

    @property
    def _at_work(self) -> _Work:
        if self._work is None:
            raise InputError(f"site {self.name!r} has state and rng only inside a step")
        return self._work

    def _column(self, values: Any, what: str) -> Array | None:
        if values is None:
            return None
        column = _read_only(values, self.name, what)
        if column.ndim == 0 or len(column) != len(self):
            raise InputError(f"site {self.name!r}: {what} has shape {column.shape}, but X has {len(self)} rows")
        return column


class _Work:
    """What a site has during one call only."""

    __slots__ = ("base", "call", "rng", "seed", "state")

    def __init__(self, base: Message, seed: int, call: int) -> None:
        self.base = base
        self.seed = seed
        self.call = call
        # Both are made on first use: most steps need neither.
        self.state: State | None = None
        self.rng: np.random.Generator | None = None


def generator(seed: int, *names: object) -> np.random.Generator:
    """Make the generator that belongs to `seed` and `names`: the same whatever was drawn before, anywhere."""
    text = "\0".join([str(seed), *map(str, names)])
    return np.random.default_rng(int.from_bytes(blake2b(text.encode(), digest_size=16).digest(), "little"))


def checked_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return `names` sorted as text, or refuse two that are the same."""
    ordered = tuple(sorted(names))
    for first, second in pairwise(ordered):
        if first == second:
            raise InputError(f"two sites have the name {first!r}: names must be unique")
    if not ordered:
        raise InputError("a federation needs at least one site")
    return ordered


def _frame_values(frame: Any) -> Array:
    """Return a data frame's values: as numbers where all columns are, also those of pandas' own nullable types."""
    values: Array = frame.to_numpy()
    if values.dtype == object and all(getattr(dtype, "kind", "O") in "buif" for dtype in frame.dtypes):
        values = frame.to_numpy(dtype=np.float64, na_value=np.nan)
    return values


def _read_only(values: Any, site: str, what: str) -> Array:
    if hasattr(values, "tocsr"):
        raise InputError(f"site {site!r}: {what} is a sparse matrix, which fedspan does not take: give a dense array")
    array: Array = values if isinstance(values, np.ndarray) else np.asarray(values)
    view = array.view()
    view.flags.writeable = False
    return view
