"""The words of the row filter's language."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from fedspan.errors import InputError

_WORD = re.compile(
    r"""\s*(?:
    (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.])
    |(?P<text>'[^']*'|"[^"]*")
    |(?P<name>`[^`]+`)
    |(?P<word>[^\W\d]\w*)
    |(?P<sign>==|!=|<=|>=|[=<>()\[\],])
    |(?P<end>$)
    )""",
    re.VERBOSE,
)
_RESERVED = ("and", "or", "not", "in", "is", "missing")
_TRUTH = {"true": True, "false": False}
_LONGEST = 10_000


@dataclass(frozen=True)
class Word:
    """One word: a ``value``, a ``name`` in back quotes, another ``word``, a ``sign`` or the ``end``."""

    kind: str
    text: str
    at: int
    value: Any = None

    @property
    def reserved(self) -> bool:
        """Whether it has a meaning of its own, and is no column unless in back quotes."""
        return self.text in _RESERVED


def words(text: str) -> list[Word]:
    """Take a row filter apart.

    Examples
    --------
    >>> [word.text for word in words("age>=18 and `blood type` in ['A']")]
    ['age', '>=', '18', 'and', 'blood type', 'in', '[', "'A'", ']', '']
    """
    if len(text) > _LONGEST:
        raise InputError(f"the row filter has {len(text):,} characters, and may have {_LONGEST:,}")
    found: list[Word] = []
    at = 0
    while not found or found[-1].kind != "end":
        match = _WORD.match(text, at)
        if match is None:
            rest = text[at:].lstrip()
            raise InputError(
                f"the row filter {text!r}: {rest[:1]!r} at character {len(text) - len(rest) + 1} is no word"
            )
        kind = str(match.lastgroup)
        found.append(_word(kind, match[kind], match.start(kind)))
        at = match.end()
    return found


def _word(kind: str, text: str, at: int) -> Word:
    if kind == "number":
        whole = text.lstrip("+-").isdigit() and len(text) <= 18  # beyond that no column holds them exactly
        return Word("value", text, at, int(text) if whole else float(text))
    if kind == "text":
        return Word("value", text, at, text[1:-1])
    if kind == "name":
        return Word("name", text[1:-1], at)
    if kind == "word" and text in _TRUTH:
        return Word("value", text, at, _TRUTH[text])
    return Word(kind, text, at)
