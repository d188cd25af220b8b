"""Tables that stay on disk or in a database: a site reads them in blocks, and holds one block at a time."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError, with_note
from fedspan.federation.site.row_stream import RowStream

if TYPE_CHECKING:
    import pyarrow as pa

    from fedspan.datasets.sources.row_filter import RowFilter

#: Rows that are read at once, at most: about 2 million cells.
_READ_CELLS = 2**21
#: Rows that are read at once, at least, where blocks are smaller and cells not too many.
_READ_ROWS = 2**14
#: Bytes of a Parquet file that are buffered at once: of each column, and of all columns together.
_COLUMN_BUFFER, _BUFFERS = 2**20, 2**26
_CHOOSE = "choose others with columns=[...], or read text with text=True for FedTabularEncoder"


def stream(
    source: Any, *, columns: Sequence[str] | None = None, connection: Any = None, text: bool = False
) -> RowStream:
    """Return a table for `fedspan.Site` whose rows stay where they are, for data larger than memory.

    A site reads it in blocks, once for every pass over the rows, and holds one block at a time. Every method by sums
    works so: scaling, PCA, detectors, k-means, regressions. A method that needs all rows at once refuses, with the
    memory that they would take.

    Parameters
    ----------
    source : path, pyarrow dataset, or str
        A Parquet, Feather or CSV file, or a folder of such files of one kind; a ``pyarrow.dataset.Dataset``; or with
        `connection` an SQL query, whose rows must come in the same order every time (``ORDER BY``).
    columns : names, optional
        The columns to read, which must hold numbers unless `text`. Default: all.
    connection : optional
        A connection of DuckDB, or of Python's database interface (DB-API), for a query.
    text : bool, default=False
        Read columns of text, too, for `fedspan.FedTabularEncoder`: what it makes of them is numbers.

    Examples
    --------
    >>> import pyarrow as pa, pyarrow.dataset as ds
    >>> rows = stream(ds.dataset(pa.table({"a": [1.0, 2.0, 3.0], "b": [1, 0, 1]})))
    >>> rows.shape, rows.feature_names, [len(block) for block in rows.batches(2)]
    ((3, 2), ('a', 'b'), [2, 1])
    """
    if connection is not None:
        return _Query(str(source), connection, columns, text=text)
    return _Files(source, columns, text=text)


def streamed_rows(
    dataset: Any, columns: Sequence[str], where: RowFilter | None, label: str
) -> tuple[RowStream, Callable[[Sequence[str], int], Iterator[pa.RecordBatch]]]:
    """Return the rows of an Arrow dataset that a filter keeps, as a stream, and a function that reads their cells.

    `label` is what messages call them: it reaches the coordinator, and names no path. All files must have the types of
    the first one.
    """
    tested = () if where is None else where.columns
    for name in tested:
        if name not in dataset.schema.names:
            raise InputError(f"the table has no column {name!r}, which 'where' is about")
    for fragment in dataset.get_fragments():
        for name in (*columns, *tested):
            own = fragment.physical_schema
            if name not in own.names or own.field(name).type != dataset.schema.field(name).type:
                raise InputError(
                    f"the file {Path(fragment.path).name} has no column {name!r} of type "
                    f"{dataset.schema.field(name).type}, as the first file has: write all files with the same types"
                )
    rows = _Files(dataset, columns, text=True, where=where)
    rows.label = label
    return rows, lambda names, count: rows._read(list(names), count)


class _Table(RowStream):
    """What files and queries have in common: batches become blocks of float64, or with text of objects."""

    def batches(self, rows: int) -> Iterator[NDArray[Any]]:
        """Yield blocks of at most `rows` rows."""
        d = self.shape[1]
        at_once = max(1, min(_READ_CELLS // max(1, d), 2**16))
        for batch in self._batches(max(min(rows, at_once), min(at_once, _READ_ROWS))):
            for start in range(0, len(batch), rows):
                yield batch[start : start + rows]

    @abstractmethod
    def _batches(self, rows: int) -> Iterator[NDArray[Any]]:
        """Yield batches of about `rows` rows."""

    @abstractmethod
    def _with(self, names: Sequence[str]) -> Self:
        """Return the table with these of its columns."""

    def in_order(self, names: Sequence[str]) -> RowStream:
        """Return the table with its columns in the order of `names`."""
        return self._with(names)

    def column(self, name: str) -> tuple[RowStream, NDArray[Any]]:
        """Return the table without a column, and the values of that column."""
        names = self.feature_names or ()
        if name not in names:
            raise InputError(f"{self.label} has no column {name!r}. Columns: {', '.join(names[:20])}")
        values = [block[:, 0] for block in self._with([name]).batches(2**16)]
        rest = self._with([other for other in names if other != name])
        return rest, _of_one_kind(np.concatenate(values)) if values else np.empty(0)

    def __repr__(self) -> str:
        return f"<{self.label}: {self.shape[0]} x {self.shape[1]}, streamed>"


class _Files(_Table):
    """The files of an Arrow dataset."""

    def __init__(
        self, source: Any, columns: Sequence[str] | None, *, text: bool, where: RowFilter | None = None
    ) -> None:
        self._dataset = source if hasattr(source, "get_fragments") else _dataset(source)
        self.label = "the dataset" if self._dataset is source else str(source)
        self._where, self._opened = where, self._files()
        schema = self._dataset.schema
        self.feature_names = _known(columns, schema.names, self.label)
        self.text = True in [_is_text(schema.field(name).type, name, self.label, text) for name in self.feature_names]
        if where is None:
            with self._reading():
                rows = self._dataset.count_rows()
        else:
            rows = sum(batch.num_rows for batch in self._read([], 2**16))
        self.shape = (int(rows), len(self.feature_names))

    def stamp(self) -> str:
        """Return names, sizes and times of the files; of a dataset without files, its number of rows."""
        where = () if self._where is None else (self._where.text,)
        digest = blake2b(repr((self.feature_names, self.shape, *where)).encode(), digest_size=8)
        for name, size, time in self._files():
            digest.update(f"{name} {size} {time};".encode())
        return f"{self.shape[0]}x{self.shape[1]} streamed #{digest.hexdigest()}"

    def _files(self) -> list[tuple[str, int, int]]:
        """Return name, size and time of each file."""
        files = [Path(name) for name in sorted(getattr(self._dataset, "files", ()))]
        found = [(file.name, file.stat()) for file in files if file.exists()]
        return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in found]

    def _with(self, names: Sequence[str]) -> Self:
        made = object.__new__(type(self))
        made._dataset, made.label = self._dataset, self.label
        made._where, made._opened = self._where, self._opened
        made.feature_names, made.shape = tuple(names), (self.shape[0], len(names))
        made.text = True in [_is_text(self._dataset.schema.field(name).type, name, self.label, True) for name in names]
        return made

    def _batches(self, rows: int) -> Iterator[NDArray[Any]]:
        names = list(self.feature_names or ())
        for batch in self._read(names, rows):
            if batch.num_rows:
                with self._reading():
                    block = _values(batch, names, text=self.text)
                yield block

    def _read(self, names: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Yield batches of some columns, of the rows that are kept."""
        import pyarrow as pa

        self._refuse_changed()
        tested = () if self._where is None else self._where.columns
        batches = _dataset_batches(self._dataset, list(dict.fromkeys([*names, *tested])), rows)
        while True:
            with self._reading():
                batch = next(batches, None)
            if batch is None:
                break
            if self._where is None:
                yield batch
            else:
                yield from self._where.kept(pa.table(batch), self.label).combine_chunks().to_batches()
        self._refuse_changed()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Refuse files that can't be read: the reader's words, which may hold cells, stay at the site."""
        import pyarrow as pa

        try:
            yield
            return
        except (pa.ArrowException, OSError) as error:
            note, kind = f"{self.label} can't be read: {error}", type(error).__name__
        self._refuse_changed()
        found = InputError(
            f"{self.label} can't be read: its cells are damaged, or of another kind than its first rows ({kind}): "
            "export it again"
        )
        raise with_note(found, note)

    def _refuse_changed(self) -> None:
        if self._files() != self._opened:
            raise InputError(f"{self.label} has changed since the site opened it: open it again")


class _Query(_Table):
    """The rows of an SQL query, which is made again for every pass."""

    def __init__(self, query: str, connection: Any, columns: Sequence[str] | None, *, text: bool) -> None:
        self.label, self.text = "the query", text
        self._query, self._connection = query.rstrip().rstrip(";"), connection
        self.feature_names = _known(columns, self._names(self._query), self.label)
        counted = self._rows(f"SELECT COUNT(*) FROM ({self._query}) AS counted")
        self.shape = (int(next(counted)[0][0]), len(self.feature_names))

    def stamp(self) -> str:
        """Return a digest of the query and its numbers of rows and columns: a database does not report changes."""
        digest = blake2b(repr((self._query, self.feature_names)).encode(), digest_size=8).hexdigest()
        return f"{self.shape[0]}x{self.shape[1]} streamed #{digest}"

    def _with(self, names: Sequence[str]) -> Self:
        made = object.__new__(type(self))
        made.label, made._query, made._connection, made.text = self.label, self._query, self._connection, self.text
        made.feature_names, made.shape = tuple(names), (self.shape[0], len(names))
        return made

    def _batches(self, rows: int) -> Iterator[NDArray[Any]]:
        if hasattr(self._connection, "cursor") and type(self._connection).__module__.partition(".")[0] == "duckdb":
            found = self._connection.cursor().execute(self._query)
            reader = found.fetch_record_batch(rows)
            for batch in reader:
                yield _values(batch, list(self.feature_names or ()), text=self.text)
            return
        places = [self._names(self._query).index(name) for name in self.feature_names or ()]
        for some in self._rows(self._query, rows):
            try:
                cells = [[row[place] for place in places] for row in some]
                block = np.array(cells, dtype=object if self.text else np.float64)
            except (TypeError, ValueError):
                raise InputError(f"{self.label} has cells that are not numbers: {_CHOOSE}") from None
            yield block.reshape(len(some), len(places))

    def _names(self, query: str) -> list[str]:
        cursor = self._connection.cursor()
        found = cursor.execute(f"SELECT * FROM ({query}) AS named LIMIT 0")
        return [str(column[0]) for column in (getattr(cursor, "description", None) or found.description)]

    def _rows(self, query: str, at_once: int = 1) -> Iterator[list[Any]]:
        cursor = self._connection.cursor()
        cursor.execute(query)
        while some := cursor.fetchmany(at_once):
            yield some


def _dataset(source: Any) -> Any:
    """Return the Arrow dataset of a file, or of the files of a folder."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    path = Path(os.fspath(source))
    kinds = {".parquet": "parquet", ".pq": "parquet", ".feather": "feather", ".arrow": "ipc", ".csv": "csv"}
    if not path.exists():
        raise InputError(f"{path} does not exist")
    files = sorted(found for found in path.rglob("*") if found.suffix in kinds) if path.is_dir() else [path]
    found = {kinds.get(file.suffix) for file in files}
    if len(found) != 1 or None in found:
        what = "holds files of several kinds" if len(found) > 1 else "is, or holds, no file that can be streamed"
        raise InputError(f"{path} {what}: use Parquet, Feather or CSV files of one kind ({', '.join(kinds)})")
    kind, paths = str(found.pop()), [str(file) for file in files]
    try:
        made = ds.dataset(paths, format=kind)
        return ds.dataset(paths, format=kind, schema=_common_schema(made, path, counts=kind != "csv"))
    except pa.ArrowException as error:
        raise InputError(f"{path} can't be read: {error}") from None


