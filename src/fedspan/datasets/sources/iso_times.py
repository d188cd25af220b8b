"""Times that are written as text: ISO 8601 alone, since 3/4/2026 is one day in one country and another in the next."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fedspan.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

_ISO = (
    r"\d{4}-\d{2}-\d{2}"
    r"(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}(?::?\d{2})?)?)?"
)
EXAMPLES = "'2026-01-31' or '2026-01-31T12:30'"


def looks_like_time(text: object) -> bool:
    """Tell whether a text is written as a date, or a date and a time.

    Examples
    --------
    >>> looks_like_time("2026-01-31 12:30"), looks_like_time("1/31/2026")
    (True, False)
    """
    return isinstance(text, str) and re.fullmatch(_ISO, text) is not None


def time_of(text: str) -> pd.Timestamp | None:
    """Return the time that a text names, in UTC where it says how far from it, or ``None`` if it names none."""
    import pandas as pd

    if not looks_like_time(text):
        return None
    try:
        found = pd.Timestamp(text)
    except ValueError:  # the 31st of February
        return None
    return found.tz_convert("UTC").tz_localize(None) if found.tzinfo is not None else found


def times_of(column: pd.Series[Any]) -> pd.Series[Any] | None:
    """Return a column of text as times, missing ones stay so, or ``None`` if some cell is none."""
    import pandas as pd

    there = column.dropna()
    if not bool(there.str.fullmatch(_ISO).all()):
        return None
    try:
        times = pd.to_datetime(column.astype(object), format="ISO8601", utc=True)
    except ValueError:
        return None
    return times.dt.tz_localize(None).astype("datetime64[us]")


def is_text(column: pd.Series[Any]) -> bool:
    """Tell whether a plain column holds text."""
    return getattr(column.dtype, "kind", "O") == "O"


def with_times(frame: pd.DataFrame, names: tuple[str, ...]) -> pd.DataFrame:
    """Return a batch with some columns, where they are text, as the times that they name."""
    changed = {}
    for name in names:
        if name in frame.columns and is_text(frame[name]):
            times = times_of(frame[name].astype("str"))
            if times is None:
                raise InputError(
                    f"column {name!r} has cells that are not written as times, and the schema says time: write "
                    f"them as {EXAMPLES}"
                )
            changed[name] = times
    return frame.assign(**changed) if changed else frame
