"""fs.federate: one table with the sites of its rows, or one table per site."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.sparse import coo_matrix, csr_array, dok_matrix
from sklearn.base import clone

import fedspan as fs
from fedspan.errors import InputError

ROWS = np.random.default_rng(0).normal(size=(12, 3))
LABELS = ["north", "south", "west"] * 4


@pytest.fixture
def frame():
    return pd.DataFrame(ROWS, columns=["age", "dose", "weight"])


@fs.step
def seen(site):
    names = site.feature_names
    return {"X": site.X, "y": np.zeros(0) if site.y is None else site.y, "names": "-" if names is None else str(names)}


class Frame:
    """What a frame of polars has in common with others: names, rows without iloc, and a way to pandas."""

    def __init__(self, frame):
        self._frame, self.columns, self.shape = frame, list(frame.columns), frame.shape

    def __len__(self):
        return len(self._frame)

    def to_numpy(self):
        return self._frame.to_numpy()

    def to_pandas(self):
        return self._frame.copy()


class LazyFrame:
    columns = ("age",)

    def collect(self):
        raise AssertionError

    def collect_schema(self):
        raise AssertionError


@pytest.mark.parametrize("library", [pa.table, pa.RecordBatch.from_pandas, Frame], ids=["table", "batch", "polars"])
def test_frames_of_other_libraries_keep_their_names(frame, library):
    expected = fs.federate(frame, sites=LABELS).ask(seen)
    for fed in (
        fs.federate(library(frame), sites=LABELS),
        fs.federate({name: library(frame.iloc[i::3]) for i, name in enumerate(LABELS[:3])}),
    ):
        found = fed.ask(seen)
        for name in LABELS[:3]:
            np.testing.assert_array_equal(found[name]["X"], expected[name]["X"])
            assert found[name]["names"] == "('age', 'dose', 'weight')"


def test_frames_that_cannot_become_frames_of_pandas_name_the_extra(frame):
    class Alone(Frame):
        def to_pandas(self):
            raise ModuleNotFoundError("pyarrow is required")

    with pytest.raises(InputError, match=r"needs pandas and pyarrow here: pip install '\.\[tables\]'"):
        fs.federate(Alone(frame), sites=LABELS)


def test_masked_cells_are_missing_cells_and_not_what_lies_under_the_mask():
    rows = np.ma.masked_array(ROWS.copy(), mask=np.arange(ROWS.size).reshape(ROWS.shape) == 4)
    for refused in (
        lambda: fs.FedPCA(1).fit(fs.federate(rows, sites=LABELS)),
        lambda: fs.FedPCA(1).fit(fs.LocalFederation([fs.Site("a", rows), fs.Site("b", ROWS)])),
        lambda: fs.FedPCA(1).fit(rows, sites=LABELS),
    ):
        with pytest.raises(InputError, match=r"NaN or infinity: feature number 1 at site '\w+' \(1 values\)"):
            refused()
    model = fs.FedPCA(1).fit(ROWS)
    with pytest.raises(ValueError, match="NaN"):
        model.transform(rows)


def test_a_masked_array_without_masked_cells_is_its_values():
    expected = fs.FedPCA(1).fit(ROWS).components_
    for X in (np.ma.masked_array(ROWS), np.ma.masked_array(ROWS, mask=np.zeros(ROWS.shape, dtype=bool))):
        np.testing.assert_array_equal(fs.FedPCA(1).fit(fs.federate(X)).components_, expected)


@pytest.mark.parametrize("dtype", [object, "U5"])
def test_masked_text_is_missing_and_no_word(dtype):
    words = np.ma.masked_array([["a"], ["b"], ["c"], ["b"]], mask=[[0], [0], [1], [0]], dtype=dtype)
    names = fs.FedTabularEncoder().fit(words, sites=LABELS[:4]).get_feature_names_out()
    assert not any("c" in name or "?" in name for name in (name.partition("_")[2] for name in names))


def test_masked_targets_and_weights_are_missing():
    column = np.ma.masked_array(np.arange(12.0), mask=np.arange(12) == 3)
    for X in (ROWS, fs.federate(ROWS, column)):
        with pytest.raises(InputError, match="y contains NaN"):
            fs.FedLinearRegression().fit(X, column if X is ROWS else None)
    for given in (
        lambda: fs.federate(ROWS, sites=LABELS, sample_weight=column),
        lambda: fs.Site("a", ROWS, None, None, sample_weight=column),
    ):
        with pytest.raises(InputError, match="sample_weight holds numbers below 0, NaN"):
            given()


def test_columns_of_other_frames_in_another_order_are_refused_as_those_of_pandas(frame):
    model = fs.FedPCA(1).fit(frame)
    other = frame[list(frame.columns[::-1])]
    for X in (other, pa.table(other)):
        with pytest.raises(ValueError, match="same order"):
            model.transform(X)
    with pytest.raises(InputError, match="text in column 'age'"):
        model.transform(pa.table(frame.assign(age="old")))


def test_what_holds_no_rows_is_refused_with_the_way_out():
    with pytest.raises(InputError, match=r"X\.collect"):
        fs.FedPCA(1).fit(LazyFrame())
    with pytest.raises(InputError, match=r"y is a .*y\.collect"):
        fs.federate(ROWS, LazyFrame())
    with pytest.raises(InputError, match=r"X\.collect"):
        fs.federate(LazyFrame(), sites=LABELS)
    with pytest.raises(InputError, match=r"X\.collect"):
        fs.Site("a", LazyFrame())


@pytest.mark.parametrize("made", [csr_array, coo_matrix, dok_matrix])
def test_sparse_matrices_are_split_by_rows(made):
    found, expected = fs.federate(made(ROWS), sites=LABELS), fs.federate(ROWS, sites=LABELS)
    for name, reply in found.ask(seen).items():
        np.testing.assert_array_equal(reply["X"], expected.ask(seen)[name]["X"])


@pytest.mark.parametrize("library", [lambda frame: frame, pa.table, Frame], ids=["pandas", "pyarrow", "polars"])
def test_columns_name_sites_and_targets_and_are_no_features_then(frame, library):
    whole = library(frame.assign(hospital=LABELS, ill=np.arange(12.0)))
    found = fs.federate(whole, "ill", sites="hospital").ask(seen)
    expected = fs.federate(frame, np.arange(12.0), sites=LABELS).ask(seen)
    for name in LABELS[:3]:
        for key in ("X", "y"):
            np.testing.assert_array_equal(found[name][key], expected[name][key])
        assert found[name]["names"] == expected[name]["names"]


def test_missing_columns_are_refused_with_those_that_exist(frame):
    with pytest.raises(InputError, match=r"sites='clinic': X has no columns of that name.*Columns: age, dose, weight"):
        fs.federate(frame, sites="clinic")
    with pytest.raises(InputError, match="sites='clinic' names a column, and X is not a data frame"):
        fs.federate(ROWS, sites="clinic")
    with pytest.raises(InputError, match="y='ill': site 'north' has no columns of that name"):
        fs.federate({"north": frame, "south": frame}, "ill")
    with pytest.raises(InputError, match=r"fit\(fedspan\.federate\(X, sites='age'\)\)"):
        fs.FedStandardScaler().fit(frame, sites="age")


def test_tables_by_site_may_be_paths_and_have_any_order_of_columns(frame, tmp_path):
    parts = {name: frame.iloc[i::3].reset_index(drop=True) for i, name in enumerate(LABELS[:3])}
    parts["south"][["weight", "age", "dose"]].to_parquet(tmp_path / "south.parquet")
    parts["west"][["dose", "weight", "age"]].to_csv(tmp_path / "west.csv", index=False)
    fed = fs.federate({**parts, "south": tmp_path / "south.parquet", "west": str(tmp_path / "west.csv")}, seed=3)
    assert fed.sites == ("north", "south", "west")
    found = fs.FedStandardScaler().fit(fed)
    expected = fs.FedStandardScaler().fit(frame, sites=LABELS)
    order = [list(frame.columns).index(name) for name in found.feature_names_in_]
    np.testing.assert_allclose(found.mean_, expected.mean_[order], rtol=1e-12)
    with pytest.raises(InputError, match="does not exist"):
        fs.federate({"north": tmp_path / "none.csv"})
    with pytest.raises(InputError, match="the keys name the sites"):
        fs.federate(parts, sites=LABELS)
    with pytest.raises(InputError, match="must be the name of a column"):
        fs.federate(parts, np.zeros(12))


def test_without_sites_there_is_one():
    assert fs.federate(ROWS).sites == ("site",)


def test_numbers_that_overflow_are_reported_as_such(frame):
    with pytest.raises(fs.errors.QuorumError, match=r"the numbers overflow in step 'sums\.moments'.*too large"):
        fs.FedPCA(2).fit(1e200 * frame, sites=LABELS)


def test_one_table_may_be_a_path_and_a_list_of_tables_is_refused(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [2.0, 1.0, 0.0], "h": ["x", "y", "x"]})
    frame.to_csv(tmp_path / "all.csv", index=False)
    assert repr(fs.federate(tmp_path / "all.csv", sites="h")) == "LocalFederation(2 sites: x, y)"
    assert repr(fs.federate(str(tmp_path / "all.csv"))) == "LocalFederation(1 site: site)"
    with pytest.raises(InputError, match=r"list of tables: name the site of each, as in federate\(\{'north': table"):
        fs.federate([frame, frame])


@pytest.mark.parametrize(
    "model", [fs.FedPCA(1), fs.FedTabularEncoder(), fs.FedLinearRegression(), fs.FedMixedRegressor(1)]
)
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (ROWS[:, 0], r"1 dimension, .*reshape\(X, \(-1, 1\)\)"),
        (list(ROWS[:, 0]), r"1 dimension, .*reshape\(X, \(-1, 1\)\)"),
        (pd.Series(ROWS[:, 0]), r"1 dimension, .*reshape\(X, \(-1, 1\)\)"),
        (ROWS + 1j, "complex numbers.*as columns of their own"),
        ("rows.csv", "X is of the type str, and must be a table"),
        (None, "X is of the type NoneType, and must be a table"),
    ],
    ids=["column", "list", "series", "complex", "path", "none"],
)
def test_what_is_no_table_is_refused_without_its_cells(model, wrong, says):
    model = clone(model)
    for use in ("fit", "transform", "predict"):
        if not hasattr(model, use):
            continue
        with pytest.raises(InputError, match=says) as caught:
            getattr(model, use)(wrong, *[np.zeros(12)] * (use == "fit"))
        assert str(ROWS[0, 0])[:5] not in str(caught.value)
        if use == "fit":
            model.fit(ROWS, ROWS[:, 0])


def test_gaps_in_new_rows_are_named_by_column(frame):
    model = fs.FedPCA(1).fit(frame)
    with pytest.raises(InputError, match=r"feature dose \(2 values\); fill or drop them first"):
        model.transform(frame.assign(dose=[np.nan, np.inf, *[0.0] * 10]))


def test_a_frame_of_complex_numbers_is_refused_without_its_cells():
    with pytest.raises(InputError, match=r"complex numbers.*as columns of their own"):
        fs.FedPCA(1).fit(pd.DataFrame(ROWS + 1j))


@pytest.mark.parametrize("what", ["y", "task"])
@pytest.mark.parametrize("values", [np.arange(5), np.arange(9), 3.0])
def test_a_target_of_another_length_is_refused_and_not_cut(what, values):
    with pytest.raises(InputError, match=rf"{what} has the shape .* must be one value for each of 6 rows"):
        fs.federate(np.eye(6), sites=[0, 1] * 3, **{what: values})


@pytest.mark.parametrize("rows", [None, 3, object()])
def test_what_is_no_table_is_refused(rows):
    with pytest.raises(InputError, match="must be a table of rows and columns"):
        fs.federate(rows, sites=[0, 1])
