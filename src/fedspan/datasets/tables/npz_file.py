"""NPZ archives: X (n, d), optionally feature_names (d,), and one array (n,) for each further column."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedspan.datasets.tables.source import Choose, Keep
from fedspan.datasets.tables.stacking import plain
from fedspan.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


def read_npz(file: Path, choose: Choose, keep: Keep, apart: Collection[str] = ()) -> pd.DataFrame:
    """Read an archive, whose X is in one piece: where all of it is kept, it is not copied.

    The further columns are stored apart from it anyway.
    """
    import pandas as pd

    loaded = np.load(file, allow_pickle=False)
    if not isinstance(loaded, np.lib.npyio.NpzFile):
        raise InputError(f"{file} holds a single array, and must be an NPZ archive with an array X")
    with loaded as arrays:
        if "X" not in arrays or arrays["X"].ndim != 2:
            raise InputError(f"{file} must hold an array X of rows and columns; it holds {', '.join(arrays.files)}")
        X = arrays["X"]
        given = arrays["feature_names"] if "feature_names" in arrays else [f"x{i}" for i in range(X.shape[1])]
        names = [str(name) for name in given]
        if len(set(names)) != X.shape[1]:
            raise InputError(f"{file}: feature_names has {len(set(names))} different names for {X.shape[1]} columns")
        more = [key for key in arrays.files if key not in ("X", "feature_names")]
        more = [key for key in more if arrays[key].shape == (len(X),)]
        wanted = list(choose([*names, *more]))
        frame = pd.DataFrame(X, columns=names, copy=False)
        for key in more:
            if key in wanted:
                frame[key] = plain(pd.Series(arrays[key]))
        return keep(frame if wanted == list(frame.columns) else frame[wanted]).reset_index(drop=True)
