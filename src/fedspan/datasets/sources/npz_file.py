"""NPZ archives: X (n, d), optionally feature_names (d,), and one array (n,) for each further column."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedspan.datasets.sources.stacking import plain
from fedspan.datasets.sources.table_source import Choose, Keep
from fedspan.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

_KINDS = "buifUmM"  # truth values, numbers, text, durations and times


def read_npz(file: Path, choose: Choose, keep: Keep, apart: Collection[str] = ()) -> pd.DataFrame:
    """Read an archive, whose X is in one piece: where all of it is kept, it is not copied.

    Each array is loaded once, if it is wanted. The further columns are stored apart from X anyway.
    """
    import pandas as pd

    loaded = np.load(file, allow_pickle=False)
    if not isinstance(loaded, np.lib.npyio.NpzFile):
        raise InputError(f"{file} holds a single array, and must be an NPZ archive with an array X")
    with loaded as arrays:
        heads = {key: _head(arrays, key) for key in arrays.files}
        shape, dtype = heads.get("X", ((), np.dtype(np.float64)))
        if len(shape) != 2:
            raise InputError(f"{file} must hold an array X of rows and columns; it holds {', '.join(arrays.files)}")
        _check_kind(file, "X", dtype)
        given = arrays["feature_names"] if "feature_names" in heads else [f"x{i}" for i in range(shape[1])]
        names = [str(name) for name in given]
        if len(set(names)) != shape[1]:
            raise InputError(f"{file}: feature_names has {len(set(names))} different names for {shape[1]} columns")
        more = [key for key in heads if key not in ("X", "feature_names") and heads[key][0] == shape[:1]]
        wanted = list(choose([*names, *more]))
        frame = pd.DataFrame(arrays["X"], columns=names, copy=False)
        for key in more:
            if key in wanted:
                _check_kind(file, key, heads[key][1])
                frame[key] = plain(pd.Series(arrays[key]))
        return keep(frame if wanted == list(frame.columns) else frame[wanted]).reset_index(drop=True)


def _head(arrays: Any, key: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and type of an array, without loading it."""
    member = key if key in arrays.zip.namelist() else f"{key}.npy"
    with arrays.zip.open(member) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
    return shape, dtype


def _check_kind(file: Path, key: str, dtype: np.dtype[Any]) -> None:
    if dtype.kind not in _KINDS:
        raise InputError(f"{file}: {key} is of type {dtype}, and must hold numbers, text, times or durations")
