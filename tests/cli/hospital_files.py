"""Three CSV files as people have them: other column orders, a text column, gaps, semicolons and decimal commas."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

ORDERS = {
    "north": ["age", "dose", "pulse", "ward", "patient"],
    "south": ["ward", "patient", "pulse", "dose", "age"],
    "west": ["patient", "pulse", "age", "ward", "dose"],
}
DIALECT = {"sep": ";", "decimal": ",", "index": False}


def rows(seed: int, count: int = 80) -> pd.DataFrame:
    """Return rows whose dose follows from the age."""
    rng = np.random.default_rng(seed)
    age = rng.normal(60, 10, count)
    frame = pd.DataFrame(
        {
            "age": age.round(1),
            "dose": (age / 20 + rng.normal(0, 0.2, count)).round(3),
            "pulse": rng.integers(50, 100, count),
            "ward": rng.choice(["A", "B", "none"], count),
            "patient": [f"p{seed}-{i}" for i in range(count)],
        }
    )
    frame.loc[rng.choice(count, count // 20, replace=False), "pulse"] = np.nan
    return frame


def write_hospitals(folder: Path) -> list[str]:
    """Write the files of three hospitals and return their names."""
    for seed, (name, columns) in enumerate(ORDERS.items()):
        rows(seed)[columns].to_csv(folder / f"{name}.csv", **DIALECT)
    return [f"{name}.csv" for name in ORDERS]


def write_new(folder: Path) -> str:
    """Write new rows without the patients; the dose of row 3 is far too large for its age."""
    new = rows(9, 20)
    new.loc[3, "dose"] = 40.0
    new[["pulse", "dose", "ward", "age"]].to_csv(folder / "new.csv", **DIALECT)
    return "new.csv"
