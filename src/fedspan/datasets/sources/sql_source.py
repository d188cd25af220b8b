"""SQL: one query on a database that is opened for reading only.

No password appears in a `repr`, a message or the local variables of an error that leaves here: it is kept in a
`Secret`. Messages of a driver are shown without secrets and, once there are rows, only if they can't be about a value.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

from fedspan.datasets.sources.row_filter import RowFilter
from fedspan.datasets.sources.secret import Secret
from fedspan.datasets.sources.table_source import Choose, batch_rows, chosen, read_batches
from fedspan.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from sqlalchemy.engine import URL

_MISSING = "reading databases needs SQLAlchemy: install it with 'pip install .[sql]' in a checkout"
_FORM = "url must be written as postgresql://user@host/database, or mysql, mariadb, mssql, or sqlite:///file"
_SIGNS = (
    "url can't be read with certainty: write the signs @ / : ? # % of a user or a password as %40 %2F %3A %3F %23 "
    "%25, or leave the password out and use password_env or password_file"
)
_CONNECT_SECONDS = 10


@dataclass(frozen=True)
class _Kind:
    """A kind of database server: its name, its driver (module, and name in SQLAlchemy), and the extra that has it."""

    name: str
    module: str
    driver: str
    extra: str


_POSTGRES = _Kind("PostgreSQL", "psycopg", "postgresql+psycopg", "sql")
_SERVERS = {
    "postgresql": _POSTGRES,
    "postgres": _POSTGRES,
    "mysql": _Kind("MySQL", "pymysql", "mysql+pymysql", "mysql"),
    "mariadb": _Kind("MariaDB", "pymysql", "mariadb+pymysql", "mysql"),
    "mssql": _Kind("SQL Server", "pymssql", "mssql+pymssql", "mssql"),
}
#: Codes of MySQL and MariaDB that are about connection, rights, names or syntax, and of SQL Server.
_NUMBERS_WITHOUT_VALUES = frozenset(
    {1044, 1045, 1049, 1054, 1064, 1142, 1143, 1146, 1792, 1969, 2002, 2003, 2006, 2013, 3024}
    | {102, 156, 207, 208, 229, 4060, 18456, 20002, 20009}
)
#: Classes of SQLSTATE, and kinds of SQLite errors, that are about connection, rights, syntax or resources: no values.
_WITHOUT_VALUES = ("08", "25", "28", "3D", "3F", "42", "53", "55", "57", "58")
_SQLITE_WITHOUT_VALUES = ("AUTH", "BUSY", "CANTOPEN", "CORRUPT", "IOERR", "LOCKED", "NOTADB", "PERM", "READONLY")
_SQLITE_QUERY_ERRORS = ("no such table", "no such column", "no such function", 'near "', "incomplete input")


class SqlSource:
    """One table as the answer to a query.

    Parameters
    ----------
    url : Secret
        ``postgresql://user@host/database``, ``mysql://...``, ``mariadb://...``, ``mssql://...`` or ``sqlite:///file``,
        with or without a password.
    query : str
        One ``SELECT``. Without an ``ORDER BY`` a database may return its rows in another order each time.
    password : Secret, optional
        In place of one in the URL.
    folder : path
        What the file of an SQLite URL is relative to.
    timeout : float, default=600
        Seconds that the database may take for one batch.
    """

    def __init__(
        self, url: Secret, query: str, *, password: Secret | None = None, folder: Path = Path(), timeout: float = 600.0
    ) -> None:
        try:
            import sqlalchemy  # noqa: F401
        except ImportError:
            raise InputError(_MISSING) from None
        self.query = query
        self._timeout = timeout
        self._folder = folder
        problem = self._take_url(url, password)
        if problem:  # raised here: no frame of this error has seen the text
            raise InputError(problem)

    def _take_url(self, url: Secret, password: Secret | None) -> str:
        """Keep what is known of a URL; return why it can't be used, or nothing."""
        parsed = _parsed(url.reveal())
        kind = "" if parsed is None else parsed.drivername.partition("+")[0]
        if parsed is None or kind not in (*_SERVERS, "sqlite"):
            return _FORM
        self._server = _SERVERS.get(kind)
        if self._server is not None and find_spec(self._server.module) is None:
            return (
                f"{self._server.name} needs the driver {self._server.module}, which is not installed: "
                f"pip install '.[{self._server.extra}]' in a checkout"
            )
        rest = url.reveal().partition("://")[2]
        self._sqlite = self._server is None
        if self._sqlite and (parsed.host or parsed.username or parsed.password):
            return _FORM
        if not self._sqlite and "@" in rest and (rest.count("@") > 1 or parsed.username is None):
            return _SIGNS
        inside = [str(value) for key, value in parsed.query.items() if "pass" in key.lower()]
        inside += [] if parsed.password is None else [str(parsed.password)]
        if password is not None and inside:
            return "url has a password in it, and another one is named: leave one of them out"
        self.password_in_url = bool(inside)
        certain = self._sqlite or "@" in rest  # a password may stand where a host is expected
        place = parsed.database if self._sqlite else f"{parsed.host or 'a local socket'}/{parsed.database}"
        self.label = (
            f"the query on {'SQLite' if self._server is None else self._server.name} {place}"
            if certain
            else "the query on the database of [data] url"
        )
        hidden = [*inside, url.reveal(), *([] if certain else [str(parsed.host), str(parsed.database)])]
        if password is not None:
            hidden.append(password.reveal())
            parsed = parsed.set(password=password.reveal())
        self._file = parsed.database or ""
        driver = "sqlite" if self._server is None else self._server.driver
        self._url = Secret(parsed.set(drivername=driver).render_as_string(hide_password=False))
        self._hidden = tuple(Secret(text) for text in hidden)
        return ""

    def __repr__(self) -> str:
        return f"SqlSource({self.label!r})"

    def stamp(self) -> object:
        """Return ``None``: a query's answer may change at any time."""
        return None

    def gone(self) -> bool:
        """Return whether the file of an SQLite database no longer exists; for others only a query would show it."""
        return self._sqlite and not (self._folder / self._file).is_file()

    def read(self, choose: Choose | None = None, where: RowFilter | None = None) -> pd.DataFrame:
        """Run the query, and read the chosen columns of the rows that `where` keeps."""
        try:
            import pyarrow as pa
        except ImportError:
            raise InputError("reading tables needs pyarrow and pandas: pip install '.[tables]' in a checkout") from None
        reached: list[bool] = []
        try:
            with self._rows(reached) as rows:
                names = [str(name) for name in rows.keys()]  # noqa: SIM118
                wanted = chosen(names, choose, self.label)
                return read_batches(_batches(rows, names, self.label), wanted, where, self.label)
        except InputError:
            raise
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            reason = f"{self.label}: a column holds values of several kinds, such as numbers and text"
        except Exception as error:  # what a driver makes of a database
            reason = f"{self.label} fails: {self._without_secrets(_report(error, values=bool(reached)))}"
        # Here, and not in the handler: no driver's error, with its locals, is attached to this one.
        raise InputError(reason)

    @contextmanager
    def _rows(self, reached: list[bool]) -> Iterator[Any]:
        """Yield the answer to the query, in a session that can't write; note when the database is `reached`."""
        import sqlalchemy as sql

        if self._server is None:
            engine = sql.create_engine("sqlite://", creator=self._open_file, poolclass=sql.NullPool)
        else:
            waiting = _limits(self._server.module, self._timeout)
            engine = sql.create_engine(
                self._url.reveal(), poolclass=sql.NullPool, hide_parameters=True, connect_args=waiting
            )
        try:
            # The query as it is: no driver may take a percent sign in it for a parameter.
            engine = engine.execution_options(no_parameters=True)
            if self._server is _POSTGRES:
                engine = engine.execution_options(postgresql_readonly=True)
            if self._server is not None:
                engine = engine.execution_options(stream_results=True)
            with engine.connect() as connection:
                reached.append(True)
                for line in _read_only(self._server):
                    connection.exec_driver_sql(line)
                with connection.exec_driver_sql(self.query) as rows:
                    if not rows.returns_rows:
                        raise InputError(f"{self.label} returns no rows: query must be one SELECT")
                    yield rows
        finally:
            engine.dispose()

    def _open_file(self) -> sqlite3.Connection:
        path = (self._folder / self._file).resolve()
        return sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=self._timeout)

    def _without_secrets(self, text: str) -> str:
        for secret in self._hidden:
            hidden = secret.reveal()
            for form in {hidden, quote(hidden), quote_plus(hidden), quote(hidden, safe="")}:
                text = text.replace(form, "***") if len(form) > 2 else text
        return text


