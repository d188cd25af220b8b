"""Batches of rows become one frame of plain columns."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

_NUMBERS = "buif"


class MixedColumnsError(InputError):
    """Some columns hold numbers in one batch and text in another."""

    def __init__(self, columns: frozenset[str]) -> None:
        super().__init__(f"column {min(columns)!r} holds values of several kinds, such as numbers and text")
        self.columns = columns


def plain(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return a column of one batch as numbers, text, times or durations; a categorical stays one.

    Examples
    --------
    >>> import pandas as pd
    >>> plain(pd.Series([True, None], dtype=object)).tolist()
    [1.0, nan]
    """
    import pandas as pd

    dtype = column.dtype
    kind = getattr(dtype, "kind", "O")
    if isinstance(dtype, np.dtype) and kind in _NUMBERS + "mM":
        return column
    if isinstance(dtype, pd.CategoricalDtype):
        return column
    if kind == "c":
        raise InputError(f"column {str(column.name)!r} holds complex numbers, which a table cannot hold")
    if kind in _NUMBERS:  # pandas' own types with a mark for what is missing
        if column.isna().any():
            return pd.Series(column.to_numpy(dtype=np.float64, na_value=np.nan), column.index)
        return pd.Series(column.to_numpy(dtype=getattr(dtype, "numpy_dtype", None)), column.index)
    if kind == "M":
        return column.dt.tz_convert("UTC").dt.tz_localize(None) if hasattr(dtype, "tz") else column
    if isinstance(dtype, pd.StringDtype):
        return _empty(column) if column.isna().all() and len(column) else column
    return _of_objects(column)


def _of_objects(column: pd.Series[Any]) -> pd.Series[Any]:
    import pandas as pd

    found = pd.api.types.infer_dtype(column, skipna=True)
    if found in ("empty", "floating", "decimal", "mixed-integer-float") or (found == "boolean" and column.hasnans):
        return column.astype(np.float64)
    if found == "boolean":
        return column.astype(bool)
    if found == "integer":
        try:
            return column.astype(np.float64 if column.hasnans else np.int64)
        except OverflowError:
            return column.astype(np.float64)
    if found == "string":
        return column.astype("str")
    if found in ("date", "datetime", "datetime64"):
        times = pd.to_datetime(column, utc=True).dt.tz_localize(None)
        return times.astype("datetime64[us]")
    if found in ("timedelta", "timedelta64"):
        return pd.to_timedelta(column).astype("timedelta64[us]")
    kinds = sorted({type(value).__name__ for value in column[column.notna()]})
    if kinds == ["UUID"]:
        return column.map(str, na_action="ignore").astype("str")
    name = str(column.name)
    if len(kinds) > 1:
        raise MixedColumnsError(frozenset([name]))
    raise InputError(
        f"column {name!r} holds values of type {kinds[0]}, which a table cannot hold: make text or numbers"
    )


