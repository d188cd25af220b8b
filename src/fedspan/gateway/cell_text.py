"""Read the text of a cell as a number or as a name: the same rules at every site and on every gateway.

- Missing: empty text, the marks in `MISSING` in any case ("-", "NA", "null", ...), infinities, and numbers beyond
  `LARGEST` in magnitude, whose powers would overflow. "none" is a name, such as that of a diagnosis.
- A number: text such as ``"12"``, ``" 1e3"``, ``"0x1f"``, ``"true"``, ``"97 %"`` (97).
- A name: any text that is not missing, with single white space. Whole numbers are written without a fraction, so that
  ``"80"`` and ``"80.0"`` are one name.
"""

from __future__ import annotations

import math
import re

MISSING = frozenset(
    [
        *("", "-", "--", "?", "na", "n/a", "#n/a", "#na", "<na>", "nan", "-nan", "+nan", "nat", "null"),
        *("inf", "+inf", "-inf", "infinity", "+infinity", "-infinity"),
    ]
)
#: No measurement is larger, and the fourth powers of a billion such numbers can still be added up.
LARGEST = 1e70

#: Each text fits in one way at most: with several ways a cell of many digits would take the square of their number.
_NUMBER = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?)(\s*%)?", re.ASCII)
_WHOLE = re.compile(r"([+-]?\d+)\.0*", re.ASCII)
_HEXADECIMAL = re.compile(r"0x[0-9a-f]{1,16}", re.ASCII)
_TRUTH = {"true": 1.0, "false": 0.0}


def name(text: str) -> str:
    """Return the name that a cell's text stands for, "" for a missing one."""
    text = " ".join(text.split())
    text = text.encode("utf-8", "replace").decode()  # bytes that were not text
    lower = text.lower()
    found = _NUMBER.fullmatch(lower)
    if lower in MISSING or (found and abs(float(found[1])) > LARGEST):
        return ""
    if lower in _TRUTH:
        return text.capitalize()
    if whole := _WHOLE.fullmatch(text):
        return "0" if whole[1] in ("-0", "+0") else whole[1]
    return text


def number(text: str) -> float:
    """Return the number that a cell's text reads as, or NaN. It may be infinite, or beyond `LARGEST`."""
    lower = text.strip().lower()
    if found := _NUMBER.fullmatch(lower):
        return float(found[1])
    if _HEXADECIMAL.fullmatch(lower):
        return float(int(lower, 16))
    return _TRUTH.get(lower, math.nan)
