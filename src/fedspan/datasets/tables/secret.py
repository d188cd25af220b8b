"""Passwords: where they come from, and that nobody sees them by accident."""

from __future__ import annotations

import os
from pathlib import Path

from fedspan.errors import InputError


class Secret:
    """Text that shows itself to nobody who does not ask for it.

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


def secret_of(env: str | None, file: Path | None) -> Secret | None:
    """Return the password from the environment variable `env` or from a file that only its owner can read."""
    if env is not None and file is not None:
        raise InputError("password_env and password_file both name a password: leave one of them out")
    if env is not None:
        found = os.environ.get(env)
        if not found:
            raise InputError(f"password_env: the environment variable {env} is not set")
        return Secret(found)
    if file is None:
        return None
    try:
        if file.stat().st_mode & 0o077:
            raise InputError(f"password_file: {file} can be read by others: take that back with chmod 600")
        text = file.read_text(encoding="utf-8").strip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"password_file: {file} cannot be read: {reason}") from None
    if not text:
        raise InputError(f"password_file: {file} is empty")
    return Secret(text)
