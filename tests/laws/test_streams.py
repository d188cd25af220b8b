"""Rows that are streamed in blocks of 1,000 give the same result as the whole table in memory."""

from __future__ import annotations

import sqlite3

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

import fedspan as fs
from fedspan import statistics
from fedspan.clustering import federated_k_means
from fedspan.clustering.parts import rows_by_centre
from fedspan.datasets.sources import streamed_table
from fedspan.errors import InputError
from fedspan.federation.site import shown_rows
from fedspan.federation.site.row_stream import RowStream
from fedspan.sums import quantiles, row_blocks
from fedspan.sums.parts import values_between
from fedspan.tables.parts import cells

N, D = 5300, 4
rng = np.random.default_rng(0)
TABLE = pd.DataFrame(
    rng.normal(size=(N, D)) @ rng.normal(size=(D, D)) + [5.0, -3.0, 1e3, 0.0] + 8 * (np.arange(N) % 3)[:, None],
    columns=list("abcd"),
)
PARTS = {"north": TABLE[:2300], "south": TABLE[2300:2350], "west": TABLE[2350:]}


@pytest.fixture
def blocks_of_1000(monkeypatch):
    monkeypatch.setattr(streamed_table, "_READ_CELLS", 1000 * D)
    monkeypatch.setattr(row_blocks, "_BLOCK_BYTES", 1000 * 8 * D)


def parquet_folder(frame, folder, **options):
    folder.mkdir()
    for number, at in enumerate(range(0, len(frame), 1700)):
        frame[at : at + 1700].to_parquet(folder / f"part-{number}.parquet", row_group_size=600)
    return fs.stream(folder, **options)


def csv_file(frame, path, **options):
    frame.to_csv(path.with_suffix(".csv"), index=False, float_format="%.17g")
    return fs.stream(path.with_suffix(".csv"), **options)


def arrow_dataset(frame, path, **options):
    return fs.stream(ds.dataset(pa.Table.from_pandas(frame, preserve_index=False)), **options)


def duckdb_query(frame, path):
    connection = duckdb.connect()
    connection.register("held", frame.assign(place=range(len(frame))))
    connection.execute("CREATE TABLE rows AS SELECT * FROM held")
    return fs.stream("SELECT a, b, c, d FROM rows ORDER BY place", connection=connection)


def sqlite_query(frame, path, *, columns=tuple("abcd"), **options):
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    frame.to_sql("rows", connection, index_label="place")
    return fs.stream("SELECT * FROM rows ORDER BY place;", connection=connection, columns=columns, **options)


def feather_file(frame, path):
    frame.reset_index(drop=True).to_feather(path.with_suffix(".feather"))
    return fs.stream(path.with_suffix(".feather"))


SOURCES = [parquet_folder, csv_file, arrow_dataset, duckdb_query, sqlite_query, feather_file]
MODELS = {
    "scaler": (fs.FedStandardScaler(), ("mean_", "var_", "scale_")),
    "pca": (fs.FedPCA(2), ("mean_", "components_", "explained_variance_", "noise_variance_")),
    "subspace_iteration": (
        fs.FedPCA(2, solver="subspace_iteration", random_state=0),
        ("components_", "explained_variance_"),
    ),
    "detector": (fs.FedPCADetector(2, distance="mahalanobis"), ("offset_", "components_", "whitening_")),
    "residual_detector": (fs.FedPCADetector(2, distance="residual"), ("offset_", "components_")),
    "combined_detector": (fs.FedPCADetector(2, distance="combined"), ("offset_", "components_")),
    "anomaly_detector": (fs.FedAnomalyDetector(random_state=0), ("offset_",)),
    "isolation_detector": (fs.FedIsolationDetector(random_state=0), ("offset_",)),
    "centers_detector": (fs.FedCentersDetector(random_state=0), ("offset_",)),
    "power": (fs.FedPCA(2, solver="power", random_state=0), ("components_",)),
    "landmarks": (fs.FedLandmarks(20, rounds=5, random_state=0), ("landmarks_", "mmd2_")),
    "map_by_sums": (
        fs.FedTSNE(
            share="sums",
            sums_settings={"rounds": 4, "exaggeration_rounds": 2, "grid": 8, "codebooks": 1},
            random_state=0,
        ),
        ("centers_", "center_positions_"),
    ),
    "k_means": (fs.FedKMeans(3, random_state=0), ("cluster_centers_", "cluster_sizes_", "inertia_")),
}


