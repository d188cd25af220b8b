"""SQL: one query on a database that is opened for reading only, some thousand rows at a time.

A password is in no `repr`, no sentence and no local variable of the frames of an error that leaves here: it is kept in
a `Secret`, and taken out of it only in calls that have returned, or whose error is let go of, before one is raised.
What a driver says is shown without whatever is secret, and, once there are rows, only if it cannot be about a value.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

from fedspan.datasets.sources.database_url import database_url
from fedspan.datasets.sources.driver_errors import said
from fedspan.datasets.sources.secret import Secret
from fedspan.datasets.sources.stacking import MixedColumnsError, plain, stack
from fedspan.datasets.sources.table_source import Choose, Keep, batch_rows
from fedspan.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

_MISSING = "reading databases needs SQLAlchemy and psycopg: install them with 'pip install fedspan[sql]'"
_CONNECT_SECONDS = 10
_SHORTEST_SECRET = 3  # replacing a shorter one would spoil the sentence and tell where it stood


class SqlSource:
    """One table as the answer to a query.

    Parameters
    ----------
    url : Secret
        ``postgresql://user@host/database`` or ``sqlite:///file``, with or without a password.
    query : str
        One ``SELECT``. Without an ``ORDER BY`` a database may give its rows in another order each time.
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
        self._url = database_url(url, password)
        self.password_in_url = self._url.password_inside

    def __repr__(self) -> str:
        return f"SqlSource({self.label!r})"

    @property
    def label(self) -> str:
        """The database, by host and name as far as these are certain."""
        return self._url.label

    def stamp(self) -> object:
        """Return ``None``: nobody can tell whether a query's answer is still the same."""
        return None

    def gone(self) -> bool:
        """Tell whether the file of an SQLite database is there no more; of others, only asking tells."""
        return self._url.sqlite and not (self._folder / self._url.file).is_file()

    def read(self, choose: Choose, keep: Keep, apart: Collection[str] = ()) -> pd.DataFrame:
        """Ask the query, and read the chosen columns of its answer batch by batch."""
        try:
            import pandas  # noqa: F401
        except ImportError:
            raise InputError("reading tables needs pandas: install it with 'pip install fedspan[tables]'") from None
        reason: str
        reached: list[bool] = []
        try:
            with self._rows(reached) as rows:
                return stack((keep(batch) for batch in _batches(rows, choose, self.label)), apart)
        except MixedColumnsError as error:
            reason = f"{self.label}: {error}"
        except InputError:
            raise
        except Exception as error:  # whatever a driver makes of a database
            reason = f"{self.label} fails: {self._without_secrets(said(error, values=bool(reached)))}"
        # Here, and not in the handler: so that no driver's error, with its locals, hangs on this one.
        raise InputError(reason)

    @contextmanager
    def _rows(self, reached: list[bool]) -> Iterator[Any]:
        """Yield the answer to the query, in a session that can write nothing; note when the database is `reached`."""
        import sqlalchemy as sql

        seconds = self._timeout
        if self._url.sqlite:
            engine = sql.create_engine("sqlite://", creator=self._open_file, poolclass=sql.NullPool)
        else:
            options = f"-c statement_timeout={max(1, round(seconds * 1000))}"
            waiting = {"connect_timeout": max(2, min(_CONNECT_SECONDS, round(seconds))), "options": options}
            engine = sql.create_engine(
                self._url.full.reveal(), poolclass=sql.NullPool, hide_parameters=True, connect_args=waiting
            )
        try:
            # The query as it stands: no driver is to take a percent sign in it for a parameter.
            engine = engine.execution_options(no_parameters=True)
            if not self._url.sqlite:
                engine = engine.execution_options(postgresql_readonly=True, stream_results=True)
            with engine.connect() as connection:
                reached.append(True)
                with connection.exec_driver_sql(self.query) as rows:
                    if not rows.returns_rows:
                        raise InputError(f"{self.label} returns no rows: query must be one SELECT")
                    yield rows
        finally:
            engine.dispose()

    def _open_file(self) -> sqlite3.Connection:
        path = (self._folder / self._url.file).resolve()
        return sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=self._timeout)

    def _without_secrets(self, text: str) -> str:
        for secret in self._url.secrets:
            plain_text = secret.reveal()
            for form in {plain_text, quote(plain_text), quote_plus(plain_text), quote(plain_text, safe="")}:
                if len(form) >= _SHORTEST_SECRET:
                    text = text.replace(form, "***")
        # And whatever stands where passwords do.
        text = re.sub(r"(//[^\s:/@]*):[^\s@]*@", r"\1:***@", text)
        return re.sub(r"(pass\w*\s*=\s*)\S+", r"\1***", text, flags=re.IGNORECASE)


def _batches(rows: Any, choose: Choose, label: str) -> Iterator[pd.DataFrame]:
    import pandas as pd

    names = [str(name) for name in rows.keys()]  # noqa: SIM118
    doubled = [name for name in names if names.count(name) > 1]
    if doubled:
        raise InputError(f"{label} has two columns named {doubled[0]!r}")
    wanted = list(choose(names))
    places = [names.index(name) for name in wanted]
    none = True
    for batch in rows.partitions(batch_rows(len(names))):
        none = False
        columns = list(zip(*batch, strict=True))
        yield pd.DataFrame(
            {name: _column(columns[k], name) for name, k in zip(wanted, places, strict=True)}, copy=False
        )
    if none:
        yield pd.DataFrame(columns=wanted)


def _column(values: Sequence[Any], name: str) -> pd.Series[Any]:
    import pandas as pd

    return plain(pd.Series(values, name=name, dtype=object))
