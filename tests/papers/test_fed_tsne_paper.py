"""The reproduction of Fed-tSNE: its pieces against what they stand for, and a whole run on made-up rows."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

import fedspan as fs
from fedspan.papers import fed_tsne
from fedspan.papers.fed_tsne import NOISY, PLAIN, PLAIN_IID, PRIVATE, Plan, run_plan
from fedspan.papers.fed_tsne import layouts_paper as layouts
from fedspan.papers.fed_tsne import variants_paper as variants
from fedspan.papers.fed_tsne.clusters_paper import federated_clusters, pooled_clusters
from fedspan.papers.fed_tsne.fed_tsne_numbers_paper import CLUSTERS, MAPS
from fedspan.papers.fed_tsne.leak_paper import leak
from fedspan.papers.fed_tsne.map_measures_paper import NAMES, quality
from fedspan.papers.fed_tsne.rows_paper import Rows
from fedspan.papers.fed_tsne.variants_paper import PAPER_NOISE, learned
from tests.real_data import real_file


def blobs(n=120, n_landmarks=12) -> Rows:
    rng = np.random.default_rng(0)
    y = np.arange(n) % 4
    middles = 0.5 + 0.3 * np.array([[1, 1, 0, 0, 1], [-1, 1, 0, 1, 0], [1, -1, 1, 0, 0], [-1, -1, 0, 0, -1]])
    return Rows("blobs", middles[y] + 0.03 * rng.normal(size=(n, 5)), y, n_landmarks, (0.0, 1.0))


def test_map_that_is_the_rows_themselves_keeps_all():
    rng = np.random.default_rng(1)
    y = np.arange(300) % 3
    Z = rng.normal(size=(300, 2)) + 40 * y[:, None]
    apart = np.linalg.norm(Z[:, None] - Z, axis=2)
    np.fill_diagonal(apart, np.inf)
    found = quality(Z, y, np.argsort(apart, axis=1)[:, :50])
    assert found.accuracy == (1, 1, 1)
    assert found.preserved == (1, 1, 1)
    assert found.nmi == pytest.approx(1)
    assert found.silhouette > 0.9
    noise = quality(rng.normal(size=(300, 2)), y, np.argsort(apart, axis=1)[:, :50])
    assert max(noise.accuracy) < 0.6
    assert noise.preserved[1] < 0.2
    assert len(found.values()) == len(NAMES)


def test_papers_tables_have_what_ours_have():
    assert {len(values) for table in MAPS.values() for values in table.values()} == {len(NAMES)}
    ways = {(None, False), *((split, noise) for split in ("IID", "one class") for noise in (False, True))}
    assert all(set(table) == ways for table in (*MAPS.values(), *CLUSTERS.values()))
    assert all(0 < value < 1 for table in MAPS.values() for values in table.values() for value in values)


def test_split_makes_no_difference_without_noise_and_does_with_it():
    rows = blobs()
    plain, split = learned(rows, rows.iid(), rounds=5), learned(rows, rows.by_class(), rounds=5)
    assert pytest.approx(plain.B, abs=1e-5) == split.B
    assert plain.epsilon == np.inf
    noisy, sorted_noisy = (learned(rows, sites, PAPER_NOISE, rounds=5) for sites in (rows.iid(), rows.by_class()))
    assert np.abs(noisy.B - plain.B).max() > 1e-3
    assert sorted_noisy.epsilon < noisy.epsilon < np.inf  # the fewer rows a site has, the more one of them shows


def test_distances_are_those_that_sites_post():
    rows = blobs()
    sites = rows.by_class()
    found = learned(rows, sites, rounds=5)
    model = fs.FedSpectralClustering(4, n_landmarks=12, rounds=5, affinity="kernel", random_state=0)
    model.fit(fs.federate(rows.X, sites=sites))
    order = np.argsort(sites, kind="stable")
    assert model.landmarks_ == pytest.approx(found.model.landmarks_, abs=1e-9)
    assert adjusted_rand_score(model.labels_, federated_clusters(found, "kernel")[order]) == 1
    assert adjusted_rand_score(model.labels_, rows.y[order]) == 1


@pytest.mark.parametrize("affinity", ["kernel", "neighbors"])
def test_clusters_of_pooled_rows_find_blobs(affinity):
    rows = blobs()
    assert adjusted_rand_score(pooled_clusters(rows.X, 4, affinity), rows.y) == 1
    assert adjusted_rand_score(federated_clusters(learned(rows, rows.iid(), rounds=5), affinity), rows.y) == 1


def test_leak_is_whole_with_more_landmarks_than_columns_and_partial_with_fewer():
    rows = blobs()
    whole = leak(learned(rows, rows.iid(), rounds=3))
    assert whole.relative_error < 1e-6  # distances are posted in single precision
    assert whole.psnr > 120
    part = leak(learned(rows, rows.iid(), rounds=3, n_landmarks=3))
    assert 0.01 < part.relative_error < 1


@pytest.fixture
def quick_layouts(monkeypatch):
    """Maps by principal components alone: layouts take long, and are tested elsewhere."""

    def start(face, indices, distances, coordinates, mirror=(1, 1)):
        assert indices.shape == distances.shape
        return np.linalg.svd(coordinates - coordinates.mean(axis=0), full_matrices=False)[0][:, :2]

    for module in (layouts, variants):
        monkeypatch.setattr(module, "laid_out", start)


def test_whole_run_has_every_table_and_is_saved(quick_layouts, monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(fed_tsne.LOADERS, "MNIST", lambda n: blobs(n))
    plan = Plan(
        maps={"MNIST": (80, (PLAIN_IID, PLAIN, NOISY, PRIVATE.by("t-SNE")))},
        clusters={"MNIST": 80},
        convergence=("MNIST", 80),
        swept=("MNIST", 80),
        sites={"by class": (4,), "IID": (5,)},
        landmarks=(4, 8),
        betas=(0.0, 1.0),
        landmarks_of_noise=8,
        rounds=4,
    )
    results = run_plan(plan, processes=1)
    results.print()
    results.save(tmp_path)
    tables = {part.title: part for part in results.parts}
    lines = {row[0]: row for row in tables["blobs, 80 rows: t-SNE"].rows}
    assert list(lines) == [
        "centralised",
        *("paper's form, IID", "ours, IID", "paper's form, one class", "ours, one class"),
        *("paper's form, one class, paper's noise", "ours, one class, paper's noise"),
        "ours, one class, guaranteed noise",
    ]
    assert lines["paper's form, one class"][2].endswith("[.948]")
    assert lines["centralised"][2].endswith("[.966]")
    assert "[" not in lines["ours, one class"][2]
    assert lines["ours, one class"][1:9] == lines["ours, IID"][1:9]
    assert lines["ours, one class, guaranteed noise"][9] == "8"
    assert "ours, one class, guaranteed noise" not in {row[0] for row in tables["blobs, 80 rows: UMAP"].rows}
    pictures = tables["blobs: the maps"].maps
    assert "UMAP, paper's form, one class" in pictures
    assert not any("noise" in name for name in pictures)
    assert all(places.shape == (80, 2) for places in pictures.values())
    curves = tables["blobs, 80 rows: MMD^2 by round"].lines
    assert all(len(x) == 5 for x, _ in curves.values())
    assert curves["default, IID"][1] == pytest.approx(curves["default, one class"][1], rel=1e-6)
    assert json.loads((tmp_path / "results.json").read_text())["title"] == results.title
    assert (tmp_path / "report.html").exists()
    assert "not private against the coordinator" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "file", "n"), [("mice", "mice_protein.csv.gz", 1080), ("COIL-20", "coil20_32x32.npz", 720)]
)
def test_federated_clusters_are_as_good_as_pooled_ones(name, file, n):
    real_file(file)
    rows = fed_tsne.LOADERS[name](n)
    pooled = normalized_mutual_info_score(rows.y, pooled_clusters(rows.X, rows.n_classes, "neighbors"))
    ours = normalized_mutual_info_score(rows.y, federated_clusters(learned(rows, rows.by_class()), "neighbors"))
    assert ours == pytest.approx(pooled, abs=0.01)
