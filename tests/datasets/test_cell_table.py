"""Tables of cells: rows and genes by number, blocks, files, and what is refused."""

from __future__ import annotations

import sys
import warnings

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import fedspan as fs
from fedspan.datasets.sources.cell_table import CellTable
from fedspan.errors import InputError, MissingPackageError

COUNTS = np.arange(35.0, dtype=np.float32).reshape(7, 5) % 4


def example(X, **more):
    obs = pd.DataFrame({"lab": list("abbabba"), "dose": np.arange(7)}, index=[f"cell {i}" for i in range(7)])
    return anndata.AnnData(X, obs=obs, var=pd.DataFrame(index=list("vwxyz")), **more)


def file_of(X, path):
    with warnings.catch_warnings(), pd.option_context("future.infer_string", False):
        warnings.simplefilter("ignore")
        example(X, layers={"raw": X}).write_h5ad(path)
    return path


@pytest.fixture(params=["memory", "file", "dense file", "layer"])
def table(request, tmp_path):
    sparse = scipy.sparse.csr_matrix(COUNTS)
    if request.param == "memory":
        return CellTable(example(sparse))
    path = file_of(COUNTS if request.param == "dense file" else sparse, tmp_path / "cells.h5ad")
    return CellTable(path, layer="raw" if request.param == "layer" else None)


def test_rows_and_genes_are_chosen_by_number(table):
    assert table.shape == (7, 5)
    np.testing.assert_array_equal(table.to_numpy(), COUNTS)
    for rows in (slice(2, 6), slice(None, None, 3), np.array([6, 0, 1]), slice(5, 5)):
        np.testing.assert_array_equal(table.iloc[rows].to_numpy(), COUNTS[rows])
    again = table.iloc[2:].iloc[[0, 3, 4], [4, 1]]
    np.testing.assert_array_equal(again.to_numpy(), COUNTS[2:][[0, 3, 4]][:, [4, 1]])
    assert again.columns == ["z", "w"]
    assert again.obs("dose").tolist() == [2, 5, 6]
    assert [block.shape for block in table.blocks(3)] == [(3, 5), (3, 5), (1, 5)]
    assert all(scipy.sparse.issparse(block) for block in table.blocks())


def test_genes_are_chosen_by_name_and_a_deep_copy_is_its_own(table):
    some = CellTable(table.data, layer=table.layer, genes=["y", "v"])
    np.testing.assert_array_equal(some.copy(deep=True).to_numpy(), COUNTS[:, [3, 0]])
    with pytest.raises(InputError, match="lacks 1 of the genes: 'q'"):
        CellTable(table.data, genes=["v", "q"])


def test_a_site_takes_it_for_a_frame(table):
    site = fs.Site("a", table)
    assert site.feature_names == tuple("vwxyz")
    assert site.fingerprint() == fs.Site("a", CellTable(example(scipy.sparse.csr_matrix(COUNTS)))).fingerprint()
    turned = site.in_order(tuple("zyxwv"))
    np.testing.assert_array_equal(turned.X, COUNTS[:, ::-1])


def test_what_cannot_be_read_is_refused(tmp_path):
    path = file_of(scipy.sparse.csc_matrix(COUNTS), tmp_path / "by_genes.h5ad")
    with pytest.raises(InputError, match="is stored by genes, and is needed by cells"):
        CellTable(path)
    with h5py.File(tmp_path / "old.h5ad", "w") as file:
        for name in ("obs", "var"):
            file[name] = np.zeros(5, dtype=[("index", "i8")])
    with pytest.raises(InputError, match="was written by an old version of anndata"):
        CellTable(tmp_path / "old.h5ad")
    (tmp_path / "no.h5ad").write_text("nothing")
    with pytest.raises(InputError, match=r"can't be read as a file of AnnData: OSError"):
        CellTable(tmp_path / "no.h5ad")
    twice = example(scipy.sparse.csr_matrix(COUNTS))
    twice.var_names = list("vwxyv")
    with pytest.raises(InputError, match="two genes have the same name"):
        CellTable(twice)


def test_without_anndata_the_way_to_install_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "anndata.io", None)
    with pytest.raises(MissingPackageError, match=r"need anndata: pip install '\.\[atlas\]'"):
        CellTable(tmp_path / "cells.h5ad")