def streamed(source, tmp_path):
    return fs.federate({name: source(frame, tmp_path / name) for name, frame in PARTS.items()})


def assert_same(name, fed):
    model, attributes = MODELS[name]
    found, whole = (type(model)(**model.get_params()).fit(one) for one in (fed, fs.federate(PARTS)))
    for attribute in attributes:
        expected = np.asarray(getattr(whole, attribute))
        largest = np.abs(expected).max()
        np.testing.assert_allclose(getattr(found, attribute), expected, rtol=1e-12, atol=1e-12 * largest)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_methods_by_sums_give_the_same_from_blocks(name, tmp_path, blocks_of_1000):
    assert_same(name, streamed(parquet_folder, tmp_path))


@pytest.mark.parametrize("name", ["anomaly_detector", "isolation_detector", "k_means"])
def test_tables_beyond_the_limits_of_memory_give_the_same_from_blocks(name, tmp_path, blocks_of_1000, monkeypatch):
    monkeypatch.setattr(quantiles, "_SORTED_BYTES", 0)
    monkeypatch.setattr(quantiles, "_ROUGH_ROWS", 500)
    monkeypatch.setattr(quantiles, "_SCORES_BYTES", 0)
    monkeypatch.setattr(values_between, "_KEPT", 3000)
    monkeypatch.setattr(federated_k_means, "_SAMPLED", 500)
    monkeypatch.setattr(federated_k_means, "_SAMPLED_FOR_ONE", 1)
    monkeypatch.setattr(rows_by_centre, "_LABEL_BYTES", 0)
    found = assert_same(name, streamed(parquet_folder, tmp_path))
    if name == "k_means":  # with a sample first, few rounds read all rows
        everything = fs.FedKMeans(3, init=found.cluster_centers_, tol=0.0).fit(TABLE)
        np.testing.assert_allclose(found.inertia_, everything.inertia_, rtol=1e-3)


class Counted(RowStream):
    """A table in memory that counts how often it is read from its beginning."""

    def __init__(self, X):
        self.label, self.shape, self.feature_names, self.passes = "rows", X.shape, None, 0
        self._rows = X

    def batches(self, rows):
        self.passes += 1
        yield from (self._rows[at : at + rows] for at in range(0, len(self._rows), rows))

    def in_order(self, names):
        return self

    def stamp(self):
        return "rows"


def test_the_joined_detector_reads_large_tables_few_times(monkeypatch):
    monkeypatch.setattr(quantiles, "_SORTED_BYTES", 0)
    monkeypatch.setattr(quantiles, "_ROUGH_ROWS", 1000)
    monkeypatch.setattr(federated_k_means, "_SAMPLED", 1000)
    monkeypatch.setattr(federated_k_means, "_SAMPLED_FOR_ONE", 1)
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(8000, 8)), rng.normal(size=(20_000, 8))
    tables = {"north": Counted(X[:5000]), "south": Counted(X[5000:])}
    detector = fs.FedAnomalyDetector(n_trees=20, random_state=0).fit(fs.federate(tables))
    # Moments, a sample for the ranges of cuts, one for the centres, counts by leaf, scores, and counts for `drift`.
    assert max(table.passes for table in tables.values()) <= 6
    assert detector.n_samples_ == 8000
    assert detector.leaf_counts_.sum() == 20 * 8000
    assert abs(np.mean(detector.predict(new) == -1) - 0.05) < 0.015


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.__name__)
def test_every_source_gives_the_same(source, tmp_path, blocks_of_1000):
    fed = streamed(source, tmp_path)
    found = assert_same("pca", fed)
    assert list(found.feature_names_in_) == list("abcd")
    sites = [source(frame, tmp_path / f"{name} again") for name, frame in PARTS.items()]
    assert [(one.shape, max(len(block) for block in one.batches(300))) for one in sites] == [
        ((len(frame), D), min(300, len(frame))) for frame in PARTS.values()
    ]


