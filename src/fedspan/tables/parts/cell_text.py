"""What the text of a cell stands for: a number, a name, or nothing.

The rules are the same at every site, so that a table gives the same cells however it is split and stored:

- Missing: empty text, the marks in `MISSING` in any case ("-", "NA", "null", ...), what is infinite, and numbers beyond
  `LARGEST` in magnitude, whose powers would overflow.
- A number: ``"12"``, ``" 1e3"``, ``"0x1f"``, and ``"true"`` and ``"false"`` as 1 and 0.
- A name: any text that is not missing, with white space made single. Whole numbers are written without a fraction, so
  ``"80"`` and ``"80.0"`` are one name.
"""

from __future__ import annotations

import math
import re

from fedspan.wire import is_plain_text

_INFINITE = ("inf", "+inf", "-inf", "infinity", "+infinity", "-infinity")
MISSING = frozenset(
    ("", "-", "--", "?", "na", "n/a", "#n/a", "#na", "<na>", "nan", "-nan", "+nan", "nat", "null", "none", *_INFINITE)
)
#: No measurement is larger, and the fourth powers of a billion such numbers can still be added up.
LARGEST = 1e70

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII)
_WHOLE = re.compile(r"([+-]?\d+)\.0*", re.ASCII)
_HEXADECIMAL = re.compile(r"0x[0-9a-f]{1,16}", re.ASCII)
_WORDS = {"true": 1.0, "false": 0.0}


def name(text: str) -> str:
    """Return the name that a cell's text stands for, "" for a missing one.

    Examples
    --------
    >>> name("  Mozilla   5.0 "), name("80.0"), name("N/A")
    ('Mozilla 5.0', '80', '')
    """
    text = " ".join(text.split())
    if not is_plain_text(text):  # bytes that were no text
        text = text.encode("utf-8", "replace").decode()
    lower = text.lower()
    if lower in MISSING or (_NUMBER.fullmatch(lower) and abs(float(lower)) > LARGEST):
        return ""
    if lower in _WORDS:
        return text.capitalize()
    if whole := _WHOLE.fullmatch(text):
        return "0" if whole[1] in ("-0", "+0") else whole[1]
    return text


def number(text: str) -> float:
    """Return the number that a cell's text reads as, NaN for none. It may be infinite, or beyond `LARGEST`.

    Examples
    --------
    >>> number(" 1e3"), number("0x1F"), number("1,000")
    (1000.0, 31.0, nan)
    """
    lower = text.strip().lower()
    if _NUMBER.fullmatch(lower):
        return float(lower)
    if _HEXADECIMAL.fullmatch(lower):
        return float(int(lower, 16))
    return _WORDS.get(lower, math.nan)