def _limits(module: str, seconds: float) -> dict[str, Any]:
    """Return how long a driver waits for a connection and for an answer."""
    connecting, waiting = max(2, min(_CONNECT_SECONDS, round(seconds))), max(1, round(seconds))
    if module == "psycopg":
        return {"connect_timeout": connecting, "options": f"-c statement_timeout={max(1, round(seconds * 1000))}"}
    if module == "pymysql":
        return {"connect_timeout": connecting, "read_timeout": waiting}
    return {"login_timeout": connecting, "timeout": waiting}


def _read_only(server: _Kind | None) -> list[str]:
    """Return what makes a session of MySQL or MariaDB read only. SQL Server has no such session."""
    if server is None or server.module != "pymysql":
        return []
    return ["SET SESSION TRANSACTION READ ONLY", "COMMIT"]


def _parsed(text: str) -> URL | None:
    from sqlalchemy.engine import make_url

    with suppress(Exception):  # whose message may hold the URL
        return make_url(text)
    return None


def _batches(rows: Any, names: list[str], label: str) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for batch in rows.partitions(batch_rows(len(names))):
        columns = [_column(values, name, label) for values, name in zip(zip(*batch, strict=True), names, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, names=names)


def _column(values: tuple[Any, ...], name: str, label: str) -> pa.Array:
    """Return the values of one column and batch as an Arrow array; decimals and large whole numbers become floats."""
    import uuid
    from datetime import timedelta
    from decimal import Decimal

    import pyarrow as pa

    kinds = {type(value) for value in values if value is not None}
    if Decimal in kinds and kinds <= {Decimal, int, float}:
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    if kinds == {uuid.UUID}:
        return pa.array([None if value is None else str(value) for value in values], pa.string())
    if kinds == {int} and max(abs(value) for value in values if value is not None) >= 2**63:
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    if kinds == {timedelta}:
        return pa.array(values, pa.duration("us"))
    if kinds & {dict, list, tuple, set, bytes, memoryview, complex}:
        shown = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise InputError(f"{label}: column {name!r} holds {shown}, and must hold numbers, text, times or durations")
    return pa.array(values)


def _report(error: Exception, *, values: bool) -> str:
    """Return in one line what went wrong.

    Once the database was reached (`values`), an error can be about a value. Then its message is repeated only where
    its code shows another cause.
    """
    from sqlalchemy.exc import SQLAlchemyError

    cause = getattr(error, "orig", None) or error
    name = type(cause).__name__
    if isinstance(error, SQLAlchemyError) and (not values or _is_without_values(cause)):
        text = cause.args[-1] if _has_number(cause) else cause
        text = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
        return next((line.strip()[:500] for line in text.splitlines() if line.strip()), name)
    state = getattr(cause, "sqlstate", None) or getattr(cause, "sqlite_errorname", None)
    return f"{name} (SQLSTATE {state}); its text is withheld, because it may hold values" if state else f"{name} raised"


def _has_number(cause: BaseException) -> bool:
    """Return whether an error has a number and a text, as those of MySQL, MariaDB and SQL Server."""
    return len(cause.args) == 2 and isinstance(cause.args[0], int)


def _is_without_values(cause: BaseException) -> bool:
    state = getattr(cause, "sqlstate", None)
    if isinstance(state, str):
        return state[:2] in _WITHOUT_VALUES
    if _has_number(cause):
        return cause.args[0] in _NUMBERS_WITHOUT_VALUES
    name = getattr(cause, "sqlite_errorname", None)
    if not isinstance(cause, sqlite3.Error) or name is None:
        return False
    kind = name.removeprefix("SQLITE_").partition("_")[0]
    return kind in _SQLITE_WITHOUT_VALUES or (kind == "ERROR" and str(cause).startswith(_SQLITE_QUERY_ERRORS))
