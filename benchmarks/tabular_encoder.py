"""FedTabularEncoder against scikit-learn's encoders on the pooled rows: a table of 80,000 rows and 45 columns."""

from __future__ import annotations

import statistics
import time

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

import fedspan as fs

ROWS, NUMBERS, TEXTS = 80_000, 41, 4


def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    numbers = pd.DataFrame(rng.lognormal(3, 2, (ROWS, NUMBERS)), columns=[f"number {i}" for i in range(NUMBERS)])
    texts = {f"text {i}": np.array([f"name {k}" for k in range(12)])[rng.integers(0, 12, ROWS)] for i in range(TEXTS)}
    return numbers.assign(**texts)


def pooled(frame: pd.DataFrame) -> Pipeline:
    texts = [column for column in frame if column.startswith("text")]
    numbers = make_pipeline(FunctionTransformer(lambda X: np.sign(X) * np.log1p(np.abs(X))), StandardScaler())
    return make_pipeline(
        make_column_transformer((OneHotEncoder(sparse_output=False), texts), remainder=numbers), StandardScaler()
    )


def main() -> dict[str, float]:
    frame = table()
    runs = {"pooled": 0, "1 site": 1, "100 sites": 100}
    fits: dict[str, list[float]] = {name: [] for name in runs}
    transforms: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(5):
        for name, sites in runs.items():
            model = fs.FedTabularEncoder() if sites else pooled(frame)
            data = fs.federate(frame, sites=np.arange(ROWS) % sites) if sites else frame  # sites that remember nothing
            start = time.perf_counter()
            model.fit(data)
            fits[name].append(time.perf_counter() - start)
            start = time.perf_counter()
            model.transform(frame)
            transforms[name].append(time.perf_counter() - start)
    ratios = {}
    for what, times in (("fit", fits), ("transform", transforms)):
        seconds = {name: statistics.median(found) for name, found in times.items()}
        for name in runs:
            print(f"{seconds[name]:8.2f} s {what}, {name}")
        ratios |= {f"{what}: {name} / pooled": seconds[name] / seconds["pooled"] for name in runs if name != "pooled"}
    for name, ratio in ratios.items():
        print(f"{ratio:8.2f}x {name}")
    return ratios
