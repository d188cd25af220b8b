"""Tables of cells and genes: an AnnData object or an ``.h5ad`` file, whose counts stay sparse and are read in blocks.

A site takes such a table for a data frame. It has names of columns, rows can be chosen, and values are made when they
are read. Steps that know cells read blocks of sparse rows instead, and never the whole matrix.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import DataMissingError, InputError, MissingPackageError

_BLOCK_ROWS = 2048


class CellTable:
    """Rows are cells, columns are genes, values are counts.

    Parameters
    ----------
    data : AnnData or path
        An ``.h5ad`` file is opened, and its counts are read block by block.
    layer : str, optional
        The layer that holds the counts. Default: ``X``.
    genes : sequence of str, optional
        The genes to keep, in this order. Default: all.

    Examples
    --------
    >>> import anndata, scipy.sparse
    >>> cells = CellTable(anndata.AnnData(scipy.sparse.csr_matrix(np.eye(3))))
    >>> cells.shape, list(cells.columns), next(cells.blocks()).nnz
    ((3, 3), ['0', '1', '2'], 3)
    """

    def __init__(self, data: Any, *, layer: str | None = None, genes: Sequence[str] | None = None) -> None:
        if isinstance(data, str | Path):
            data = _CellFile(Path(data))
        if not all(hasattr(data, name) for name in ("obs", "var_names", "n_vars", "layers")):
            raise InputError(
                f"data is a {type(data).__name__}, and must be an AnnData object or the path of a .h5ad file"
            )
        if layer is not None and layer not in data.layers:
            raise InputError(f"layer={layer!r} is not one of {', '.join(map(repr, data.layers)) or 'none'}")
        self.data, self.layer = data, layer
        if isinstance(data, _CellFile):
            (data.X if layer is None else data.layers[layer]).refuse_genes_first()
        names = [str(name) for name in data.var_names]
        if len(set(names)) < len(names):
            raise InputError("two genes have the same name: call adata.var_names_make_unique() first")
        self._names = names
        self._genes: NDArray[np.int64] | None = None
        self._rows: NDArray[np.int64] | slice = slice(0, int(data.n_obs))
        if genes is not None:
            place = {name: number for number, name in enumerate(names)}
            lacks = [name for name in genes if name not in place]
            if lacks:
                shown = ", ".join(map(repr, lacks[:5]))
                raise InputError(f"the table lacks {len(lacks)} of the genes: {shown}; choose genes that all have")
            self._genes = np.array([place[name] for name in genes], dtype=np.int64)

    # What a site uses, as of a data frame.

    @property
    def columns(self) -> list[str]:
        """Names of the genes."""
        return self._names if self._genes is None else [self._names[i] for i in self._genes.tolist()]

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of cells and genes."""
        rows = self._rows
        n = len(range(*rows.indices(int(self.data.n_obs)))) if isinstance(rows, slice) else len(rows)
        return n, len(self._names) if self._genes is None else len(self._genes)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def iloc(self) -> _Chosen:
        """Rows, or rows and genes, by number."""
        return _Chosen(self)

    def copy(self, deep: bool = False) -> CellTable:
        """Return this table, or with ``deep`` a table with its own copy of cells in memory."""
        if not deep or isinstance(self.data, _CellFile):  # what a file holds can't be written from here
            return self.chosen(slice(None))
        from anndata import AnnData

        counts = self._read(slice(0, len(self)))
        obs = self.data.obs.iloc[self._rows]
        return CellTable(AnnData(counts, obs=obs.copy(), var=self.data.var.loc[self.columns].copy()))

    def invented(self, scale: float) -> CellTable:
        """Return made-up cells of the same shape, each with one count; what is known of them is ``"0"``."""
        import pandas as pd
        from anndata import AnnData
        from scipy.sparse import csr_matrix

        n, genes = self.shape
        counts = csr_matrix((np.full(n, scale), (np.arange(n), np.arange(n) % genes)), shape=(n, genes))
        obs = pd.DataFrame("0", index=[str(i) for i in range(n)], columns=self.data.obs.columns)
        return CellTable(AnnData(counts, obs=obs, var=pd.DataFrame(index=self.columns)))

    def to_numpy(self, dtype: Any = None, na_value: Any = None) -> NDArray[Any]:
        """Return all values as a dense array."""
        values: NDArray[Any] = self._read(slice(0, len(self))).toarray()
        return values if dtype is None else values.astype(dtype)

    # What steps of cells use.

    def blocks(self, rows: int = _BLOCK_ROWS) -> Iterator[Any]:
        """Yield consecutive cells as sparse matrices (CSR) of counts."""
        for start in range(0, len(self), rows):
            yield self._read(slice(start, min(len(self), start + rows)))

    def obs(self, name: str) -> NDArray[Any]:
        """Return a column of what is known of the cells."""
        if name not in self.data.obs.columns:
            raise InputError(f"obs has no column {name!r}. Columns: {', '.join(map(str, self.data.obs.columns[:20]))}")
        column = self.data.obs[name].iloc[self._rows]
        return np.asarray(column.to_numpy(dtype=object) if hasattr(column, "cat") else column.to_numpy())

    def chosen(self, rows: Any, genes: Any = None) -> CellTable:
        """Return some of the cells, and of the genes."""
        found = CellTable.__new__(CellTable)
        found.data, found.layer, found._names = self.data, self.layer, self._names
        found._rows, found._genes = self._under(rows), self._genes
        if genes is not None:
            wanted = np.asarray(genes, dtype=np.int64)
            found._genes = wanted if self._genes is None else self._genes[wanted]
        return found

    def _under(self, rows: Any) -> NDArray[np.int64] | slice:
        """Return rows of this table as rows of the data: as a slice, where they are consecutive."""
        own = self._rows
        if isinstance(own, slice) and isinstance(rows, slice):
            inner = range(own.start, own.stop)[rows]
            if inner.step == 1:
                return slice(inner.start, max(inner.start, inner.stop))
            return np.array(inner, dtype=np.int64)
        every = np.arange(own.start, own.stop) if isinstance(own, slice) else own
        return np.asarray(every[rows], dtype=np.int64)

    def _read(self, part: slice) -> Any:
        from scipy.sparse import csr_matrix

        source = self.data.X if self.layer is None else self.data.layers[self.layer]
        rows = self._under(part)
        found = csr_matrix(source[rows])
        return found if self._genes is None else found[:, self._genes]


