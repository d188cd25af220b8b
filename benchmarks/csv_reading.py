"""Reading CSV files against pandas: 200,000 rows of twelve numbers, a whole number and a text, and 2,000 wide rows."""

from __future__ import annotations

import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from fedspan.datasets.sources import Dialect, read_table

ROWS = 200_000
TURNS = 5


def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(ROWS, 12)), columns=[f"number {i}" for i in range(12)])
    frame["whole"] = rng.integers(0, 1000, ROWS)
    return frame.assign(text=np.array(["north", "south", "east", "none"])[rng.integers(0, 4, ROWS)])


def ratio(ours: Callable[[], object], theirs: Callable[[], object]) -> float:
    """Return the median over neighbouring turns of our time over theirs."""
    found = []
    for _ in range(TURNS):
        times = []
        for read in (ours, theirs):
            start = time.perf_counter()
            read()
            times.append(time.perf_counter() - start)
        found.append(times[0] / times[1])
    return statistics.median(found)


def main() -> dict[str, float]:
    warnings.simplefilter("ignore")
    plain, folder = table(), Path(tempfile.mkdtemp())
    gaps = plain.mask(np.random.default_rng(1).random(plain.shape) < 0.02)
    words = gaps.astype({"number 3": object})
    words.loc[ROWS - 5, "number 3"] = "n/a"
    often = gaps.astype({f"number {i}": object for i in range(3)}).fillna({f"number {i}": "NA" for i in range(3)})
    numbers = [name for name in gaps.columns if name.startswith("number")]
    everywhere = gaps.astype(dict.fromkeys(numbers, object)).fillna(dict.fromkeys(numbers, "NA"))
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.random.default_rng(2).integers(0, 2000, ROWS), unit="D")
    dates = plain.assign(**{f"day {i}": days.strftime("%Y-%m-%d") for i in range(4)})
    short = plain.assign(**{name: plain[name].round(2) for name in numbers})
    costs = np.random.default_rng(4).integers(0, 10**7, ROWS)
    grouped = plain.assign(costs=[f"{cost:,}".replace(",", ".") for cost in costs.tolist()])
    wide = pd.DataFrame(np.random.default_rng(3).normal(size=(2000, 3000)))
    files = {
        "numbers and text": (plain, Dialect(), {}),
        "with gaps": (gaps, Dialect(), {}),
        "words for missing numbers in three columns": (often, Dialect(), {}),
        "the first word for a missing number near the end": (words, Dialect(), {}),
        "semicolons and decimal commas": (gaps, Dialect(";", ","), {"sep": ";", "decimal": ","}),
        "words for missing numbers in all columns": (everywhere, Dialect(), {}),
        "semicolons and points between thousands": (
            grouped,
            Dialect(";", ","),
            {"sep": ";", "decimal": ",", "thousands": "."},
        ),
        "dates": (dates, Dialect(), {}),
        "numbers of three digits": (short, Dialect(), {}),
        "3,000 columns": (wide, Dialect(), {}),
        "words for missing cells that the user names": (gaps, Dialect(missing=("?",)), {"na_values": ["?"]}),
    }
    ratios = {}
    for number, (name, (frame, dialect, options)) in enumerate(files.items()):
        path = folder / f"{number}.csv"
        written = {key: value for key, value in options.items() if key in ("sep", "decimal")}
        frame.to_csv(path, index=False, **written)
        ratios[f"{name}: ours / pandas"] = ratio(
            lambda path=path, dialect=dialect: read_table(path, dialect),
            lambda path=path, options=options: pd.read_csv(path, **options),
        )
    for name, found in ratios.items():
        print(f"{found:8.2f}x {name}")
    return ratios
