"""A site as its owner has set it up: its rows, its schema, its budget, and when data are read again."""

from __future__ import annotations

import os

import numpy as np
import pandas as pd
import pytest

from fedspan.atlases.variable_genes import gene_moments
from fedspan.datasets.sources.cell_table import CellTable, make_writable
from fedspan.engines.local.embedded import LocalFederation
from fedspan.errors import InputError, LedgerError
from fedspan.federation import Site
from fedspan.owner import read_owned_site


def test_a_site_has_what_its_file_says(write_site, table):
    owned = read_owned_site(
        write_site(
            'file = "rows.csv"\ncolumns = ["weight", "age"]\ntarget = "outcome"\ntask = "ward"\nwhere = "ward != \'C\'"'
        )
    )
    kept = table[table["ward"] != "C"]
    assert owned.site.name == "clinic"
    assert owned.site.feature_names == ("weight", "age")
    np.testing.assert_array_equal(owned.site.frame, kept[["weight", "age"]])
    np.testing.assert_array_equal(owned.site.y, kept["outcome"])
    assert owned.site.task.tolist() == kept["ward"].tolist()
    assert owned.site.ledger is None
    described = owned.describe()
    assert described["rows"] == 20
    assert described["columns"] == {"weight": "number", "age": "number"}
    assert "sums.sums" in described["steps"]
    assert described["budget"] is None


def test_texts_that_mean_a_missing_cell(write_site, tmp_path):
    (tmp_path / "words.csv").write_text("a,ward\n" + "1,A\n" * 15 + "?,?\nNA,NA\n")
    frame = read_owned_site(write_site('file = "words.csv"\nmissing = ["?"]')).site.frame
    assert frame["a"].isna().tolist() == [False] * 15 + [True, True]
    assert frame["ward"].isna().tolist() == [False] * 15 + [True, False]  # in text, only the named one is missing


def test_what_is_not_named_is_kept_unless_dropped(write_site, table):
    owned = read_owned_site(write_site('file = "rows.csv"\ndrop = ["age"]\ntarget = "outcome"'))
    assert owned.site.feature_names == ("dose", "weight", "ward")
    frame = owned.site.frame
    assert frame["ward"].tolist() == table["ward"].tolist()  # text passes, for FedTabularEncoder
    assert np.isnan(frame["dose"].iloc[4])


@pytest.mark.parametrize("ending", ["parquet", "npz", "db"])
def test_the_same_rows_from_every_source(write_site, table, tmp_path, ending):
    if ending == "parquet":
        table.to_parquet(tmp_path / "rows.parquet")
    elif ending == "npz":
        np.savez(
            tmp_path / "rows.npz", X=table[["age", "weight"]], feature_names=["age", "weight"], outcome=table["outcome"]
        )
    else:
        import sqlite3

        with sqlite3.connect(tmp_path / "rows.db") as database:
            table.to_sql("rows", database, index=False)
        database.close()
    where = 'url = "sqlite:///rows.db"\nquery = "SELECT * FROM rows"' if ending == "db" else f'file = "rows.{ending}"'
    data = 'columns = ["age", "weight"]\ntarget = "outcome"\nwhere = "age > 0"'
    found = read_owned_site(write_site(f"{where}\n{data}")).site
    expected = read_owned_site(write_site(f'file = "rows.csv"\n{data}')).site
    np.testing.assert_array_equal(found.frame, expected.frame)
    np.testing.assert_array_equal(found.y, expected.y)


def test_columns_that_are_not_there(write_site):
    with pytest.raises(InputError, match=r"rows.csv has no column 'agee', which 'where' is about"):
        read_owned_site(write_site('file = "rows.csv"\nwhere = "agee > 3"'))
    for data in ('columns = ["agee"]', 'drop = ["agee"]', 'label = "agee"'):
        with pytest.raises(InputError, match=r"rows.csv has no column 'agee'; it has 'age', 'dose', 'weight'"):
            read_owned_site(write_site(f'file = "rows.csv"\n{data}'))
    with pytest.raises(InputError, match="no columns left"):
        read_owned_site(write_site('file = "rows.csv"\ndrop = ["age", "dose", "weight", "ward", "outcome"]'))


def test_a_task_that_is_missing_is_refused_and_a_number_to_learn_is_not(write_site, tmp_path):
    frame = pd.DataFrame({"a": range(20), "t": [None, *["x"] * 19], "y": [np.nan, *range(19)]})
    frame.to_csv(tmp_path / "gaps.csv", index=False)
    with pytest.raises(InputError, match="column 't', the task, is missing in 1 rows: leave them out with where"):
        read_owned_site(write_site('file = "gaps.csv"\ncolumns = ["a"]\ntask = "t"'))
    site = read_owned_site(write_site('file = "gaps.csv"\ncolumns = ["a"]\ntarget = "y"')).site
    assert np.isnan(site.y[0])  # protocols count such targets, and refuse


