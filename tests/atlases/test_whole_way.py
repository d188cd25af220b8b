"""The whole way from counts to clusters, markers, labels and a map; AnnData in and out."""

from __future__ import annotations

import warnings

import anndata
import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_ind
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score

import fedspan as fs
from fedspan.atlases.marker_genes import marker_genes
from fedspan.atlases.variable_genes import gene_moments
from fedspan.audit import audit
from fedspan.datasets.sources.cell_table import CellTable, make_writable
from fedspan.errors import FedspanError, InputError, PolicyError
from tests.atlases.cell_examples import cells, log_counts

QUICK = {"n_init": 1, "max_iter": 3, "max_iter_cluster": 3, "block_size": 0.25}
MAP = {"sums_settings": {"rounds": 30, "exaggeration_rounds": 10}}
SETTINGS = {"n_top_genes": 150, "n_components": 10, "random_state": 0, "harmony": QUICK, "measures": False}
SETTINGS["least_cells"] = 1  # as on pooled cells


@pytest.fixture(scope="module")
def data():
    return cells(600)


@pytest.fixture(scope="module")
def found(data):
    fed = fs.federate_anndata(data, sites="site", labels="type")
    return fs.atlas(fed, labels=True, map_settings=MAP, **SETTINGS | {"measures": True})


@pytest.fixture
def never_dense(monkeypatch):
    """Refuse to make more than a few rows dense."""
    monkeypatch.setattr(CellTable, "to_numpy", lambda self, *args: pytest.fail("the counts were made dense"))


def written(adata, path):
    """Write a file of AnnData; pandas' own strings can't be written by every version of anndata."""
    make_writable(adata)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adata.write_h5ad(path)
    return path


def annotated(found, data):
    parts = [found.annotate(data[data.obs["site"] == name].copy(), site=name) for name in ("lab 0", "lab 1", "lab 2")]
    return anndata.concat(parts)


def test_clusters_are_the_types_and_sites_mix(found, data):
    whole = annotated(found, data)
    assert adjusted_rand_score(whole.obs["type"], whole.obs["leiden"]) > 0.85
    assert (whole.obs["label"].astype(str) == whole.obs["type"].astype(str)).mean() > 0.95
    before, after = found.mixing
    assert before.ratio > 1.8
    assert after.ratio < 1.2
    assert whole.obsm["X_tsne"].shape == (600, 2)
    assert "own site among neighbours" in found.summary()
    assert len(found.marker_table(5)["0"]) == 5


def test_results_are_where_scanpy_puts_them(found, data):
    one = found.annotate(data[data.obs["site"] == "lab 1"].copy(), site="lab 1")
    assert {"X_pca", "X_pca_harmony", "X_tsne"} <= set(one.obsm)
    assert one.obs["leiden"].dtype == "category"
    assert one.var["highly_variable"].sum() == 150
    assert one.varm["PCs"].shape == (300, 10)
    ranked = one.uns["rank_genes_groups"]
    assert ranked["names"].dtype.names == tuple(str(c) for c in range(found.n_clusters))
    first = [name[0] for name in ranked["names"].tolist()[:2]]
    assert first == [name for name, _, _ in found.marker_table(2)["0"]]
    assert len(ranked["names"]) == 300  # plots of values need all genes
    assert ranked["params"]["use_raw"] is False  # scanpy's violins and filters look there
    assert tuple(one.obs["leiden"].cat.categories) == found.cluster_names
    few = found.annotate(data[data.obs["type"] == "type 0"][:40].copy(), site="lab 1")
    assert tuple(few.obs["leiden"].cat.categories) == found.cluster_names  # the same colours at every site
    np.testing.assert_allclose(one.uns["pca"]["variance_ratio"], found.axes.variances / found.axes.total_variance)


