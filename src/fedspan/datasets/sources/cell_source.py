"""Cells in an ``.h5ad`` file of AnnData: counts of genes, of which only blocks are read."""

from __future__ import annotations

from dataclasses import dataclass

from fedspan.datasets.sources.cell_table import CellTable
from fedspan.datasets.sources.file_source import FileSource
from fedspan.errors import DataMissingError, InputError

CELL_ENDING = ".h5ad"


@dataclass(frozen=True)
class CellSource(FileSource):
    """One ``.h5ad`` file.

    Parameters
    ----------
    file : path
    layer : str, optional
        The layer that holds raw counts. Default: ``X``.
    """

    layer: str | None = None

    @property
    def ending(self) -> str:
        """The ending that decides how the file is read."""
        return CELL_ENDING

    def cells(self) -> CellTable:
        """Open the file; its counts are read when they are needed."""
        try:
            return CellTable(self.file, layer=self.layer)
        except DataMissingError:
            raise InputError(f"the file {self.file} does not exist: correct its name") from None