REGRESSIONS = {
    "linear": (fs.FedLinearRegression(), TABLE["a"] - 2 * TABLE["b"]),
    "logistic": (fs.FedLogisticRegression(), (TABLE["a"] > TABLE["a"].median()).astype(float)),
    "poisson": (fs.FedPoissonRegression(), np.floor(np.abs(TABLE["a"]) / 4)),
    "mixed": (fs.FedMixedRegressor(1, random_state=0), TABLE["a"] - 2 * TABLE["b"]),
}


@pytest.mark.parametrize("name", REGRESSIONS)
def test_regressions_give_the_same_from_blocks(name, tmp_path, blocks_of_1000):
    model, target = REGRESSIONS[name]
    target = target + rng.normal(size=N) if name in ("linear", "mixed") else target
    parts = {site: frame[["b", "c", "d"]].assign(y=target[frame.index]) for site, frame in PARTS.items()}
    fed = fs.federate({site: parquet_folder(frame, tmp_path / site) for site, frame in parts.items()}, y="y")
    found, whole = (type(model)(**model.get_params()).fit(one) for one in (fed, fs.federate(parts, y="y")))
    scale = np.abs(whole.coef_).max()
    np.testing.assert_allclose(found.coef_, whole.coef_, rtol=1e-12, atol=1e-12 * scale)


STATISTICS = {
    "describe": lambda fed: fs.describe(fed).to_frame(),
    "correlation": lambda fed: statistics.correlation(fed).to_frame(),
    "covariance": lambda fed: statistics.covariance(fed).to_frame(),
    "histogram": lambda fed: statistics.histogram(fed, "a").to_frame(),
    "site_differences": lambda fed: statistics.site_differences(fed).to_frame(),
}


@pytest.mark.parametrize("name", STATISTICS)
def test_statistics_give_the_same_from_blocks(name, tmp_path, blocks_of_1000):
    found, whole = (STATISTICS[name](fed) for fed in (streamed(parquet_folder, tmp_path), fs.federate(PARTS)))
    pd.testing.assert_frame_equal(found, whole, rtol=1e-12)


MIXED = TABLE.assign(protocol=rng.choice(["tcp", "udp", "icmp"], N), port=rng.integers(0, 50, N)).drop(
    columns=["c", "d"]
)
MIXED.loc[::40, "protocol"] = None


@pytest.mark.parametrize(
    "source", [parquet_folder, csv_file, arrow_dataset, sqlite_query], ids=lambda one: one.__name__
)
def test_the_encoder_reads_text_in_blocks(source, tmp_path, blocks_of_1000, monkeypatch):
    monkeypatch.setattr(cells, "BLOCK_CELLS", 1000 * MIXED.shape[1])
    parts = {name: MIXED.loc[frame.index] for name, frame in PARTS.items()}
    tables = {
        name: source(frame, tmp_path / name, columns=list(MIXED.columns), text=True) for name, frame in parts.items()
    }
    encoded = []
    for fed in (fs.federate(tables), fs.federate(parts)):
        encoder = fs.FedTabularEncoder().fit(fed)
        encoded.append((encoder.get_feature_names_out().tolist(), fs.FedPCADetector(2).fit(encoder.transform(fed))))
    (names, found), (whole_names, whole) = encoded
    assert names == whole_names
    np.testing.assert_allclose(found.offset_, whole.offset_, rtol=1e-12)
    np.testing.assert_allclose(found.components_, whole.components_, rtol=1e-12, atol=1e-12)
    with pytest.raises(fs.errors.QuorumError, match="has the dtype object, and must hold numbers"):
        fs.FedPCA(2).fit(fs.federate(tables))