def test_the_ledger_has_the_budget(write_site, tmp_path):
    path = write_site(privacy='ledger = "clinic.ledger"\nepsilon = 2\ndelta = 1e-5\nstrict = true')
    owned = read_owned_site(path)
    assert owned.site.ledger is owned.ledger
    assert owned.ledger.strict
    assert (owned.ledger.epsilon, owned.ledger.delta) == (2.0, 1e-5)
    assert owned.describe()["budget"] == {"epsilon": 2.0, "delta": 1e-5, "left": 2.0}
    again = read_owned_site(write_site(privacy='ledger = "clinic.ledger"'))
    assert again.ledger.epsilon == 2.0
    assert not again.ledger.strict
    (tmp_path / "clinic.ledger").write_text("spoilt\n")
    with pytest.raises(LedgerError, match="is damaged"):
        read_owned_site(path)


def test_no_ledger_is_made_where_the_data_cannot_be_read(write_site, tmp_path):
    with pytest.raises(InputError, match="has no column"):
        read_owned_site(
            write_site('file = "rows.csv"\ntarget = "x"', privacy='ledger = "l"\nepsilon = 1\ndelta = 1e-5')
        )
    assert not (tmp_path / "l").exists()
    assert not (tmp_path / "audit.jsonl").exists()


def test_data_are_read_again_only_if_they_changed(write_site, table, tmp_path):
    owned = read_owned_site(write_site())
    before = owned.site
    assert not owned.refresh()
    assert owned.site is before
    table.head(12).to_csv(tmp_path / "rows.csv", index=False)
    assert len(owned.site) == 30  # until refresh
    assert owned.refresh()
    assert len(owned.site) == 12
    assert not owned.refresh()
    os.utime(tmp_path / "rows.csv", ns=(1, 1))
    assert owned.refresh()


def test_rows_of_an_archive_lie_in_memory_as_those_of_an_array(write_site, tmp_path):
    """The last bits of a product depend on it, and every engine has the same."""
    X = np.random.default_rng(0).normal(size=(40, 3))
    np.savez(tmp_path / "rows.npz", X=X, y=np.arange(40))
    site = read_owned_site(write_site('file = "rows.npz"\ntarget = "y"\nwhere = "y >= 0"')).site
    np.testing.assert_array_equal(site.X, X)
    assert site.X.strides == X.strides


def test_a_label_is_no_feature_and_not_learned_from(write_site):
    owned = read_owned_site(write_site('file = "rows.csv"\nlabel = "outcome"\ntarget = "dose"'))
    assert "outcome" not in owned.site.feature_names
    assert owned.describe()["label"] == "outcome"
    assert owned.describe()["target"] == "dose"


def test_a_csv_file_is_read_in_the_dialect_that_is_stated(write_site, tmp_path):
    path = write_site('file = "rows.csv"\nseparator = ";"\ndecimal = ","\nencoding = "cp1252"\nmissing = ["?"]')
    (path.parent / "rows.csv").write_bytes("age;l\u00e4nge\n20;1,5\n?;2,5\n".encode("cp1252"))
    site = read_owned_site(path).site
    assert site.feature_names == ("age", "l\u00e4nge")
    assert site.frame.iloc[0].tolist() == [20, 1.5]
    assert site.frame["age"].isna().tolist() == [False, True]


def test_a_file_of_cells_is_opened_and_not_read(write_site, tmp_path, monkeypatch):
    """Genes are the columns; counts are read in blocks, also where the site has a ledger."""
    anndata = pytest.importorskip("anndata")
    obs = pd.DataFrame({"type": np.array(["T", "B"])[np.arange(30) % 2]}, index=[str(i) for i in range(30)])
    cells = anndata.AnnData(np.arange(120.0).reshape(30, 4), obs=obs, var=pd.DataFrame(index=list("abcd")))
    cells.layers["raw"] = cells.X % 5
    make_writable(cells)
    cells.write_h5ad(tmp_path / "cells.h5ad")
    monkeypatch.setattr(CellTable, "to_numpy", lambda self, *args: pytest.fail("the counts were read"))
    data = 'file = "cells.h5ad"\nlayer = "raw"\ndrop = ["b"]\ntarget = "type"'
    owned = read_owned_site(write_site(data, privacy='ledger = "clinic.ledger"\nepsilon = 1.0\ndelta = 1e-5'))
    assert owned.site.feature_names == ("a", "c", "d")
    assert owned.site.y.tolist() == obs["type"].tolist()
    assert owned.describe()["columns"] == dict.fromkeys("acd", "number")
    other = Site("other", CellTable(cells, layer="raw", genes=list("acd")))
    found = LocalFederation([owned.site, other]).run(gene_moments, n_genes=3)
    assert found.n == 60
    counts = cells.layers["raw"][:, [0, 2, 3]]
    np.testing.assert_allclose(found.mean, (1e4 * counts / counts.sum(axis=1, keepdims=True)).mean(axis=0))
    for wrong, message in (
        (f"{data}\nwhere = \"type = 'T'\"", "is for tables"),
        ('file = "cells.h5ad"\ncolumns = ["e"]', "has no gene 'e'"),
        ('file = "rows.csv"\nlayer = "raw"', "layer is for .h5ad files"),
        ('file = "none.h5ad"', "does not exist"),
    ):
        with pytest.raises(InputError, match=message):
            read_owned_site(write_site(wrong))
    with pytest.raises(InputError, match="can't be used at level = 'aggregate'"):
        read_owned_site(write_site(data, 'level = "aggregate"'))
