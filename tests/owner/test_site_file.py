"""``site.toml``: the site has what the file states, and every problem is reported."""

from __future__ import annotations

import os
import sys

import numpy as np
import pandas as pd
import pytest

from fedspan.errors import InputError, LedgerError
from fedspan.owner import read_owned_site
from fedspan.owner.site_file import SiteFileError, read_site_file


def test_a_site_has_what_its_file_says(write_site, table):
    owned = read_owned_site(
        write_site(
            'file = "rows.csv"\ncolumns = ["weight", "age"]\nlabel = "outcome"\ntask = "ward"\nwhere = "ward != \'C\'"'
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


def test_installed_transforms_and_valid_users_are_accepted(write_site):
    rules = read_site_file(write_site(rules='transforms = ["sums"]\nusers = ["alice", "b-2"]')).rules
    assert rules.transforms == ("sums",)
    assert rules.users == ("alice", "b-2")
    assert read_site_file(write_site(rules="transforms = []\nusers = []")).rules.users == ()


def test_what_is_not_named_is_kept_unless_dropped(write_site, table):
    owned = read_owned_site(write_site('file = "rows.csv"\ndrop = ["age"]\nlabel = "outcome"'))
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
    data = 'columns = ["age", "weight"]\nlabel = "outcome"\nwhere = "age > 0"'
    found = read_owned_site(write_site(f"{where}\n{data}")).site
    expected = read_owned_site(write_site(f'file = "rows.csv"\n{data}')).site
    np.testing.assert_array_equal(found.frame, expected.frame)
    np.testing.assert_array_equal(found.y, expected.y)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("", r"must have either 'file' \(a table\) or 'url' and 'query'"),
        ('file = "rows.csv"\nurl = "sqlite:///x"', "must have either 'file'"),
        ('file = "gone.csv"', "gone.csv does not exist"),
        ('file = "site.toml"', "tables are read from .csv"),
        ('file = "rows.csv"\nquery = "SELECT 1"', "query belongs to a database"),
        ('url = "sqlite:///x.db"', "url needs a query"),
        ("url = 3", "url must be text"),
        ('file = "rows.csv"\ncolumns = "age"', r"\[data\] columns must be a list of column names"),
        ('file = "rows.csv"\ncolumns = []', "columns must name at least one column"),
        ('file = "rows.csv"\ncolumns = ["age"]\nlabel = "age"', "names the column 'age' twice"),
        ('file = "rows.csv"\nlabel = 3', r"\[data\] label = 3 must be text"),
        ('file = "rows.csv"\nwhere = "age >"', r"\[data\] where = 'age >' is no SQL condition"),
        ('file = "rows.csv"\nmissing = "NA"', r"\[data\] missing must be a list of texts that mean a missing cell"),
        ('url = "sqlite:///x"\nquery = "SELECT 1"\nmissing = ["NA"]', "missing is for CSV files"),
        ('file = "rows.csv"\ncolum = ["age"]', r"\[data\] 'colum' is not a known key; known are columns, drop, file"),
        ('url = "sqlite:///x"\nquery = "SELECT 1"\ntimeout = -1', "timeout=-1 must be a finite number above 0"),
    ],
)
def test_data_that_are_refused(write_site, data, said):
    with pytest.raises(InputError, match=said):
        read_site_file(write_site(data))


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ('steps = "summaries"', "must be a list of steps or groups"),
        ('steps = ["pca.fedpq_update"]', r"neither the id of an installed step.* did you mean 'pca.fedp[eg]_update'\?"),
        ("least_rows = 0", "least_rows=0 must be a whole number of at least 1"),
        ('largest_reply = "1 MB"', "largest_reply='1 MB' must be a whole number"),
        ("rounds_per_day = -1", "rounds_per_day=-1 must be a whole number of at least 0"),
        ('users = "alice"', "users must be a list of users' names"),
        ('sums_only = "yes"', "sums_only = 'yes' must be true or false"),
        ('users = [" alice"]', "users: ' alice' can't be a name in a certificate: names are letters, digits"),
        ('users = [""]', "users: '' can't be a name"),
        (
            'transforms = ["sums.standardise"]',
            r"neither the id of an installed transform.* did you mean 'sums.standardize'\?",
        ),
        (
            'transforms = ["typo.zoom"]',
            "'typo.zoom' is neither the id of an installed transform, nor the beginning of such ids, nor 'fedspan'",
        ),
        ('transforms = [""]', "'' is neither the id"),
        ("hours = 3", r"\[rules\] 'hours' is not a known key; known are largest_reply"),
    ],
)
def test_rules_that_are_refused(write_site, rules, said):
    with pytest.raises(InputError, match=said):
        read_site_file(write_site(rules=rules))


