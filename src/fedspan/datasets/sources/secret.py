"""Passwords: where they come from, and how they stay out of logs and error messages."""

from __future__ import annotations

import os
import re
from pathlib import Path

from fedspan.errors import InputError


class Secret:
    """Text that is shown only by an explicit call of `reveal`.

    Examples
    --------
    >>> Secret("swordfish")
    ***
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return "***"

    def reveal(self) -> str:
        """Return the text."""
        return self._text


def secret_of(env: Secret | None, file: Secret | None, folder: Path = Path()) -> Secret | None:
    """Return the password from the environment variable `env`, or from a `file` that only its owner can read.

    Errors do not show the two names: a user may have put the password itself there.
    """
    if env is not None and file is not None:
        raise InputError("password_env and password_file both name a password: leave one of them out")
    found = _of_environment(env) if env is not None else None if file is None else _of_file(file, folder)
    if isinstance(found, str):
        raise InputError(found)
    return found


def _of_environment(env: Secret) -> Secret | str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", env.reveal()):
        return (
            "password_env must be the name of an environment variable (letters, digits and underscores), not the "
            "password itself"
        )
    found = os.environ.get(env.reveal())
    return Secret(found) if found else "password_env: the environment variable that it names is not set"


def _of_file(file: Secret, folder: Path) -> Secret | str:
    try:
        path = folder / file.reveal()
        if path.stat().st_mode & 0o077:
            return "password_file: the file that it names can be read by others: take that back with chmod 600"
        text = path.read_text(encoding="utf-8").strip("\r\n")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        return f"password_file: the file that it names cannot be read: {reason}"
    return Secret(text) if text else "password_file: the file that it names is empty"