def test_genes_and_components_are_those_of_the_pooled_cells(found, data):
    X = np.asarray(data.X.todense(), dtype=float)
    scaled = 1e4 * X / X.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.moments.mean, scaled.mean(axis=0))
    np.testing.assert_allclose(found.moments.variance, scaled.var(axis=0, ddof=1))
    chosen = found.variable.chosen
    mean = np.maximum(scaled.mean(axis=0), 1e-12)
    dispersion = pd.Series(scaled.var(axis=0, ddof=1) / mean)
    frame = pd.DataFrame({"mean": np.log1p(mean), "dispersion": np.log(dispersion.where(dispersion > 0))})
    groups = frame.groupby(pd.cut(frame["mean"], 20), observed=True)["dispersion"]
    spread = groups.transform("std")
    expected = ((frame["dispersion"] - groups.transform("mean")) / spread).where(spread.notna(), 1.0)
    expected = expected.where(frame["dispersion"].notna(), -np.inf)
    np.testing.assert_allclose(found.variable.normalised, expected)
    assert set(chosen) == set(np.argsort(-expected.to_numpy(), kind="stable")[:150])
    pooled = PCA(10, svd_solver="full").fit(log_counts(data)[:, chosen])
    np.testing.assert_allclose(found.axes.variances, pooled.explained_variance_, rtol=1e-6)
    overlap = np.linalg.svd(found.axes.components @ pooled.components_.T)[1]
    assert overlap.min() > 1 - 1e-5


def _welch(own, others):
    with np.errstate(all="ignore"):
        return ttest_ind(own, others, equal_var=False)


