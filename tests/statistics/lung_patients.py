"""The patients of lifelines' lung data, by institution."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
from lifelines.datasets import load_lung

COLUMNS = ["age", "sex", "ph.ecog", "ph.karno", "wt.loss"]


@cache
def lung() -> pd.DataFrame:
    """Return the patients without gaps, of 18 institutions; the smallest have one patient and four."""
    found: pd.DataFrame = load_lung().dropna(subset=["inst", *COLUMNS]).reset_index(drop=True)
    return found


def target(frame: pd.DataFrame) -> np.ndarray:
    return frame[["time", "status"]].to_numpy(dtype=float)


def institutions(frame: pd.DataFrame) -> np.ndarray:
    return frame["inst"].astype(int).to_numpy()
