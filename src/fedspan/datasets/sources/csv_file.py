"""CSV files, some thousand rows at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedspan.datasets.sources.csv_kinds import MISSING_WORDS, CsvColumn, settled
from fedspan.datasets.sources.csv_lines import CsvShape, csv_shape, opened
from fedspan.datasets.sources.stacking import stack
from fedspan.datasets.sources.table_source import Choose, Keep, batch_rows
from fedspan.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


def read_csv(
    file: Path, choose: Choose, keep: Keep, apart: Collection[str] = (), missing: Collection[str] = ()
) -> pd.DataFrame:
    """Read the chosen columns of a file with a header; the texts `missing` mean missing cells, in every column.

    The file is gone through three times: to count the fields of its lines, to settle what its columns hold, and to
    keep what is to be kept. So what a row filter sees of a cell does not depend on what else is in its batch.
    """
    shape = csv_shape(file)
    wanted = list(choose([name for name in shape.names if name]))
    loose = [*MISSING_WORDS, *missing]
    columns = settled(_batches(file, shape, wanted, na_values=loose), wanted, loose)
    strict = {name: ["", *missing] if column.is_text else loose for name, column in columns.items()}
    types = {name: column.dtype for name, column in columns.items()}
    batches = _batches(file, shape, wanted, na_values=strict, dtype=types)
    return stack((keep(_plain(batch, columns)) for batch in batches), apart)


def _plain(batch: pd.DataFrame, columns: Mapping[str, CsvColumn]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame({name: column.plain(batch[name]) for name, column in columns.items()}, copy=False)


def _batches(file: Path, shape: CsvShape, wanted: list[str], **how: Any) -> Iterator[pd.DataFrame]:
    import pandas as pd

    # Numbers for columns without a name, which no name of the file can be: they are not read.
    names = [name or place for place, name in enumerate(shape.names)]
    rows = 0
    with (
        opened(file) as text,
        pd.read_csv(
            text,
            header=0,
            names=names,
            index_col=False,
            usecols=wanted,
            keep_default_na=False,
            chunksize=batch_rows(len(wanted)),
            low_memory=False,
            **how,
        ) as reader,
    ):
        for batch in reader:
            rows += len(batch)
            yield batch[wanted]
    if rows != shape.rows:
        raise InputError(f"{file} changed while it was read, or its quotes can be read in two ways")
    if not rows:
        yield pd.DataFrame(columns=wanted)