def test_markers_are_those_of_the_pooled_test(found, data):
    whole = annotated(found, data)
    X = log_counts(whole)
    for cluster in range(2):
        mine = (whole.obs["leiden"].astype(str) == str(cluster)).to_numpy()
        assert mine.sum() == found.markers.sizes[cluster]
        varied = X.std(axis=0) > 0
        assert (found.markers.pvalues[:, ~varied] == 1.0).all()
        t, p = (np.where(varied, one, other) for one, other in zip(_welch(X[mine], X[~mine]), (0.0, 1.0), strict=True))
        np.testing.assert_allclose(found.markers.scores[cluster], t, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(found.markers.pvalues[cluster], p, rtol=1e-5, atol=1e-300)
        np.testing.assert_allclose(found.markers.shares[cluster], (X[mine] > 0).mean(axis=0))


def test_files_are_read_in_blocks_and_give_the_same(found, data, tmp_path, never_dense):
    names = sorted(set(data.obs["site"]))
    paths = {name: written(data[data.obs["site"] == name].copy(), tmp_path / f"{name}.h5ad") for name in names}
    again = fs.atlas(fs.federate_anndata(paths, labels="type"), map="none", **SETTINGS)
    np.testing.assert_array_equal(again.clusters.of_centre, found.clusters.of_centre)
    np.testing.assert_array_equal(again.markers.scores, found.markers.scores)
    found.annotate(data[data.obs["site"] == "lab 0"].copy(), site="lab 0").write_h5ad(tmp_path / "out.h5ad")
    read = anndata.read_h5ad(tmp_path / "out.h5ad")
    assert read.uns["pca"]["params"]["mask_var"] == "highly_variable"
    assert read.uns["rank_genes_groups"]["names"].dtype.names == found.cluster_names


def test_a_batch_column_gives_the_same_clusters_however_cells_are_split(data):
    results = []
    for split in (np.zeros(600, int), np.arange(600) % 3):
        parted = data.copy()
        parted.obs["room"] = split.astype(str)
        fed = fs.federate_anndata(parted, sites="room")
        one = fs.atlas(fed, batch="site", map="none", **SETTINGS)
        assert one.batch_names == ("lab 0", "lab 1", "lab 2")
        results.append(one.annotate(parted).obs["leiden"].astype(str).to_numpy())
    assert adjusted_rand_score(*results) >= 0.99
    with pytest.raises(FedspanError, match="obs has no column 'donor'"):
        fs.atlas(fed, batch="donor", map="none", **SETTINGS)


def test_no_sum_is_that_of_a_few_cells(tmp_path):
    """Of a gene that one cell has, in all or in its cluster, the sum would be this cell's value."""
    table = cells(300, 60, seed=3)
    truth = {name: log_counts(table[table.obs["site"] == name]) for name in sorted(set(table.obs["site"]))}
    run, entries = {"clusters": 4, "n_genes": 60, "names": np.array([f"type {i}" for i in range(4)])}, []
    for least in (1, 5):
        fed = fs.federate_anndata(table, sites="site", labels="type", run_dir=tmp_path / str(least))
        fed.run(gene_moments, n_genes=60, least_cells=least)
        fed.run(marker_genes, **run, least_cells=least)
        entries.append(audit(tmp_path / str(least), truth=truth).entries)
    assert [one.attack for one in entries[0]] == ["search: cells"]
    assert entries[1] == ()


def test_rare_genes_of_a_cluster_are_summed_with_others(data):
    names = np.array([f"type {i}" for i in range(4)])
    run = {"clusters": 4, "n_genes": 300, "names": names}
    fed = fs.federate_anndata(data, sites="site", labels="type")
    exact, guarded = (fed.run(marker_genes, **run, least_cells=least) for least in (1, 5))
    X, kind = np.asarray(data.X.todense()) > 0, data.obs["type"].astype(str).to_numpy()
    found = np.stack([X[kind == name].sum(axis=0) for name in names])
    plenty = ((found == 0) | (found >= 5)).all(axis=0) & (found.sum(axis=0) >= 5)
    assert 50 < plenty.sum() < 290
    np.testing.assert_allclose(guarded.scores[:, plenty], exact.scores[:, plenty], rtol=1e-9, atol=1e-12)
    assert (guarded.scores[:, found.sum(axis=0) < 5] == 0).all()
    np.testing.assert_allclose(guarded.scores, exact.scores, atol=3.0)
    assert [set(guarded.top(c, 10)) == set(exact.top(c, 10)) for c in range(4)] == [True] * 4


def test_with_secure_sums_nothing_but_totals_leaves(found, data):
    fed = fs.federate_anndata(data, sites="site", labels="type", policy=fs.Policy(secure_sum=True))
    names = [f"type {i}" for i in range(4)]
    secure = fs.atlas(fed, map="none", labels=names, **SETTINGS)
    np.testing.assert_allclose(secure.axes.variances, found.axes.variances, rtol=1e-6)
    asked = {call.step for call in secure.run_.calls if call.how == "ask"}
    assert asked == {"sums.columns", "atlases.begin"}
    with pytest.raises(PolicyError, match="an atlas whose batches or labels sites report"):
        fs.atlas(fed, labels=True)


def test_a_new_site_gets_labels_and_clusters(data):
    old, new = data[data.obs["site"] != "lab 2"].copy(), data[data.obs["site"] == "lab 2"].copy()
    made = fs.atlas(fs.federate_anndata(old, sites="site", labels="type"), labels=True, map="none", **SETTINGS)
    as_new = made.annotate(new.copy())
    made.adapt(fs.federate_anndata({"lab 2": new}))
    assert made.harmony.batches_ == ("lab 0", "lab 1", "lab 2")
    placed = made.annotate(new, site="lab 2")
    np.testing.assert_allclose(placed.obsm["X_pca_harmony"], as_new.obsm["X_pca_harmony"], atol=1e-10)
    assert (placed.obs["label"].astype(str) == placed.obs["type"].astype(str)).mean() > 0.9


def test_new_batches_of_a_column_are_learned(data, tmp_path):
    old = data[data.obs["site"] != "lab 2"].copy()
    first = fs.federate_anndata({"a": old[::2].copy(), "b": old[1::2].copy()}, labels="type")
    made = fs.atlas(first, batch="site", labels=True, map="none", **SETTINGS)
    before = made.annotate(old.copy()).obsm["X_pca_harmony"]
    with pytest.raises(InputError, match="are none of those that the model knows"):
        made.annotate(data.copy())
    secure = fs.federate_anndata({"a": data[::2].copy(), "b": data[1::2].copy()}, policy=fs.Policy(secure_sum=True))
    with pytest.raises(PolicyError, match="adapt without batches="):
        made.adapt(secure)
    with pytest.raises(InputError, match="there is no new batch: the atlas knows 'lab 0', 'lab 1'"):
        made.adapt(first)
    made.save(tmp_path / "atlas")
    other = fs.load(tmp_path / "atlas")
    assert made.adapt(fs.federate_anndata({"a": data[::2].copy(), "b": data[1::2].copy()})) is made
    assert made.batch_names == ("lab 0", "lab 1", "lab 2")
    other.adapt(secure, batches=["lab 1", "lab 2"])
    placed, again = made.annotate(data.copy()), other.annotate(data.copy())
    known = (data.obs["site"] != "lab 2").to_numpy()
    np.testing.assert_allclose(placed.obsm["X_pca_harmony"][known], before, atol=1e-12)
    np.testing.assert_allclose(again.obsm["X_pca_harmony"], placed.obsm["X_pca_harmony"], atol=1e-6)
    assert (placed.obs["label"].astype(str) == placed.obs["type"].astype(str))[~known].mean() > 0.9
    with pytest.raises(InputError, match="in this one each site is a batch"):
        fs.atlas(first, map="none", **SETTINGS).adapt(first, batches=["lab 2"])


def test_an_atlas_is_saved_without_pickle_and_writes_the_same_results(found, data, tmp_path):
    for record in (True, False):
        fs.save(found, tmp_path / "cells.fedspan", record=record)
        again = fs.load(tmp_path / "cells.fedspan")
        assert (again.run_ is not None, hasattr(again.harmony, "run_")) == (record, record)
        one, other = (m.annotate(data[data.obs["site"] == "lab 1"].copy(), site="lab 1") for m in (found, again))
        for key in ("X_pca", "X_pca_harmony", "X_tsne"):
            np.testing.assert_array_equal(one.obsm[key], other.obsm[key])
        for key in ("leiden", "label"):
            assert (one.obs[key] == other.obs[key]).all()
        assert again.summary() == found.summary()
        assert again.marker_table(3) == found.marker_table(3)
    page = fs.report.write_atlas_page(tmp_path / "page.html", again)  # without the record of the run
    assert "Marker genes" in page.read_text()
    assert found.run_ is not None  # the atlas itself keeps its record
    assert hasattr(found.harmony, "run_")


def test_a_killed_atlas_is_continued_to_the_same_result(data, tmp_path):
    made = [None, None]
    for turn in range(2):
        fed = fs.federate_anndata(data, sites="site", run_dir=tmp_path)
        made[turn] = fs.atlas(fed, map="none", **SETTINGS)
        journal = tmp_path / "run-000" / "journal"
        journal.write_bytes(journal.read_bytes()[: int(0.7 * journal.stat().st_size)])
    np.testing.assert_array_equal(made[0].harmony.effects_, made[1].harmony.effects_)
    np.testing.assert_array_equal(made[0].markers.scores, made[1].markers.scores)


def test_sites_with_other_genes_keep_those_that_all_have(data):
    first, second = data[:300, 10:].copy(), data[300:, ::-1].copy()
    fed = fs.federate_anndata({"a": first, "b": second})
    made = fs.atlas(fed, map="none", **SETTINGS)
    assert made.genes == tuple(first.var_names)
    assert made.annotate(second, site="b").var["means"].isna().sum() == 10


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"map": "pca"}, "map='pca' must be one of"),
        ({"n_top_genes": 0}, "n_top_genes=0"),
        ({"resolution": 0}, "resolution=0"),
        ({"n_codes": 1}, "n_codes=1"),
        ({"batches": ["a"]}, r"batches=\.\.\. goes with batch"),
    ],
)
def test_settings_that_cannot_work_are_refused(data, given, message):
    with pytest.raises(InputError, match=message):
        fs.atlas(fs.federate_anndata(data, sites="site"), **given)