def _empty(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return a column without any value: it fits columns of every kind."""
    import pandas as pd

    return pd.Series(np.full(len(column), np.nan), column.index)


def stack(batches: Iterable[pd.DataFrame], apart: Collection[str] = ()) -> pd.DataFrame:
    """Return the rows of all batches, at least one, whose columns are `plain`.

    A table of numbers alone, but for the columns `apart`, is one array (d, n), so that a site's ``X`` is a view of it.
    Columns are put in one by one, and what each was made of is let go at once.
    """
    import pandas as pd

    first: pd.DataFrame | None = None
    parts: dict[str, list[Any]] = {}
    for number, batch in enumerate(batches):
        if first is None:
            first = batch
            continue
        if number == 1:
            parts = {name: [] for name in first.columns}
            _add(parts, first)
            first = first.iloc[:0]
        _add(parts, batch)
    assert first is not None
    if not parts:
        return first.reset_index(drop=True)
    kinds = {name: _joint_kind(part) for name, part in parts.items()}
    if mixed := frozenset(name for name, kind in kinds.items() if kind is None):
        raise MixedColumnsError(mixed)
    order, together = list(parts), [name for name in parts if name not in apart]
    frame = pd.DataFrame()
    if together and all(_is_number(kinds[name]) for name in together):
        rows = sum(map(len, parts[together[0]]))
        values = np.empty((len(together), rows), dtype=_common([kinds[name] for name in together]))
        for name, row in zip(together, values, strict=True):
            np.concatenate(parts.pop(name), out=row, casting="unsafe")
        frame = pd.DataFrame(values.T, columns=together, copy=False)
    for name in list(parts):
        frame[name] = _joined(parts.pop(name), kinds[name])
    return frame if list(frame.columns) == order else frame[order]


class _Numbers:
    """A column of numbers that grows in place, so that its memory goes back in one piece when it is let go."""

    def __init__(self, first: NDArray[Any]) -> None:
        self._values = np.array(first)

    def __len__(self) -> int:
        return len(self._values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self._values, dtype=dtype, copy=copy)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._values.dtype

    def append(self, part: NDArray[Any]) -> None:
        """Append some numbers; the column's type widens where it has to."""
        common, size = _common([self.dtype, part.dtype]), len(self._values) + len(part)
        if common != self.dtype:
            self._values = self._values.astype(common)
        before = len(self._values)
        self._values.resize(size, refcheck=False)  # which moves pages of memory, and copies nothing that is large
        self._values[before:] = part


def _add(parts: dict[str, list[Any]], batch: pd.DataFrame) -> None:
    """Add a batch to the columns' parts, which keep nothing else of it: numbers that follow one another are one."""
    for name, part in parts.items():
        column = batch[name]
        if not _is_number(column.dtype):
            part.append(column.copy())
        elif part and isinstance(part[-1], _Numbers):
            part[-1].append(column.to_numpy())
        else:
            part.append(_Numbers(column.to_numpy()))


def _joint_kind(parts: list[Any]) -> Any:
    """Return the dtype that the parts of a column have in common, ``None`` if they are of several kinds."""
    full = [part for part in parts if len(part) and not _nothing(part)]
    dtypes = [part.dtype for part in full] or [np.dtype(np.float64)]
    if all(map(_is_number, dtypes)):
        gaps = len(full) < len([part for part in parts if len(part)])
        return _common([*dtypes, np.dtype(np.float64)] if gaps and dtypes[0].kind != "f" else dtypes)
    families = {"text" if getattr(dtype, "kind", "O") == "O" else dtype.kind for dtype in dtypes}
    if len(families) > 1:
        return None
    categories = [str(dtype) == "category" for dtype in dtypes]
    return dtypes[0] if all(categories) or not any(categories) else "str"


def _is_number(kind: Any) -> bool:
    return isinstance(kind, np.dtype) and kind.kind in _NUMBERS


def _nothing(part: Any) -> bool:
    return isinstance(part, _Numbers) and part.dtype.kind == "f" and bool(np.isnan(np.asarray(part)).all())


def _common(dtypes: list[np.dtype[Any]]) -> np.dtype[Any]:
    """Return the type that holds numbers of all these; truth values beside numbers are numbers, as in a frame's X."""
    kinds = {dtype.kind for dtype in dtypes}
    if "b" in kinds and len(kinds) > 1:
        return np.dtype(np.float64)
    return np.result_type(*dtypes)


def _joined(parts: list[Any], kind: Any) -> NDArray[Any] | pd.Series[Any]:
    import pandas as pd

    if _is_number(kind):
        return np.concatenate(parts, dtype=kind, casting="unsafe")
    if isinstance(kind, pd.CategoricalDtype):
        held = [part for part in parts if not _nothing(part)]
        kind = pd.CategoricalDtype(pd.api.types.union_categoricals(held).categories)
    columns = [pd.Series(np.asarray(part) if isinstance(part, _Numbers) else part).astype(kind) for part in parts]
    return pd.concat(columns, ignore_index=True)
