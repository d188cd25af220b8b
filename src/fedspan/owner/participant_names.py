"""How sites and users of a real federation may be called: as their certificates name them."""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")
NAME_RULE = "letters, digits, '-' and '_', at most 63, and begin and end with a letter or digit"


def is_name(value: object) -> bool:
    """Tell whether a participant can be called so.

    >>> is_name("alice"), is_name(" alice"), is_name("")
    (True, False, False)
    """
    return isinstance(value, str) and _NAME.fullmatch(value) is not None
