"""Exact PCA of rows that are streamed, against one pass that only reads and multiplies; the largest has 10^8 rows.

Parquet: 2,000,000 rows x 50 columns in single precision, in ten files at ten sites. Made-up rows: 20 columns at ten
sites, which a stream makes by repeating one block, so that nothing is read from a disk. Peers take the products of the
same blocks about no centre, and check nothing. By name also time and memory of PCA, k-means and a detector of such
Parquet files: ``FEDSPAN_STREAM_ROWS=75000000`` for 15 GB of them, in the folder for temporary files (``TMPDIR``).
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.base import clone

import fedspan as fs
from benchmarks.battery.ratio import Ratio, compared
from fedspan.federation.site.row_stream import RowStream

PROCESSES = 1
SITES, ROWS, COLUMNS, MADE_UP = 10, 2_000_000, 50, 20
ROWS_BY_NAME = int(os.environ.get("FEDSPAN_STREAM_ROWS", ROWS))
SIZES = (10**6, 10**7, 10**8)
READ = 40_000
_GROUP = 100_000


class Repeated(RowStream):
    """A table of `rows` rows that repeats one block of them."""

    def __init__(self, block: np.ndarray, rows: int) -> None:
        self.label, self.shape, self.feature_names = "made-up rows", (rows, block.shape[1]), None
        self._block = block

    def batches(self, rows: int) -> Iterator[np.ndarray]:
        """Yield blocks of at most `rows` rows."""
        left, most = self.shape[0], min(rows, len(self._block))
        while left > 0:
            yield self._block[: min(left, most)]
            left -= most

    def in_order(self, names: Sequence[str]) -> RowStream:
        """Return the table: its columns have no names."""
        return self

    def stamp(self) -> str:
        """Return its shape, which identifies it."""
        return f"{self.shape[0]}x{self.shape[1]} repeated"


def compare() -> Iterator[Ratio]:
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        files = [_file(Path(folder) / f"part-{number}.parquet", rng) for number in range(SITES)]
        before = _peak()
        fit = lambda: fs.FedPCA(10).fit(fs.federate({file.name: fs.stream(file) for file in files}))  # noqa: E731
        fit()
        yield from compared(
            f"Exact PCA of {ROWS:,} rows x {COLUMNS} in Parquet files at {SITES} sites",
            fit,
            {"one pass that reads and multiplies": lambda: _read_and_multiply(files)},
            turns=5,
            accuracy=f"ours takes {max(0.0, _peak() - before):.0f} MB of memory",
        )
    block = rng.normal(size=(READ, MADE_UP)) @ rng.normal(size=(MADE_UP, MADE_UP))
    for rows in SIZES:
        tables = {f"{number}": Repeated(block, rows // SITES) for number in range(SITES)}
        yield from compared(
            f"Exact PCA of {rows:,} made-up rows x {MADE_UP}, streamed at {SITES} sites",
            lambda tables=tables: fs.FedPCA(10).fit(fs.federate(tables)),
            {"one pass that reads and multiplies": lambda tables=tables: _multiply(tables)},
            turns=3 if rows < SIZES[-1] else 1,
        )


def main() -> None:
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        files = [_file(Path(folder) / f"part-{number}.parquet", rng, ROWS_BY_NAME) for number in range(SITES)]
        print(f"{ROWS_BY_NAME:,} rows x {COLUMNS} in Parquet files at {SITES} sites")
        for what in ("FedPCA", "FedKMeans", "FedPCADetector", "FedAnomalyDetector"):
            with multiprocessing.get_context("spawn").Pool(
                1
            ) as pool:  # a new process: its peak of memory is this fit's
                seconds, memory = pool.apply(_spent, (what, files))
            print(
                f"{what}: {seconds:.0f} s of processor time, {memory:.0f} MB of memory beside the libraries", flush=True
            )


def _spent(what: str, files: list[Path]) -> tuple[float, float]:
    """Return the processor time and memory of a fit, after a small one that loads all libraries."""
    model = {
        "FedPCA": fs.FedPCA(10),
        "FedKMeans": fs.FedKMeans(8, random_state=0),
        "FedPCADetector": fs.FedPCADetector(),
        "FedAnomalyDetector": fs.FedAnomalyDetector(random_state=0),
    }[what]
    clone(model).fit(np.random.default_rng(0).normal(size=(200, 12)), sites=np.arange(200) % 3)
    next(fs.stream(files[0]).batches(1))
    before, begin = _peak(), time.process_time()
    model.fit(fs.federate({file.name: fs.stream(file) for file in files}))
    return time.process_time() - begin, _peak() - before


def _file(path: Path, rng: np.random.Generator, rows: int = ROWS) -> Path:
    schema = pa.schema([(f"c{j}", pa.float32()) for j in range(COLUMNS)])
    with pq.ParquetWriter(path, schema, compression="NONE", use_dictionary=False) as file:
        for start in range(0, rows // SITES, _GROUP):
            X = rng.standard_normal((min(_GROUP, rows // SITES - start), COLUMNS), dtype=np.float32)
            X[:, 1:] += X[:, :1]
            file.write_table(pa.table({f"c{j}": X[:, j] for j in range(COLUMNS)}))
    return path


def _read_and_multiply(files: list[Path]) -> np.ndarray:
    gram = np.zeros((COLUMNS, COLUMNS))
    for file in files:
        for batch in pq.ParquetFile(file, pre_buffer=False).iter_batches(batch_size=READ):
            X = np.column_stack([column.to_numpy() for column in batch.columns]).astype(np.float64)
            gram += X.T @ X
    return gram


def _multiply(tables: dict[str, Any]) -> np.ndarray:
    gram = np.zeros((MADE_UP, MADE_UP))
    for table in tables.values():
        for X in table.batches(READ):
            gram += X.T @ X
    return gram


def _peak() -> float:
    """Return the most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