def test_a_run_that_ends_in_mid_pass_continues_there(tmp_path, blocks_of_1000, monkeypatch):
    def fit():
        tables = {name: fs.stream(tmp_path / name) for name in PARTS}
        return fs.FedKMeans(3, random_state=0).fit(fs.federate(tables, run_dir=tmp_path / "run"))

    for name, frame in PARTS.items():
        parquet_folder(frame, tmp_path / name)
    read, left = streamed_table._values, iter(range(25))

    def interrupted(*args, **options):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return read(*args, **options)

    monkeypatch.setattr(streamed_table, "_values", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit()
    monkeypatch.setattr(streamed_table, "_values", read)
    model = fit()
    replayed = [call.replayed for call in model.run_.calls]
    assert replayed[0]
    assert not replayed[-1]
    whole = fs.FedKMeans(3, random_state=0).fit(fs.federate(PARTS))
    np.testing.assert_allclose(model.cluster_centers_, whole.cluster_centers_, rtol=1e-12)


def test_a_pipeline_streams(tmp_path, blocks_of_1000):
    fed = streamed(parquet_folder, tmp_path)
    scaled = fs.FedStandardScaler().fit(fed).transform(fed)
    found = fs.FedPCA(2).fit(scaled)
    whole = fs.FedPCA(2).fit(fs.FedStandardScaler().fit_transform(fs.federate(PARTS)))
    np.testing.assert_allclose(found.components_, whole.components_, atol=1e-12)


def test_labels_and_weights_are_columns(tmp_path):
    frame = TABLE.assign(w=np.arange(N) % 3)
    frame.to_parquet(tmp_path / "all.parquet")
    weighted = fs.Site("a", fs.stream(tmp_path / "all.parquet"), sample_weight="w")
    found = fs.FedStandardScaler().fit(fs.LocalFederation([weighted]))
    np.testing.assert_allclose(found.mean_, np.average(TABLE, axis=0, weights=frame["w"]), rtol=1e-12)
    model = fs.FedKMeans(3, random_state=0, post_labels=True).fit(streamed(parquet_folder, tmp_path / ""))
    assert len(model.labels_) == N


def test_a_killed_run_resumes_and_other_files_are_refused(tmp_path):
    for name, frame in PARTS.items():
        frame.to_parquet(tmp_path / f"{name}.parquet")

    def fit():
        tables = {name: fs.stream(tmp_path / f"{name}.parquet") for name in PARTS}
        return fs.FedKMeans(3, random_state=0).fit(fs.federate(tables, run_dir=tmp_path / "run"))

    first, again = fit(), fit()
    assert all(call.replayed for call in again.run_.calls)
    assert first.cluster_centers_.tobytes() == again.cluster_centers_.tobytes()
    (2 * PARTS["west"]).to_parquet(tmp_path / "west.parquet")
    with pytest.raises(fs.errors.JournalError, match="belongs to another run"):
        fit()


def test_a_pass_may_take_a_day_unless_the_policy_states_less(tmp_path):
    fed = streamed(arrow_dataset, tmp_path)
    assert fed.policy.deadline == 86_400.0
    assert fs.federate(PARTS).policy.deadline == 60.0
    tables = {"a": arrow_dataset(TABLE, tmp_path)}
    assert fs.federate(tables, policy=fs.Policy(deadline=5.0)).policy.deadline == 5.0


def test_what_needs_all_rows_refuses_with_their_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(shown_rows, "_KEPT_BYTES", 1000)
    fed = streamed(arrow_dataset, tmp_path)
    with pytest.raises(
        fs.errors.QuorumError, match=r"are streamed from the dataset, and this needs all of them in memory"
    ):
        fs.FedPCA(2, solver="subspace_median").fit(fed)


def test_what_cannot_be_streamed_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    for path, reason in [
        (tmp_path / "none.parquet", "does not exist"),
        (tmp_path / "empty", "no file that can be streamed"),
    ]:
        with pytest.raises(InputError, match=reason):
            fs.stream(path)
    pd.DataFrame({"a": [1.0], "word": ["x"]}).to_parquet(tmp_path / "words.parquet")
    with pytest.raises(InputError, match=r"column 'word' holds .*string.*choose others with columns"):
        fs.stream(tmp_path / "words.parquet")
    assert fs.stream(tmp_path / "words.parquet", columns=["a"]).shape == (1, 1)
    with pytest.raises(InputError, match="has no column 'z'"):
        fs.stream(tmp_path / "words.parquet", columns=["z"])


@pytest.mark.parametrize("late", ["1\n" * 400_000 + "2.5\n", "2.5\n"], ids=["in the file", "in another file"])
def test_numbers_of_csv_files_need_not_begin_as_they_go_on(tmp_path, late):
    (tmp_path / "0.csv").write_text("a\n1\n2\n")
    (tmp_path / "1.csv").write_text("a\n" + late)
    (tmp_path / "2.csv").write_text("a\n\n")
    rows = np.concatenate(list(fs.stream(tmp_path).batches(2**18)))
    np.testing.assert_array_equal(rows[:2, 0], [1.0, 2.0])
    assert np.nanmax(rows) == 2.5


def test_files_of_a_folder_that_differ_are_named(tmp_path):
    for number, columns in enumerate([{"a": [1], "b": [2.5]}, {"b": [2], "a": [1.5], "c": [0]}]):
        pd.DataFrame(columns).to_parquet(tmp_path / f"{number}.parquet")
    rows = fs.stream(tmp_path)
    assert rows.feature_names == ("a", "b")
    np.testing.assert_array_equal(np.concatenate(list(rows.batches(1))), [[1.0, 2.5], [1.5, 2.0]])
    pd.DataFrame({"a": [3.0]}).to_parquet(tmp_path / "2.parquet")
    with pytest.raises(InputError, match=r"the file 2.parquet has no column 'b', others have"):
        fs.stream(tmp_path)
    pd.DataFrame({"a": ["x"], "b": [1.0]}).to_parquet(tmp_path / "2.parquet")
    with pytest.raises(InputError, match=r"can't be read: .*a has incompatible types"):
        fs.stream(tmp_path)


@pytest.mark.parametrize("near", [True, False], ids=["local", "other file system"])
def test_a_file_is_not_in_memory_at_once(tmp_path, near):
    table = pa.table({name: np.arange(600_000.0) for name in "abcd"})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=100_000, compression="none", use_dictionary=False)
    other = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    rows = fs.stream(tmp_path / "x.parquet" if near else ds.dataset("x.parquet", filesystem=other))
    size, held, read = table.nbytes, 0, 0.0
    del table
    before = pa.total_allocated_bytes()
    for block in rows.batches(1000):
        held, read = max(held, pa.total_allocated_bytes() - before), read + block.sum()
    assert held < size / 2
    assert read == 4 * 600_000 * 599_999 / 2


