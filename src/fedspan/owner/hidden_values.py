"""What a site's file says, with everything hidden that may be a password, before anything else looks at it.

People put a URL under the wrong key, a password where the name of a variable belongs, or spell a key in capitals. So
only values of keys that are known, and hold no password, are open; whatever else there is shows as ``***`` in every
sentence and every frame of a traceback.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fedspan.datasets.sources.secret import Secret
from fedspan.errors import InputError

_SECRET = ("url", "password_env", "password_file")
_TEXTS = ("query", "where")  # may speak of anything, but not of a database
_COLUMNS = ("columns", "drop", "label", "task", "missing")
_DATABASE = re.compile(r"(?:postgres|sqlite|mysql|mariadb|oracle|mssql)[a-z0-9+]*:/", re.IGNORECASE)
_URL = re.compile(r"://")
_URL_OR_REST_OF_ONE = re.compile(r"://|:\S*@")


class Hidden:
    """A value that is no text, and may be a secret all the same."""

    def __repr__(self) -> str:
        return "***"


def hidden_values(raw: Mapping[str, Any], known: Mapping[str, set[str]]) -> tuple[dict[str, Any], list[str]]:
    """Return what a file says, without what may be a secret, and a sentence for each one that is in the wrong place.

    Text that is hidden becomes a `Secret`, anything else `Hidden`. The sections that are not `known` are hidden whole.
    """
    shown: dict[str, Any] = {}
    problems: list[str] = []
    for section, body in raw.items():
        name = _named(section, "the name of a section", problems)
        if section not in known or not isinstance(body, dict):
            shown[name] = {} if isinstance(body, dict) else Hidden()
            continue
        shown[name] = {}
        for key, value in body.items():
            label = _named(key, f"a key of [{section}]", problems)
            if key in _SECRET or (known[section] and key not in known[section]):
                shown[name][label] = Secret(value) if isinstance(value, str) else Hidden()
            elif any(_pattern(key).search(text) for text in _texts(value)):
                shown[name][label] = Hidden()
                problems.append(f"[{section}] {label} holds a URL, or part of one: only [data] url may")
            else:
                shown[name][label] = value
    return shown, problems


def secret_text(raw: Mapping[str, Any], key: str) -> Secret | None:
    """Return the hidden text of a key."""
    value = raw.get(key)
    if value is not None and not isinstance(value, Secret):
        raise InputError(f"[data] {key} must be text")
    return value


def _named(key: str, what: str, problems: list[str]) -> str:
    if _URL_OR_REST_OF_ONE.search(key):
        problems.append(f'{what} is a URL, or part of one: write url = "..." in [data]')
        return "***"
    return key


def _pattern(key: str) -> re.Pattern[str]:
    return _DATABASE if key in _TEXTS else _URL if key in _COLUMNS else _URL_OR_REST_OF_ONE


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in _texts(part)]
    return [text for part in value for text in _texts(part)] if isinstance(value, list) else []
