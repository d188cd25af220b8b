"""CSV files, some thousand rows at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fedspan.datasets.tables.source import Choose, Keep, batch_rows
from fedspan.datasets.tables.stacking import MixedColumnsError, plain, stack
from fedspan.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


def read_csv(file: Path, choose: Choose, keep: Keep, apart: Collection[str] = ()) -> pd.DataFrame:
    """Read the chosen columns of a file with a header.

    Each batch is taken for what its cells look like. Where a column looks like numbers in one batch and like text in
    another it is text, and the file is read again, so that its cells are as they stand there.
    """
    names = _header(file)
    wanted = list(choose(names))
    text: frozenset[str] = frozenset()
    while True:
        try:
            return stack((keep(batch[wanted]) for batch in _batches(file, wanted, text)), apart)
        except MixedColumnsError as error:
            if error.columns <= text:
                raise
            text |= error.columns


def _header(file: Path) -> list[str]:
    import pandas as pd

    top = pd.read_csv(file, header=None, nrows=1, dtype=str)
    written = [name for name in top.iloc[0] if isinstance(name, str)]
    doubled = [name for name in written if written.count(name) > 1]
    if doubled:  # pandas would give the second one another name
        raise InputError(f"{file} has two columns named {doubled[0]!r}")
    return [str(name) for name in pd.read_csv(file, nrows=0).columns]


def _batches(file: Path, wanted: list[str], text: frozenset[str]) -> Iterator[pd.DataFrame]:
    import pandas as pd

    chosen = set(wanted)
    with pd.read_csv(
        file,
        usecols=lambda name: name in chosen,
        dtype=dict.fromkeys(text, "str"),
        chunksize=batch_rows(len(wanted)),
        low_memory=False,
    ) as reader:
        none = True
        for batch in reader:
            none = False
            yield pd.DataFrame({name: plain(batch[name]) for name in batch.columns}, copy=False)
        if none:
            yield pd.DataFrame(columns=wanted)
