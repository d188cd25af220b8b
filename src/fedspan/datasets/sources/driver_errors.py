"""What may be repeated of what a database's driver says: no values of cells."""

from __future__ import annotations

import sqlite3

#: SQLSTATE classes of PostgreSQL whose sentences are about the connection, the session or the text of the query.
_ABOUT_NO_VALUE = ("08", "25", "28", "3D", "3F", "42", "53", "55", "57", "58")
#: The same of SQLite, and how its sentences begin that quote the query.
_SQLITE = ("AUTH", "BUSY", "CANTOPEN", "CORRUPT", "IOERR", "LOCKED", "NOTADB", "PERM", "READONLY")
_OF_THE_QUERY = ("no such table", "no such column", "no such function", 'near "', "incomplete input")


def said(error: Exception, *, values: bool) -> str:
    """Return in one line what went wrong.

    Parameters
    ----------
    error : Exception
        Of SQLAlchemy, or of what it calls.
    values : bool
        Whether the error can be about a value: the database was reached. Then the sentence is repeated only where
        the error has a code that says that it is about something else.
    """
    from sqlalchemy.exc import SQLAlchemyError

    told = getattr(error, "orig", None) or error
    name = type(told).__name__
    if not isinstance(error, SQLAlchemyError):  # of what became of a value on the way, which it may name
        return f"a value, or the driver, makes {name}"
    if not values or _about_no_value(told):
        return next((line.strip()[:500] for line in str(told).splitlines() if line.strip()), name)
    state = getattr(told, "sqlstate", None) or getattr(told, "sqlite_errorname", None)
    about = ": some value does not fit" if str(state)[:2] in ("22", "23") else ""
    return f"{name} (SQLSTATE {state}){about}" if state else f"a value, or the driver, makes {name}"


def _about_no_value(told: BaseException) -> bool:
    state = getattr(told, "sqlstate", None)
    if isinstance(state, str):
        return state[:2] in _ABOUT_NO_VALUE
    name = getattr(told, "sqlite_errorname", None)
    if not isinstance(told, sqlite3.Error) or name is None:
        return False
    kind = name.removeprefix("SQLITE_").partition("_")[0]
    return kind in _SQLITE or (kind == "ERROR" and str(told).startswith(_OF_THE_QUERY))