def _common_schema(dataset: Any, path: Path, *, counts: bool) -> pa.Schema:
    """Return the columns of the first file, which all must have, with types that hold the values of all files.

    Without `counts` whole numbers are no type of their own: the cells that decide it may come late in a file.
    """
    import pyarrow as pa

    names = dataset.schema.names
    schemas = []
    for fragment in dataset.get_fragments():
        own = fragment.physical_schema
        lacking = [name for name in names if name not in own.names]
        if lacking:
            raise InputError(f"{path}: the file {Path(fragment.path).name} has no column {lacking[0]!r}, others have")
        schemas.append(pa.schema([own.field(name) for name in names]))
    common = pa.unify_schemas(schemas, promote_options="permissive")
    if counts:
        return common
    numbers = (pa.types.is_integer, pa.types.is_null)
    fields = [field.with_type(pa.float64()) if any(one(field.type) for one in numbers) else field for field in common]
    return pa.schema(fields)


def _dataset_batches(dataset: Any, names: list[str], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the batches of one file after the other. Neither a file nor a group of its rows is in memory at once."""
    try:
        fragments = list(dataset.get_fragments())
    except ValueError:  # a filter, which fragments by themselves would not have
        yield from dataset.to_batches(columns=names, **_scan_options(dataset, names, rows))
        return
    for fragment in fragments:
        if type(fragment).__name__ != "ParquetFileFragment" or not set(names) <= set(fragment.physical_schema.names):
            yield from fragment.to_batches(schema=dataset.schema, columns=names, **_scan_options(fragment, names, rows))
            continue
        import pyarrow.parquet as pq

        # By default all groups of rows are read ahead. On another machine one is: each read takes a while.
        near = fragment.filesystem is None or fragment.filesystem.type_name == "local"
        options = {"pre_buffer": not near, "buffer_size": _buffer(names) if near else 0}
        with fragment.open() as opened, pq.ParquetFile(opened, **options) as file:
            for groups in [None] if near else [[group] for group in range(file.num_row_groups)]:
                yield from file.iter_batches(batch_size=rows, row_groups=groups, columns=names)


def _scan_options(source: Any, names: list[str], rows: int) -> dict[str, Any]:
    """Return options of a scan that reads little ahead, since a group of rows may be large."""
    import pyarrow.dataset as ds

    options: dict[str, Any] = {"batch_size": rows, "batch_readahead": 1, "fragment_readahead": 1}
    if getattr(getattr(source, "format", None), "default_extname", "") == "parquet":
        buffered = {"use_buffered_stream": True, "buffer_size": _buffer(names), "pre_buffer": False}
        options["fragment_scan_options"] = ds.ParquetFragmentScanOptions(**buffered)
    return options


def _buffer(names: Sequence[str]) -> int:
    return max(2**12, min(_COLUMN_BUFFER, _BUFFERS // max(1, len(names))))


def _values(batch: pa.RecordBatch, names: list[str], *, text: bool) -> NDArray[Any]:
    """Return a batch as a block: of float64, whose missing cells are NaN, or of any cells."""
    block = np.empty((batch.num_rows, len(names)), dtype=object if text else np.float64, order="F")
    for place, name in enumerate(names):
        column = batch.column(name)
        block[:, place] = column.to_numpy(zero_copy_only=False)
    return block


def _of_one_kind(values: NDArray[Any]) -> NDArray[Any]:
    """Return the cells of a column as numbers, or as text where not all are numbers."""
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError):
        return values.astype(str)


def _known(columns: Sequence[str] | None, names: Sequence[str], label: str) -> tuple[str, ...]:
    """Return the chosen columns, which must exist."""
    for name in columns or ():
        if name not in names:
            raise InputError(f"{label} has no column {name!r}. Columns: {', '.join(map(str, names[:20]))}")
    return tuple(map(str, names if columns is None else columns))


def _is_text(kind: Any, name: str, label: str, text: bool) -> bool:
    """Return whether a column holds text; refuse it unless `text`, and what is neither text nor numbers."""
    from pyarrow import types

    numbers: tuple[Callable[[Any], bool], ...] = (
        types.is_integer,
        types.is_floating,
        types.is_boolean,
        types.is_decimal,
    )
    if any(is_one(kind) for is_one in numbers):
        return False
    of_values = kind.value_type if types.is_dictionary(kind) else kind
    if not text or not (types.is_string(of_values) or types.is_large_string(of_values)):
        raise InputError(f"{label}: column {name!r} holds {kind}, and a streamed table holds numbers: {_CHOOSE}")
    return True