@pytest.mark.parametrize(
    ("privacy", "said"),
    [
        ("epsilon = 1.0\ndelta = 1e-5", "needs the file of the site's ledger"),
        ('ledger = "l"\nepsilon = 1.0', "epsilon and delta go together"),
        ('ledger = "l"\nepsilon = -1\ndelta = 1e-5', r"\[privacy\] epsilon=-1"),
        ('ledger = "l"\nrho = 1', "'rho' is not a known key; known are delta, epsilon, ledger, strict"),
    ],
)
def test_budgets_that_are_refused(write_site, privacy, said):
    with pytest.raises(InputError, match=said):
        read_site_file(write_site(privacy=privacy))


def test_every_problem_is_reported(write_site):
    path = write_site('file = "gone.csv"', "least_rows = 0", privacy="strict = true", schema='age = "float"')
    with pytest.raises(SiteFileError) as caught:
        read_site_file(path)
    assert len(caught.value.problems) == 4
    assert all(problem.startswith(str(path)) for problem in caught.value.problems)
    path.write_text('[data]\nfile = "rows.csv"\n')
    with pytest.raises(InputError, match=r"a \[site\] table with a name is missing"):
        read_site_file(path)
    path.write_text('[sites]\nname = "x"\n')
    with pytest.raises(
        InputError, match="'sites' is not a known key; known are data, log, privacy, rules, schema, site"
    ):
        read_site_file(path)


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
    site = read_owned_site(write_site('file = "gaps.csv"\ncolumns = ["a"]\nlabel = "y"')).site
    assert np.isnan(site.y[0])  # protocols count such targets, and refuse


GOOD = 'age = "number"\ndose = "number"\nweight = "number"\nward = "text"\noutcome = "boolean"'


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (GOOD, None),
        (GOOD.replace('outcome = "boolean"', 'outcome = "integer"'), None),
        (GOOD.replace('outcome = "boolean"', 'outcome = "number"'), None),
        (GOOD.replace('age = "number"', 'age = "integer"'), "column 'age' holds number, and the schema says integer"),
        (GOOD.replace('ward = "text"', 'ward = "number"'), "column 'ward' holds text, and the schema says number"),
        (
            GOOD.replace('outcome = "boolean"', 'outcome = "time"'),
            "column 'outcome' holds integer, and the schema says",
        ),
        (GOOD + '\nheight = "number"', r"column 'height' \(number\) of the schema is missing"),
        (GOOD.replace('dose = "number"\n', ""), "column 'dose' is not in the schema"),
        (
            'dose = "number"\n' + GOOD.replace('dose = "number"\n', ""),
            "column 1 is 'age', and in the schema 'dose': the order",
        ),
        (GOOD.replace('age = "number"', 'age = "float64"'), "age = 'float64' must be one of 'boolean', 'integer'"),
    ],
)
def test_the_schema_is_compared(write_site, schema, said):
    path = write_site('file = "rows.csv"', schema=schema)
    if said is None:
        assert read_owned_site(path).site.feature_names == ("age", "dose", "weight", "ward", "outcome")
    else:
        with pytest.raises(InputError, match=said):
            read_owned_site(path)


def test_the_schema_may_name_label_and_task(write_site):
    data = 'file = "rows.csv"\nlabel = "outcome"\ntask = "ward"'
    assert read_owned_site(write_site(data, schema=GOOD)).site.feature_names == ("age", "dose", "weight")
    numbers = 'age = "number"\ndose = "number"\nweight = "number"'
    assert read_owned_site(write_site(data, schema=numbers)).site.feature_names == ("age", "dose", "weight")
    with pytest.raises(InputError, match="column 'outcome' holds integer, and the schema says text"):
        read_owned_site(write_site(data, schema=numbers + '\noutcome = "text"'))


def test_every_difference_is_reported(write_site):
    with pytest.raises(SiteFileError) as caught:
        read_owned_site(write_site('file = "rows.csv"', schema='age = "text"\nheight = "number"'))
    assert len(caught.value.problems) == 6


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
        read_owned_site(write_site('file = "rows.csv"\nlabel = "x"', privacy='ledger = "l"\nepsilon = 1\ndelta = 1e-5'))
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


def test_own_modules_are_installed(write_site, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "ourlab_steps.py").write_text(
        "import fedspan as fs\n\n\n@fs.step\ndef local_count(site):\n    return {'n': len(site)}\n"
    )
    path = write_site(rules='steps = ["ourlab_steps"]')
    with pytest.raises(InputError, match="'ourlab_steps' is neither the id of an installed step"):
        read_site_file(path)
    path.write_text(path.read_text().replace('name = "clinic"', 'name = "clinic"\nmodules = ["ourlab_steps"]'))
    steps = read_site_file(path).rules.steps
    assert "ourlab_steps.local_count" in steps
    assert "sums.sums" not in steps
    sys.modules.pop("ourlab_steps")
    path.write_text(path.read_text().replace('modules = ["ourlab_steps"]', 'modules = ["ourlab_stepps"]'))
    with pytest.raises(InputError, match="the module 'ourlab_stepps' cannot be imported: ModuleNotFoundError"):
        read_site_file(path)
