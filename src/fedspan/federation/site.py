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

    __slots__ = ("_data", "_work")

    def __init__(self, name: str, X: Any, y: Any = None, task: Any = None) -> None:
        self._data = _Data(name, X, y, task)
        self._work: _Work | None = None

    def __len__(self) -> int:
        return len(self._data.X)

    def __repr__(self) -> str:
        return f"Site({self.name!r}, {'x'.join(map(str, self._data.X.shape))})"

    @property
    def name(self) -> str:
        """The site's name."""
        return self._data.name

    @property
    def y(self) -> Array | None:
        """The target of each row."""
        return self._data.y

    @property
    def task(self) -> Array | None:
        """The task of each row."""
        return self._data.task

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The data frame's column names."""
        return self._data.feature_names

    @property
    def frame(self) -> Any:
        """The data frame that the site was made of, or ``None``: a copy, as far as writing to it goes."""
        return None if self._data.frame is None else self._data.frame.copy(deep=False)

    @property
    def X(self) -> Array:
        """The data, seen through the federation's transforms if there are any."""
        data = self._data
        lens = data.lens
        if lens is None:
            return data.X
        return self.cached("", lambda: _read_only(lens(data.X), data.name, "X"))

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
        data = self._data
        for start in range(0, len(self), rows):
            part = slice(start, start + rows)
            X = data.X[part] if data.lens is None else data.lens(data.X[part])
            yield Batch(X, None if data.y is None else data.y[part], None if data.task is None else data.task[part])

    def cached(self, key: str, make: Callable[[], T]) -> T:
        """Return ``make()``, computed once per site: for what the data alone decide, such as a Gram matrix.

        Unlike `state` it is not recorded: after a restart it is computed again.
        """
        computed = self._data.computed
        if key not in computed:
            computed[key] = make()
        return cast(T, computed[key])

    def fingerprint(self) -> str:
        """Describe the data's shape and a digest of up to 1024 rows: tells a journal of other data from this one's."""
        digest = blake2b(digest_size=8)
        data = self._data
        columns = [column for column in (data.X, data.y, data.task) if column is not None]
        for column in columns:
            sample = column[:: max(1, len(self) // 1024)]
            digest.update(repr(sample.tolist()).encode() if sample.dtype == object else sample.tobytes())
        digest.update(repr(data.feature_names).encode())
        shapes = [f"{'x'.join(map(str, column.shape))} {column.dtype}" for column in columns]
        return f"{', '.join(shapes)} #{digest.hexdigest()}"

    def through(self, lens: Callable[[Array], Array]) -> Site:
        """Return this site as a transform shows it: same rows, ``X`` transformed when it is read."""
        data = copy.copy(self._data)
        inner = data.lens
        data.lens = lens if inner is None else lambda X: lens(inner(X))
        data.computed = {}
        data.frame = data.feature_names = None
        return _site(data, None)

    def at_work(self, base: Message, seed: int, call: int) -> Site:
        """Return this site as one call sees it, with `state` (a working copy of `base`) and `rng`."""
        return _site(self._data, _Work(base, seed, call))

    def changes(self) -> Changes:
        """Return what the call that this site is at work for did to its state."""
        state = self._at_work.state
        return NO_CHANGES if state is None else state.changes()

    @property
    def _at_work(self) -> _Work:
        if self._work is None:
            raise InputError(f"site {self.name!r} has state and rng only inside a step")
        return self._work


class _Data:
    """What all copies of a site share; `computed` is what steps keep with `Site.cached`."""

    def __init__(self, name: str, X: Any, y: Any, task: Any) -> None:
        if not isinstance(name, str) or not name or not is_plain_text(name):
            raise InputError(f"a site's name must be a non-empty string of plain text, not {name!r}")
        self.name = name
        self.frame = X if hasattr(X, "columns") and hasattr(X, "to_numpy") else None
        names = None if self.frame is None else [str(column) for column in self.frame.columns]
        self.feature_names: tuple[str, ...] | None = None if names is None else tuple(names)
        self.X = _read_only(X if self.frame is None else _frame_values(self.frame), name, "X")
        if self.X.ndim == 0:
            raise InputError(f"site {name!r}: X must have rows, and is a single value")
        self.y = self._column(y, "y")
        self.task = self._column(task, "task")
        self.lens: Callable[[Array], Array] | None = None
        self.computed: dict[str, Any] = {}

    def _column(self, values: Any, what: str) -> Array | None:
        if values is None:
            return None
        column = _read_only(values, self.name, what)
        if column.ndim == 0 or len(column) != len(self.X):
            raise InputError(f"site {self.name!r}: {what} has shape {column.shape}, but X has {len(self.X)} rows")
        return column


def _site(data: _Data, work: _Work | None) -> Site:
    site = Site.__new__(Site)
    site._data = data
    site._work = work
    return site


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
