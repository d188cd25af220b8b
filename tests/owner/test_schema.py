"""Kinds of columns: what a table holds, and what the schema requires."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fedspan.cli import main
from fedspan.errors import InputError
from fedspan.owner import read_owned_site
from fedspan.owner.schema import kind_of
from fedspan.owner.site_file import SiteFileError
from tests.engines.remote.people import member_list, write_kit

DAYS = pd.date_range("2026-01-01", periods=30)


@pytest.fixture
def dated(tmp_path):
    def write(days, name="dated.csv"):
        frame = pd.DataFrame({"d": pd.Series(days, dtype="str"), "v": range(len(days))})
        frame.to_csv(tmp_path / name, index=False) if name.endswith("csv") else frame.to_parquet(tmp_path / name)
        return frame

    return write


SCHEMA = 'd = "time"\nv = "integer"'


@pytest.mark.parametrize("name", ["dated.csv", "dated.parquet"])
def test_text_is_read_as_times_where_the_schema_declares_them(write_site, dated, name):
    dated([None, *DAYS.strftime("%Y-%m-%dT%H:%M"), "2026-03-01 01:30+02:00"], name)
    path = write_site(f'file = "{name}"\nwhere = "d >= \'2026-01-15\'"', schema=SCHEMA)
    owned = read_owned_site(path)
    assert owned.describe()["columns"] == {"d": "time", "v": "integer"}
    assert owned.site.frame["d"].tolist() == [*DAYS[14:], pd.Timestamp("2026-02-28 23:30")]
    path = write_site(f'file = "{name}"\nwhere = "d >= \'2026-01-15\'"')  # the federation's schema does it too
    assert read_owned_site(path, {"d": "time", "v": "number"}).describe()["columns"]["d"] == "time"


@pytest.mark.parametrize("cell", ["1/31/2026", "31.1.2026", "2026-02-31", "soon", "2026-1-31"])
def test_times_in_other_forms_are_refused_without_a_value(write_site, dated, cell):
    dated([*DAYS.strftime("%Y-%m-%d"), cell])
    with pytest.raises(
        InputError, match="column 'd' has cells that are not written as times, and the schema"
    ) as caught:
        read_owned_site(write_site('file = "dated.csv"', schema=SCHEMA))
    assert cell not in str(caught.value)


def test_a_row_filter_can_compare_text_as_times(write_site, dated):
    dated([*DAYS.strftime("%Y-%m-%d"), "2026-01-20T12:00", "2026-01-19T23:30-02:00"])
    data = 'file = "dated.csv"\ncolumns = ["v"]\nwhere = "d::timestamptz > \'2026-01-20\'"'
    assert len(read_owned_site(write_site(data)).site) == 12  # ten later days, noon, and 1:30 of that day in UTC
    dated([*DAYS.strftime("%Y-%m-%d"), "soon"])
    with pytest.raises(InputError, match="compares a column with a value of another kind") as caught:
        read_owned_site(write_site(data))
    assert "soon" not in str(caught.value)


def test_numbers_are_no_times(write_site, dated):
    dated(["20260131"] * 20)
    with pytest.raises(InputError, match="column 'd' holds integer, and the schema says time"):
        read_owned_site(write_site('file = "dated.csv"', schema=SCHEMA))


def test_kinds_of_odd_numbers(tmp_path, write_site):
    assert kind_of(pd.Series([1.0, np.inf])) == "number"
    assert kind_of(pd.Series([1.0, np.nan])) == "integer"
    for arrays, why in (
        ({"X": np.ones((20, 2)) * 1j}, "must hold an array X of rows and columns of numbers"),
        ({"X": np.ones((20, 2)), "y": np.ones(20) * 1j}, "odd.npz cannot be read"),
        ({"X": np.ones((20, 2)), "y": np.array([b"a"] * 20)}, "column 'y' is of type binary"),
    ):
        np.savez(tmp_path / "odd.npz", **arrays)
        with pytest.raises(InputError, match=why):
            read_owned_site(write_site('file = "odd.npz"'))


def kit_of(tmp_path, schema, name="clinic", kind="site"):
    write_kit(tmp_path / "kit", kind, name, members=member_list(sites=["clinic"], federation="lab", schema=schema))
    return ["--kit", str(tmp_path / "kit")]


def test_a_check_compares_with_the_federation(write_site, tmp_path, capsys):
    check = ["site", "check", str(write_site('file = "rows.csv"\ncolumns = ["age", "ward"]'))]
    assert main([*check, *kit_of(tmp_path, {"age": "number", "ward": "text"})]) == 0
    assert "federation lab, with a schema of its own" in capsys.readouterr().out
    assert main([*check, *kit_of(tmp_path, None)]) == 0
    assert "federation lab, with no schema" in capsys.readouterr().out
    assert main([*check, *kit_of(tmp_path, {"age": "integer", "dose": "number"})]) == 1
    shown = capsys.readouterr().out
    assert "column 'age' holds number, and the federation's schema says integer" in shown
    assert "column 'dose' (number) of the federation's schema is missing" in shown
    assert "column 'ward' is not in the federation's schema" in shown
    assert main([*check, *kit_of(tmp_path, None, name="south")]) == 1
    assert "names the site 'clinic', and the kit is that of 'south'" in capsys.readouterr().out
    assert main([*check, *kit_of(tmp_path, None, name="alice", kind="user")]) == 1
    assert "needs a site's kit" in capsys.readouterr().out


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
    data = 'file = "rows.csv"\ntarget = "outcome"\ntask = "ward"'
    assert read_owned_site(write_site(data, schema=GOOD)).site.feature_names == ("age", "dose", "weight")
    numbers = 'age = "number"\ndose = "number"\nweight = "number"'
    assert read_owned_site(write_site(data, schema=numbers)).site.feature_names == ("age", "dose", "weight")
    with pytest.raises(InputError, match="column 'outcome' holds integer, and the schema says text"):
        read_owned_site(write_site(data, schema=numbers + '\noutcome = "text"'))


def test_every_difference_is_reported(write_site):
    with pytest.raises(SiteFileError) as caught:
        read_owned_site(write_site('file = "rows.csv"', schema='age = "text"\nheight = "number"'))
    assert len(caught.value.problems) == 6


def test_columns_have_the_order_of_the_schema_whatever_that_of_the_file(write_site):
    path = write_site('file = "rows.csv"', schema='dose = "number"\n' + GOOD.replace('dose = "number"\n', ""))
    owned = read_owned_site(path)
    assert owned.site.feature_names == ("dose", "age", "weight", "ward", "outcome")
    federation = dict.fromkeys(("ward", "outcome", "weight", "age", "dose"), "number") | {"ward": "text"}
    assert read_owned_site(path, federation).site.feature_names == tuple(federation)