class _Chosen:
    def __init__(self, table: CellTable) -> None:
        self._table = table

    def __getitem__(self, key: Any) -> CellTable:
        return self._table.chosen(*key) if isinstance(key, tuple) else self._table.chosen(key)


class _CellFile:
    """An ``.h5ad`` file: what is known of cells and genes is in memory, counts are read when they are needed."""

    def __init__(self, path: Path) -> None:
        try:
            import h5py
            from anndata.io import read_elem
        except ImportError:
            raise MissingPackageError("files of AnnData need anndata: pip install '.[atlas]' in a checkout") from None
        if not path.is_file():
            raise DataMissingError(f"there is no file {path}")
        try:
            with h5py.File(path, "r") as file:
                self.obs, self.var = read_elem(file["obs"]), read_elem(file["var"])
                names = [f"layers/{name}" for name in file.get("layers", ())]
        except (OSError, KeyError, ValueError) as error:
            raise InputError(f"{path} can't be read as a file of AnnData: {type(error).__name__}") from None
        if not all(hasattr(frame, "columns") for frame in (self.obs, self.var)):
            raise InputError(
                f"{path} was written by an old version of anndata: write it again with read_h5ad and write_h5ad"
            )
        self.var_names, self.n_obs, self.n_vars = self.var.index, len(self.obs), len(self.var)
        self.X = _FileCounts(path, "X", (self.n_obs, self.n_vars))
        self.layers = {
            name.partition("/")[2]: _FileCounts(path, name, (self.n_obs, self.n_vars)) for name in sorted(names)
        }


class _FileCounts:
    """The counts in a file: rows are read as sparse matrices."""

    def __init__(self, path: Path, name: str, shape: tuple[int, int]) -> None:
        self.path, self.name, self.shape = path, name, shape

    def refuse_genes_first(self) -> None:
        """Refuse a sparse matrix that is stored gene by gene: its cells can't be read one block after another."""
        import h5py

        with h5py.File(self.path, "r") as file:
            stored = file.get(self.name)
            if stored is None:
                raise InputError(f"{self.path.name} has no {self.name}: name the layer that holds the counts")
            if not isinstance(stored, h5py.Dataset) and stored.attrs.get("encoding-type") != "csr_matrix":
                raise InputError(
                    f"{self.path.name}: {self.name} is stored by genes, and is needed by cells: write it again with "
                    "adata.X.tocsr()"
                )

    def __getitem__(self, rows: Any) -> Any:
        import h5py
        from scipy.sparse import csr_matrix, vstack

        with h5py.File(self.path, "r") as file:
            stored = file[self.name]
            if isinstance(stored, h5py.Dataset):
                dense = [stored[start:stop] for start, stop in _runs(rows)]
                return csr_matrix(np.concatenate(dense) if dense else np.zeros((0, self.shape[1])))
            ends = stored["indptr"][:]
            parts = [self._part(stored, ends, start, stop) for start, stop in _runs(rows)]
        return parts[0] if len(parts) == 1 else vstack(parts, format="csr") if parts else csr_matrix((0, self.shape[1]))

    def _part(self, stored: Any, ends: NDArray[np.int64], start: int, stop: int) -> Any:
        from scipy.sparse import csr_matrix

        inside = slice(int(ends[start]), int(ends[stop]))
        values = stored["data"][inside], stored["indices"][inside], ends[start : stop + 1] - ends[start]
        return csr_matrix(values, shape=(stop - start, self.shape[1]))


def _runs(rows: Any) -> list[tuple[int, int]]:
    """Return the first and the end of each run of consecutive rows."""
    if isinstance(rows, slice):
        return [(rows.start, rows.stop)]
    if not len(rows):
        return []
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    return [(int(run[0]), int(run[-1]) + 1) for run in np.split(rows, breaks)]


def categories(values: NDArray[np.str_], names: Sequence[str]) -> Any:
    """Return values as pandas' categories, in the order of `names`."""
    import pandas as pd

    plain: Any = np.array(names, dtype=object)
    return pd.Categorical(values.astype(object), categories=pd.Index(plain, dtype="object"))


def make_writable(adata: Any) -> None:
    """Make texts of ``obs`` and ``var`` plain objects: anndata 0.12 can't write the strings of pandas 3."""
    import pandas as pd

    adata.strings_to_categoricals()
    for frame in (adata.obs, adata.var):
        frame.index = frame.index.astype(object)
        for name, column in frame.items():
            if isinstance(column.dtype, pd.CategoricalDtype) and pd.api.types.is_string_dtype(column.cat.categories):
                frame[name] = column.cat.rename_categories(column.cat.categories.astype(object))
