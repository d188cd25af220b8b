"""Times that are written as text: ISO 8601 alone, because 3/4/2026 is another day in another country."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fedspan.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

_ISO = re.compile(
    r"\d{4}-\d{2}-\d{2}"
    r"(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}(?::?\d{2})?)?)?"
)


def with_times(frame: pd.DataFrame, names: tuple[str, ...]) -> pd.DataFrame:
    """Return a frame with some columns, where they are text, as the times that they name, in UTC."""
    changed = {}
    for name in names:
        if name in frame.columns and frame[name].dtype.kind == "O":
            times = _times_of(frame[name])
            if times is None:
                raise InputError(
                    f"column {name!r} has cells that are not written as times, and the schema says time: write them as "
                    "'2026-01-31' or '2026-01-31T12:30'"
                )
            changed[name] = times
    return frame.assign(**changed) if changed else frame


def _times_of(column: pd.Series[Any]) -> pd.Series[Any] | None:
    """Return a column of text as times, missing ones stay missing, or ``None`` if some cell is not a time."""
    import pandas as pd

    if not all(_ISO.fullmatch(str(cell)) for cell in column.dropna()):
        return None
    try:
        times = pd.to_datetime(column.astype(object), format="ISO8601", utc=True)
    except ValueError:  # the 31st of February
        return None
    return times.dt.tz_localize(None).astype("datetime64[us]")
