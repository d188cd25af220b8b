"""What a site holds: arrays, memory maps or data frames, and how they are read."""

from __future__ import annotations

import copy
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.federation.question import SiteLedger
from fedspan.wire import is_plain_text

Array = NDArray[Any]

_DIGEST_ROWS = 4096


class SiteData:
    """What all copies of a site share; `computed` is what steps keep with `Site.cached`."""

    def __init__(self, name: str, X: Any, y: Any, task: Any, ledger: SiteLedger | None = None) -> None:
        if not isinstance(name, str) or not name or not is_plain_text(name):
            raise InputError(f"a site's name must be a non-empty string of plain text, not {name!r}")
        self.name = name
        self.frame: Any = X if hasattr(X, "columns") and hasattr(X, "to_numpy") else None
        if hasattr(self.frame, "iloc"):
            self.frame = X.copy(deep=False)  # what is later written to the caller's own does not reach the site
        names = None if self.frame is None else [str(column) for column in self.frame.columns]
        self.feature_names: tuple[str, ...] | None = None if names is None else tuple(names)
        self._X = None if self.frame is not None else read_only(X, name, "X")
        self.shape: tuple[int, ...] = X.shape if self._X is None else self._X.shape
        if not self.shape:
            raise InputError(f"site {name!r}: X must have rows, and is a single value")
        self.y = self._column(y, "y")
        self.task = self._column(task, "task")
        self.ledger = ledger
        self._digest: list[bytes] = []  # of all of the data, made when it is needed and shared by all views
        self.lens: Callable[[Any], Array] | None = None
        self.lens_takes_frame = False
        self.computed: dict[str, Any] = {}

    @property
    def X(self) -> Array:
        """The values. A frame's are made when first needed: of numbers and text together they would double it."""
        if self._X is None:
            self._X = read_only(_frame_values(self.frame), self.name, "X")
        return self._X

    def values(self, part: slice) -> Array:
        """Return the values of some rows, without those of the others."""
        return _frame_values(self.frame.iloc[part]) if hasattr(self.frame, "iloc") else self.X[part]

    def rows(self, part: slice) -> Any:
        """Return the rows that the lens is to have: of the data frame, if it takes one, or of the values."""
        return self.frame.iloc[part] if self.lens_takes_frame else self.X[part]

    def digest(self) -> bytes:
        """Return a digest (32 bytes) of all of the site's data, as they are without any lens."""
        if not self._digest:
            digest = blake2b(repr((self.name, self.shape, self.feature_names)).encode(), digest_size=32)
            for start in range(0, self.shape[0], _DIGEST_ROWS):
                part = slice(start, start + _DIGEST_ROWS)
                for values in (self.values(part), *(c[part] for c in (self.y, self.task) if c is not None)):
                    digest.update(f"{values.dtype} {values.shape};".encode())
                    digest.update(repr(values.tolist()).encode() if values.dtype == object else values.tobytes())
            self._digest.append(digest.digest())
        return self._digest[0]

    def replaced(self, X: Array) -> SiteData:
        """Return these data with other rows in place of all that was there, frame and lens included."""
        data = copy.copy(self)
        data._X, data.frame, data.feature_names = read_only(X, self.name, "X"), None, None
        data.shape = X.shape
        data.lens, data.lens_takes_frame, data.computed = None, False, {}
        return data

    def _column(self, values: Any, what: str) -> Array | None:
        if values is None:
            return None
        column = read_only(values, self.name, what)
        if column.ndim == 0 or len(column) != self.shape[0]:
            raise InputError(f"site {self.name!r}: {what} has shape {column.shape}, but X has {self.shape[0]} rows")
        return column


def _frame_values(frame: Any) -> Array:
    """Return a data frame's values: as numbers where all columns are, also those of pandas' own nullable types."""
    values: Array = frame.to_numpy()
    if values.dtype == object and all(getattr(dtype, "kind", "O") in "buif" for dtype in frame.dtypes):
        values = frame.to_numpy(dtype=np.float64, na_value=np.nan)
    return values


def read_only(values: Any, site: str, what: str) -> Array:
    """Return `values` as an array that cannot be written to."""
    if hasattr(values, "tocsr"):
        raise InputError(f"site {site!r}: {what} is a sparse matrix, which fedspan does not take: give a dense array")
    array: Array = values if isinstance(values, np.ndarray) else np.asarray(values)
    view = array.view()
    view.flags.writeable = False
    return view
