"""TOML files that people write: an error names the file, the key and what is allowed."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedspan.errors import InputError

_WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


#: How sentences of the parser begin that repeat nothing of the file but single characters.
_SAFE = ("Cannot overwrite a value", "Expected", "Found invalid character", "Illegal character", "Invalid", "Un")


def parsed(path: Path) -> tuple[str, dict[str, Any]]:
    """Return a file's text and what it says.

    Whatever is wrong, the error repeats nothing of the file, and holds on to nothing of it either: there may be a
    password in it.
    """
    text, read = _read(path)
    if isinstance(read, str):
        raise InputError(read)
    return text, read


def _read(path: Path) -> tuple[str, dict[str, Any] | str]:
    try:
        text = path.read_text(encoding="utf-8")
        return text, tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        return "", f"{path} cannot be read: {reason}"
    except tomllib.TOMLDecodeError as error:
        what, _, place = str(error).rpartition(" (at ")
        said = f"{what}, at {place.removesuffix(')')}" if what.startswith(_SAFE) else f"at {place.removesuffix(')')}"
        return "", f"{path} is not valid TOML: {said}"
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; brackets in brackets in ...
        return "", f"{path} cannot be read as TOML: {type(error).__name__}"


def table(raw: Mapping[str, Any], key: str, path: Path) -> Mapping[str, Any]:
    """Return the table ``[key]``, empty where there is none."""
    value = raw.get(key, {})
    if not isinstance(value, dict):
        raise InputError(f"{path}: {key} must be a table, written as [{key}]")
    return value


def check_keys(raw: Mapping[str, Any], allowed: set[str], path: Path, where: str) -> None:
    """Refuse a key that is not one of the `allowed` ones, and name these."""
    for key in raw:
        if key not in allowed:
            raise InputError(f"{path}: {where}{key!r} is not a known key; known are {', '.join(sorted(allowed))}")


def typed(raw: Mapping[str, Any], key: str, kind: type, default: Any, path: Path, where: str = "") -> Any:
    """Return the value of `key`, which must be of one kind, or the default. A whole number is a number too."""
    value = raw.get(key, default)
    kinds = (int, float) if kind is float else (kind,)
    if value is not default and (not isinstance(value, kinds) or (kind is not bool and isinstance(value, bool))):
        raise InputError(f"{path}: {where}{key} = {value!r} must be {_WORDS[kind]}")
    return value


def names(raw: Mapping[str, Any], key: str, path: Path, where: str, what: str) -> tuple[str, ...] | None:
    """Return the list of names under `key`, or ``None`` where there is none; `what` says what the names are of."""
    value = raw.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise InputError(f"{path}: {where}{key} must be a list of {what}")
    return tuple(value)


def existing(file: Path, path: Path) -> Path:
    """Return a file that the file `path` names, if it is there."""
    if not file.is_file():
        raise InputError(f"{path}: the file {file} does not exist")
    return file