def test_columns_of_folders_and_filters_of_a_dataset_count(tmp_path):
    table = pa.table({"a": np.arange(10.0), "year": np.repeat([2020, 2021], 5)})
    pq.write_to_dataset(table, tmp_path / "years", partition_cols=["year"])
    by_year = fs.stream(ds.dataset(tmp_path / "years", partitioning="hive"))
    np.testing.assert_array_equal(np.concatenate(list(by_year.batches(3))), np.column_stack(table.columns))
    for source in (ds.dataset(table), ds.dataset(tmp_path / "years", partitioning="hive")):
        late = fs.stream(source.filter(ds.field("a") > 3))
        assert late.shape == (6, 2)
        assert np.concatenate(list(late.batches(4)))[:, 0].tolist() == [4.0, 5.0, 6.0, 7.0, 8.0, 9.0]


def test_a_cell_that_is_no_number_late_in_a_file_is_named(tmp_path):
    (tmp_path / "long.csv").write_text("a\n" + "1\n" * 800_000 + "no\n")
    with pytest.raises(InputError, match=r"long.csv can't be read: .*Row #800002.*'no'"):
        list(fs.stream(tmp_path / "long.csv").batches(2**18))


def test_rows_that_come_or_go_during_a_pass_are_noticed():
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    TABLE.to_sql("rows", connection, index=False)
    fed = fs.LocalFederation([fs.Site("a", fs.stream("SELECT * FROM rows", connection=connection))])
    connection.execute("DELETE FROM rows WHERE rowid > 5000")
    with pytest.raises(fs.errors.QuorumError, match="the query gave 5000 rows to site 'a', and had 5300 before"):
        fs.FedStandardScaler().fit(fed)
