"""Where a database is: what of its URL may be shown, and what is secret.

A URL that somebody typed may hold a password where no parser expects one: with an unescaped ``@`` or ``/`` in it, part
of it looks like a host or a database. So only what is certain is ever shown.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedspan.datasets.sources.secret import Secret
from fedspan.errors import InputError

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

_FORM = "url must be written as postgresql://user@host/database or sqlite:///file"
_SIGNS = (
    "url cannot be taken apart with certainty: write the signs @ / : ? # % of a user or a password as %40 %2F %3A %3F "
    "%23 %25, or leave the password out and use password_env or password_file"
)


@dataclass(frozen=True)
class DatabaseUrl:
    """A checked URL. `label` shows what is certain of it; `secrets` are all texts that nobody may see."""

    sqlite: bool
    label: str
    full: Secret
    file: str
    password_inside: bool
    secrets: tuple[Secret, ...]


def database_url(url: Secret, password: Secret | None = None) -> DatabaseUrl:
    """Take a URL apart, or say in a sentence that shows nothing of it why not."""
    read = _taken_apart(url, password)
    if isinstance(read, str):  # raised here: no frame of this error has seen the text
        raise InputError(read)
    return read


def _taken_apart(url: Secret, password: Secret | None) -> DatabaseUrl | str:
    parsed = _parsed(url.reveal())
    kind = "" if parsed is None else parsed.drivername.partition("+")[0]
    if parsed is None or kind not in ("postgresql", "postgres", "sqlite"):
        return _FORM
    sqlite, rest = kind == "sqlite", url.reveal().partition("://")[2]
    if sqlite and (parsed.host or parsed.username or parsed.password):
        return _FORM
    if not sqlite and "@" in rest and (rest.count("@") > 1 or parsed.username is None):
        return _SIGNS
    inside = [str(value) for key, value in parsed.query.items() if "pass" in key.lower()]
    inside += [] if parsed.password is None else [str(parsed.password)]
    if password is not None and inside:
        return "url has a password in it, and another one is named: leave one of them out"
    certain = sqlite or "@" in rest
    label = "the query on the database of [data] url"
    if certain:
        where = parsed.database if sqlite else f"{parsed.host or 'a local socket'}/{parsed.database}"
        label = f"the query on {'SQLite' if sqlite else 'PostgreSQL'} {where}"
    hidden = [*inside, *([] if certain else [parsed.host, parsed.database]), url.reveal()]
    if password is not None:
        hidden.append(password.reveal())
        parsed = parsed.set(password=password.reveal())
    if not sqlite:
        parsed = parsed.set(drivername="postgresql+psycopg")
    full = Secret(parsed.render_as_string(hide_password=False))
    secrets = (full, *(Secret(text) for text in hidden if text))
    return DatabaseUrl(sqlite, label, full, parsed.database or "", bool(inside), secrets)


def _parsed(text: str) -> URL | None:
    from sqlalchemy.engine import make_url

    with suppress(Exception):  # whose sentence may hold the URL
        return make_url(text)
    return None