def test_what_is_no_table_of_counts_is_refused(data, tmp_path):
    with pytest.raises(FedspanError, match=r"has no table of cells|no names of genes"):
        fs.atlas(fs.federate(np.eye(6), sites=[0, 0, 0, 1, 1, 1]))
    logged = data.copy()
    logged.X = logged.X - 0.5 * (logged.X > 3)
    logged.X.data[:3] = -1.0
    with pytest.raises(InputError, match=r"3 values are negative or not finite, and counts are needed"):
        fs.atlas(fs.federate_anndata(logged, sites="site"))
    logged.X.data = np.log1p(np.abs(logged.X.data))
    with pytest.warns(UserWarning, match="most values are not whole numbers, and counts are needed"):
        fs.federate_anndata(logged, sites="site").run(gene_moments, n_genes=300)
    with pytest.raises(InputError, match=r"sites=\.\.\. must name the column of obs"):
        fs.federate_anndata(data)
    with pytest.raises(InputError, match="must be an AnnData object or the path"):
        fs.federate_anndata({"a": np.eye(3)})
    with pytest.raises(FileNotFoundError, match="there is no file"):
        fs.federate_anndata({"a": tmp_path / "no.h5ad"})
    with pytest.raises(InputError, match="layer='raw' is not one of none"):
        fs.federate_anndata(data, sites="site", layer="raw")


def test_counts_may_be_in_a_layer(found, data):
    part = data[data.obs["site"] == "lab 1"].copy()
    elsewhere = part.copy()
    elsewhere.layers["counts"] = part.X.copy()
    elsewhere.X = part.X * 0.0
    one, other = found.annotate(part, site="lab 1"), found.annotate(elsewhere, site="lab 1", layer="counts")
    np.testing.assert_array_equal(one.obsm["X_pca_harmony"], other.obsm["X_pca_harmony"])
    assert one.obs["leiden"].tolist() == other.obs["leiden"].tolist()
