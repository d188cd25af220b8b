"""SQL over files: one query, through DuckDB, on tables in files, folders and object storage.

The query sees the tables that were named, and nothing else: DuckDB opens no file, reaches no network and loads no
extension. Files are read as everywhere in fedspan; objects by pyarrow, with the credentials of the environment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedspan.datasets.sources.file_source import FileSource
from fedspan.datasets.sources.row_filter import RowFilter, safe_connection
from fedspan.datasets.sources.table_source import Choose, batch_rows, chosen, read_batches
from fedspan.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

#: Object storage that pyarrow reads, and the formats that it reads there.
SCHEMES = ("s3", "gs", "abfs", "abfss", "hdfs")
_FORMATS = {".parquet": "parquet", ".feather": "ipc", ".arrow": "ipc", ".csv": "csv"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_SECRET = re.compile(r"://[^/?#]*@|secret|password|access_key", re.IGNORECASE)


class QuerySource:
    """One table as the answer to a query on other tables.

    Parameters
    ----------
    tables : mapping
        For each name in the query a file, a folder of Parquet files, or a pattern such as ``visits/*.parquet``. A path
        in object storage is, for example, ``s3://bucket/visits``.
    query : str
        One ``SELECT``.
    folder : path
        What paths are relative to.
    """

    def __init__(self, tables: Mapping[str, str], query: str, folder: Path = Path()) -> None:
        if not tables:
            raise InputError('tables must name at least one table, such as { visits = "visits.parquet" }')
        for name, place in tables.items():
            if not _NAME.fullmatch(name):
                raise InputError(f"tables: {name!r} must be letters, digits and underscores, to be a name in a query")
            scheme = _scheme(place)
            if scheme and scheme not in SCHEMES:
                raise InputError(f"tables: {name} must be a path, or one in object storage: {', '.join(SCHEMES)}")
            if scheme and _SECRET.search(place):  # its text is not repeated
                raise InputError(
                    f"tables: {name} holds a key or a password: leave it out, and set it in the environment, as for "
                    "the storage's own tools"
                )
        self.tables = dict(tables)
        self.query = query
        self._folder = folder
        self._check()

    @property
    def label(self) -> str:
        """The names of its tables."""
        return f"the query on {', '.join(self.tables)}"

    def __repr__(self) -> str:
        return f"QuerySource({self.label!r})"

    def read(self, choose: Choose | None = None, where: RowFilter | None = None) -> pd.DataFrame:
        """Run the query, and read the chosen columns of the rows that `where` keeps."""
        import duckdb

        connection = safe_connection()
        for name, place in self.tables.items():
            connection.register(name, _table(name, place, self._folder))
        try:
            found = connection.sql(self.query)
            if found is None:
                raise InputError(f"{self.label} returns no rows: query must be one SELECT")
            names = [str(name) for name in found.columns]
            wanted = chosen(names, choose, self.label)
            batches = found.to_arrow_reader(batch_rows(len(names)))
            return read_batches(_batches(batches), wanted, where, self.label)
        except InputError:
            raise
        except (
            duckdb.BinderException,
            duckdb.CatalogException,
            duckdb.ParserException,
            duckdb.PermissionException,
        ) as e:
            reason = str(e).partition("\n")[0]  # about names, types and files, not about values
        except duckdb.Error as e:
            reason = f"{type(e).__name__}; its text is withheld, because it may hold values"
        except Exception as e:  # of pyarrow, about bytes from outside
            reason = type(e).__name__
        # Here, and not in the handler: no error of the query, with rows in its locals, is attached to this one.
        raise InputError(f"{self.label} fails: {reason}")

    def stamp(self) -> object:
        """Return a value that changes with the files; ``None`` where one of the tables is in object storage."""
        if any(map(_scheme, self.tables.values())):
            return None
        stamps = tuple(
            FileSource(file).stamp() for place in self.tables.values() for file in _files(place, self._folder)
        )
        return None if None in stamps else stamps

    def gone(self) -> bool:
        """Return whether one of the files certainly no longer exists."""
        local = [place for place in self.tables.values() if not _scheme(place)]
        return any(not _files(place, self._folder) for place in local)

    def _check(self) -> None:
        """Refuse what is not one SELECT before any table is opened."""
        import json

        ((parsed,),) = safe_connection().execute("select json_serialize_sql(?::varchar)", [self.query]).fetchall()
        tree = json.loads(parsed)
        if tree.get("error") or len(tree.get("statements", ())) != 1:
            raise InputError(f"query must be one SELECT: {tree.get('error_message', 'it has several statements')}")


def _batches(reader: Any) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            yield reader.read_next_batch()
        except StopIteration:
            return


def _table(name: str, place: str, folder: Path) -> Any:
    """Return a table as DuckDB scans it: an Arrow dataset, or a frame for the other kinds of files."""
    import pyarrow.dataset as ds

    if _scheme(place):
        return _object(name, place)
    files = _files(place, folder)
    if not files:
        raise InputError(f"tables: {name} = {place!r} does not exist: correct its name")
    if all(file.is_dir() or file.suffix.lower() in (".parquet", ".feather", ".arrow") for file in files):
        kind = "ipc" if files[0].suffix.lower() in (".feather", ".arrow") else "parquet"
        try:
            return ds.dataset([str(file) for file in files] if len(files) > 1 else str(files[0]), format=kind)
        except Exception as error:  # what a reader makes of bytes from outside
            reason = type(error).__name__
        raise InputError(f"tables: {name} cannot be read as {kind}: {reason}")
    import pandas as pd

    return pd.concat([FileSource(file).read() for file in files], ignore_index=True)


def _object(name: str, place: str) -> Any:
    import pyarrow.dataset as ds
    from pyarrow import fs

    path, _, _ = place.partition("?")
    kind = next((kind for ending, kind in _FORMATS.items() if path.lower().endswith(ending)), "parquet")
    try:
        storage, inside = fs.FileSystem.from_uri(place)
        return ds.dataset(inside, filesystem=storage, format=kind)
    except Exception as error:  # of the storage: its text may hold a key
        reason = type(error).__name__
    raise InputError(
        f"tables: {name}, in object storage, can't be opened ({reason}): check the path, and the credentials in the "
        "environment"
    )


def _files(place: str, folder: Path) -> list[Path]:
    """Return the files of a path or pattern, sorted."""
    if any(sign in place for sign in "*?["):
        root = Path(place).anchor
        found = Path(root).glob(str(Path(place).relative_to(root))) if root else folder.glob(place)
        return sorted(found)
    path = folder / place
    return [path] if path.exists() else []


def _scheme(place: str) -> str:
    return place.partition("://")[0].lower() if "://" in place else ""
