"""The rows of a site as a step reads them: whole, in blocks, sparse or streamed, and through transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Self, TypeVar, cast

import numpy as np

from fedspan.arrays import Array
from fedspan.errors import InputError, PolicyError
from fedspan.federation.site.call_context import CallContext
from fedspan.federation.site.row_stream import HeldRows, SpooledRows
from fedspan.federation.site.site_data import FewNumbers, SiteData, check_dense, copies_on_write, read_only

T = TypeVar("T")
_new = object.__new__

#: What a transform makes of all rows of a streamed table is kept up to this size, read in blocks of this many rows.
_KEPT_BYTES, _STREAMED_ROWS = 2**28, 2**14
#: A transform that makes at most as many columns of twice as many, or more, is applied once.
_FEW_COLUMNS = 4
#: Bytes of sparse rows that are made dense at a time.
_SPARSE_BLOCK = 2**22


class RowBatch(NamedTuple):
    """Some consecutive rows of a site: ``X`` and, where the site has them, ``y``, ``task`` and ``sample_weight``."""

    X: Array
    y: Array | None
    task: Array | None
    sample_weight: Array | None = None


class ShownRows:
    """What a step reads of a site: its data as transforms show them, in the call that the site serves."""

    __slots__ = ("_context", "_data", "_make_context")

    _data: SiteData
    _context: CallContext | None
    _make_context: tuple[Any, ...] | None

    def __len__(self) -> int:
        return self._data.shape[0]

    @property
    def name(self) -> str:
        """The site's name."""
        return self._data.name

    @property
    def X(self) -> Array:
        """The data, seen through the federation's transforms if there are any."""
        data = self._open
        transform = data.transform
        if transform is None:
            return data.X
        if data.kept is not None:
            few, shows = data.kept
            return self.cached("", lambda: read_only(shows(few.rows(0, len(self))), data.name, "X"))
        if data.sparse is not None:
            return self.cached("", self._dense_rows)
        if data.stream is not None:
            return self.cached("", lambda: self._kept_rows(transform))
        return self.cached("", lambda: read_only(transform(data.rows(slice(None))), data.name, "X"))

    def no_rows(self) -> Array:
        """Return ``X`` without its rows: the number and kind of columns, as transforms show them. No row is read."""
        data = self._data
        if data.transform is None:
            return data.no_rows
        computed = data.computed
        if "no rows" not in computed:
            takes_frame = data.transform_takes_frame
            computed["no rows"] = np.asarray(data.transform(data.frame.iloc[:0] if takes_frame else data.no_rows))
        return cast(Array, computed["no rows"])

    @property
    def sparse(self) -> bool:
        """Whether the site has a sparse matrix; `batches` shows blocks of its rows as dense ones."""
        return self._data.sparse is not None

    @property
    def sparse_rows(self) -> tuple[Any, Array | None, Array | None] | None:
        """A sparse matrix by rows, and the shift and scale of its columns by which transforms show it.

        The rows are ``(x - shift) / scale``. ``None`` where the rows are not sparse, or transforms mix columns.
        """
        data = self._open
        return None if data.sparse is None or data.diagonal is None else (data.sparse, *data.diagonal)

    def _dense_rows(self) -> Array:
        """Return sparse rows as transforms show them, made block by block."""
        data = self._open
        transform = data.transform
        assert transform is not None
        size = max(1, _SPARSE_BLOCK // (8 * max(1, data.shape[1])))
        first = transform(data.rows(slice(0, size)))
        check_dense((len(self), *first.shape[1:]))
        rest = [transform(data.rows(slice(start, start + size))) for start in range(size, len(self), size)]
        return read_only(np.concatenate([first, *rest]), data.name, "X")

    @property
    def y(self) -> Array | None:
        """The target of each row."""
        return self._shown("y", self._open.y)

    @property
    def task(self) -> Array | None:
        """The task of each row."""
        return self._shown("task", self._open.task)

    @property
    def sample_weight(self) -> Array | None:
        """The weight of each row; ``None`` where every row counts once."""
        return self._shown("sample_weight", self._open.sample_weight)

    @property
    def weighted(self) -> bool:
        """Whether rows have weights."""
        return self._data.sample_weight is not None

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The data frame's column names; ``None`` behind a transform."""
        return self._data.feature_names if self._data.transform is None else None

    @property
    def frame(self) -> Any:
        """The data frame that the site was made of, as a copy; ``None`` behind a transform or without one."""
        data = self._open
        return None if data.frame is None or data.transform is not None else data.frame.copy(deep=not copies_on_write())

    def batches(self, rows: int) -> Iterator[RowBatch]:
        """Yield the data in consecutive blocks of `rows` rows, for data larger than memory."""
        if rows < 1:
            raise InputError(f"rows={rows} must be at least 1")
        data = self._open
        if data.stream is not None:
            yield from self._streamed(rows)
            return
        # A frame is in memory anyway, so that it is transformed once. Arrays are transformed block by block.
        transform = None if data.transform_takes_frame else data.transform
        # A step that has looked at the number of columns may find that there are few.
        few = self._few_numbers(transform) if transform is not None and "no rows" in data.computed else None
        n = len(self)
        if 0 < n <= rows and transform is None and data.sparse is None:
            yield RowBatch(self.X, data.y, data.task, data.sample_weight)
            return
        for start in range(0, n, rows):
            part = slice(start, start + rows)
            if few is not None:
                X = few.rows(start, rows)
            elif transform is None:
                X = self.X[part] if data.sparse is None else data.rows(part)
            else:
                X = transform(data.rows(part))
            columns = (data.y, data.task, data.sample_weight)
            yield RowBatch(X, *(None if column is None else column[part] for column in columns))

    def batches_alone(self, rows: int) -> Iterator[RowBatch]:
        """Yield blocks as `batches` does, of rows that do not depend on the rows beside them, not in the last bit.

        A matrix product rounds a row in another way elsewhere in a block, and large parameters make much of that. So
        each row goes through such transforms by itself. Where sums have noise for one row, no row then moves another.
        """
        data = self._open
        first, rest = data.parts
        if rest is None:
            yield from self.batches(rows)
            return
        columns = (data.y, data.task, data.sample_weight)
        raw = (data.rows(slice(at, at + rows)) for at in range(0, len(self), rows))
        at = 0
        for block in raw if data.stream is None else data.stream.batches(rows):
            X = block if first is None else first(block)
            part = slice(at, at + len(block))
            at += len(block)
            alone = [rest(X.iloc[i : i + 1] if hasattr(X, "iloc") else X[i : i + 1]) for i in range(len(X))]
            yield RowBatch(np.concatenate(alone), *(None if column is None else column[part] for column in columns))

    @property
    def X_alone(self) -> Array:
        """The data as `batches_alone` shows them: for noise on rows, or on sums that one replaced row moves."""
        if self.elementwise or not len(self):
            return self.X
        return self.cached("alone", lambda: np.concatenate([batch.X for batch in self.batches_alone(_STREAMED_ROWS)]))

    @property
    def elementwise(self) -> bool:
        """Whether rows are seen as they are, or through transforms that treat each cell by itself."""
        return self._data.parts[1] is None

    def _streamed(self, rows: int) -> Iterator[RowBatch]:
        """Yield blocks of a streamed table; what a transform makes of all rows is kept where it is small."""
        data, at = self._data, 0
        assert data.stream is not None
        columns = (data.y, data.task, data.sample_weight)
        kept = data.computed.get("") if data.transform is not None else None
        few = self._few_numbers(data.transform) if kept is None and data.transform is not None else None
        blocks: Iterator[Array]
        if few is not None:
            blocks = (few.rows(i, rows) for i in range(0, len(self), rows))
        elif kept is not None:
            blocks = (kept[i : i + rows] for i in range(0, len(kept), rows))
        else:
            blocks = (
                data.stream.batches(rows) if data.transform is None else map(data.transform, data.stream.batches(rows))
            )
        for X in blocks:
            part = slice(at, at + len(X))
            at += len(X)
            yield RowBatch(X, *(None if column is None else column[part] for column in columns))
        self._same_number(at)

    def _few_numbers(self, transform: Callable[[Any], Array]) -> FewNumbers | None:
        """Return what a transform makes of all rows, if it makes few numbers of many: a streamed table's in a file.

        Such numbers, scores say, take longer to make than to read again. What is made of them begins with them.
        """
        data, few = self._data, self.no_rows()
        if (
            few.ndim != 2
            or few.dtype.kind != "f"
            or not 0 < few.shape[1] <= min(_FEW_COLUMNS, self._data.shape[1] // 2)
        ):
            return None
        shows = transform if data.kept is None else data.kept[1]

        def blocks() -> Iterator[Array]:
            places = range(0, len(self), _STREAMED_ROWS)
            if data.kept is not None:
                yield from (data.kept[0].rows(start, _STREAMED_ROWS) for start in places)
            elif data.stream is not None:
                yield from data.stream.batches(_STREAMED_ROWS)
            else:
                yield from (data.rows(slice(start, start + _STREAMED_ROWS)) for start in places)

        def make() -> FewNumbers:
            spooled, held, at = SpooledRows(few.dtype, few.shape[1]) if data.stream else None, [few], 0
            for block in blocks():
                made = shows(block)
                held.append(made) if spooled is None else spooled.append(made)
                at += len(block)
            self._same_number(at)
            return spooled or HeldRows(read_only(np.concatenate(held), data.name, "X"))

        return self.cached("few columns", make)

    def _few_made(self) -> FewNumbers | None:
        """Return the few numbers for each row that this view has made already, if it has."""
        few, rows = (self._data.computed.get(key) for key in ("few columns", ""))
        if few is None and rows is not None and rows.ndim == 2 and rows.shape[1] <= _FEW_COLUMNS:
            return HeldRows(rows)
        return cast(FewNumbers | None, few)

    def _same_number(self, found: int) -> None:
        stream = self._data.stream
        if stream is not None and found != len(self):
            raise InputError(
                f"{stream.label} gave {found} rows to site {self.name!r}, and had {len(self)} before: it has changed"
            )

    def _kept_rows(self, transform: Callable[[Any], Array]) -> Array:
        """Return what a transform makes of all rows of a streamed table, if that is small."""
        data, made, size = self._data, [], 0
        assert data.stream is not None
        for block in data.stream.batches(_STREAMED_ROWS):
            made.append(transform(block))
            size += made[-1].nbytes
            if size > _KEPT_BYTES:
                _ = data.X  # refuses, with the memory that all rows take
        return read_only(np.concatenate(made) if made else transform(np.empty(data.shape)), data.name, "X")

    @property
    def streamed(self) -> bool:
        """Whether the rows are read in blocks from a file or a database (`fedspan.stream`)."""
        return self._data.stream is not None

    def cached(self, key: str, make: Callable[[], T]) -> T:
        """Return ``make()``, computed once per site: for what the data alone decide, such as a Gram matrix.

        Unlike `state` it is not recorded: after a restart it is computed again.
        """
        computed = self._open.computed
        if key not in computed:
            computed[key] = make()
        return cast(T, computed[key])

    def last_of(self, kind: str, key: object, make: Callable[[], T]) -> T:
        """Return ``make()``, kept for one `key` per `kind`: for what is large."""
        computed = self._open.computed
        before = computed.get(f"last {kind}")
        if before is None or before[0] != key:
            computed.pop(f"last {kind}", None)
            before = computed[f"last {kind}"] = (key, make())
        return cast(T, before[1])

    def _shown(self, what: str, column: Array | None) -> Array | None:
        if what in self._data.hidden:
            raise PolicyError(
                f"site {self.name!r} does not show its {what} beside noisy rows: the noise is on X alone, and would "
                f"not cover it; use the federation without noise where {what} may leave the sites"
            )
        return column

    def in_call(self, context: CallContext | None, make: tuple[Any, ...] | None = None) -> Self:
        """Return this site as one call sees it.

        `make`, a function and its arguments, makes the context when a step first needs one: most need none.
        """
        site = _new(type(self))
        site._data, site._context, site._make_context = self._data, context, make
        return site

    @property
    def context(self) -> CallContext:
        """The call that this site serves."""
        found = self.begun
        if found is None:
            raise InputError(f"site {self.name!r} has state and rng only inside a step")
        return found

    @property
    def begun(self) -> CallContext | None:
        """The call that this site serves, if it serves one."""
        if self._context is None and self._make_context is not None:
            make, *arguments = self._make_context
            self._context = make(*arguments)
        return self._context

    @property
    def used(self) -> CallContext | None:
        """The call, if its step needed more than the data: a generator, a state, a ledger."""
        return self._context

    @property
    def _open(self) -> SiteData:
        """The data, to be read: under a strict ledger not before the step has charged, by a public step never."""
        if self._context is not None and self._context.gate is not None:
            self._context.gate(self)
        return self._data
