"""TOML files that people write: an error names the file, the key and what is allowed."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from fedspan.errors import InputError

N = TypeVar("N", tuple[str, ...], None)

_WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}

#: How sentences of the parser begin that repeat nothing of the file but single characters.
_SAFE = (
    *("Cannot overwrite a value", "Expected", "Found invalid character", "Illegal character", "Invalid", "Un"),
    "a table or key",
)


def parsed(path: Path) -> tuple[str, dict[str, Any]]:
    """Return a file's text and its content.

    Whatever is wrong, the error repeats nothing of the file, and holds on to nothing of it either: there may be a
    password in it.
    """
    text, read = _read(path)
    if isinstance(read, str):
        raise InputError(read)
    return text, read


def _read(path: Path) -> tuple[str, dict[str, Any] | str]:
    try:
        text = path.read_text(encoding="utf-8-sig")  # Windows editors write a byte order mark
        return text, tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        return "", f"{path} cannot be read: {reason}; name a TOML file"
    except tomllib.TOMLDecodeError as error:
        what, _, place = str(error).rpartition(" (at ")
        if what.startswith("Cannot declare"):  # a name follows, and there is only one reason
            what = "a table or key is there twice"
        said = f"{what}, at {place.removesuffix(')')}" if what.startswith(_SAFE) else f"at {place.removesuffix(')')}"
        if "'\\'" in what:
            said += "; in paths write / instead, or put them in single quotes"
        other = "" if path.suffix == ".toml" else "; name a TOML file"
        return "", f"{path} is not valid TOML: {said}{other}"
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; brackets in brackets in ...
        return "", f"{path} cannot be read as TOML: {type(error).__name__}"


class Section:
    """A table of a file: its values in their types, or errors that name the file, the table and the key.

    Parameters
    ----------
    raw : mapping
        What the table holds.
    path : path
        The file.
    where : str
        What errors call the table, such as ``"[data] "``; empty for the whole file.
    keys : names, optional
        All keys that the table may have.
    """

    def __init__(
        self, raw: Mapping[str, Any], path: Path, where: str = "", keys: Collection[str] | None = None
    ) -> None:
        self.raw, self.path, self.where = raw, path, where
        for key in raw if keys is not None else ():
            if key not in (keys or ()):
                raise self.error(f"{key!r} is not a known key; known are {', '.join(sorted(keys or ()))}")

    def __contains__(self, key: str) -> bool:
        return key in self.raw

    def table(self, name: str, keys: Collection[str] | None = None) -> Section:
        """Return the table ``[name]``, empty where it is missing."""
        value = self.raw.get(name, {})
        if not isinstance(value, dict):
            raise self.error(f"{name} must be a table, written as [{name}]")
        return Section(value, self.path, f"[{name}] ", keys)

    def value(self, key: str, kind: type, default: Any = None) -> Any:
        """Return the value of `key`, which must be of one kind, or the default. A whole number is a number too."""
        value = self.raw.get(key, default)
        kinds = (int, float) if kind is float else (kind,)
        if value is not default and (not isinstance(value, kinds) or (kind is not bool and isinstance(value, bool))):
            raise self.error(f"{key} = {value!r} must be {_WORDS[kind]}")
        return value

    def names(self, key: str, what: str, default: N) -> tuple[str, ...] | N:
        """Return the list of names under `key`, or the default; `what` describes the names in errors."""
        value = self.raw.get(key)
        if value is None:
            return default
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise self.error(f"{key} must be a list of {what}")
        return tuple(value)

    def file(self, name: str, *, folders: bool = False) -> Path:
        """Return a file that exists, or with `folders` a folder; its name is relative to the folder of this one."""
        file = self.path.parent / name
        if not os.path.isfile(file) and not (folders and os.path.isdir(file)):  # also of names that are no paths
            what = "is a folder: name a file in it" if os.path.isdir(file) else "does not exist: correct its name"
            raise InputError(f"{self.path}: the file {file} {what}")
        return file

    def error(self, text: str) -> InputError:
        """Return an error that names the file and this table before `text`."""
        return InputError(f"{self.path}: {self.where}{text}")

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Name this table in the errors of other modules."""
        try:
            yield
        except InputError as error:
            raise self.error(str(error)) from None
