"""plot_map: pages, images and axes of maps."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.pipeline import make_pipeline

import fedspan as fs
from fedspan.errors import InputError
from tests.report.chromium import Chromium, find_chromium
from tests.report.report_reading import Page, unpacked
from tests.report.test_page_browser import PROBES


@pytest.fixture(scope="module")
def model():
    X = np.random.default_rng(0).normal(size=(60, 4)) + np.repeat([[0.0], [6.0]], 30, axis=0)
    return fs.FedSpectralClustering(2, n_landmarks=20, rounds=5).fit(X, sites=np.arange(60) % 3)


def axes():
    return Figure().subplots()


def test_a_page_has_labels_clusters_and_sites_and_states_that_it_is_simulated(model, tmp_path):
    labels = np.repeat(["low", "high"], 30)
    path = fs.plot_map(model, labels=labels, path=tmp_path / "map.html", title="Two groups")
    page = Page(path.read_text(encoding="utf-8"))
    data = page.map_data()
    assert list(data["ways"])[:3] == ["label", "cluster", "site"]
    assert data["ways"]["label"]["names"] == ["high", "low"]
    assert "Simulated: all sites were in one process." in page.text
    assert "<h1>Two groups</h1>" in path.read_text(encoding="utf-8")


def test_new_rows_are_placed_beside_the_old_ones(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    model = fs.FedTSNE(n_landmarks=20, rounds=5, early_exaggeration_iter=5, n_iter=5, perplexity=5.0).fit(
        X, sites=np.arange(60) % 3
    )
    path = fs.plot_map(model, labels=np.arange(60) % 2, new=X[:5], path=tmp_path / "map.html")
    assert "60 rows of 3 sites and 5 new rows. Near" in path.read_text(encoding="utf-8")
    data = Page(path.read_text(encoding="utf-8")).map_data()
    assert data["ways"]["label"]["names"] == ["0", "1", "new"]
    assert "new" in data["ways"]["site"]["names"]
    drawn = fs.plot_map(model, labels=np.arange(65) % 2, new=X[:5], ax=axes())
    assert sum(len(one.get_offsets()) for one in drawn.collections) == 65 + 5
    with pytest.raises(InputError, match=r"labels has the shape \(3,\), and the map has 60 rows, or 65"):
        fs.plot_map(model, labels=[1, 2, 3], new=X[:5], ax=axes())


def test_coordinates_of_new_rows_alone(tmp_path):
    X = np.random.default_rng(0).normal(size=(40, 4))
    pipeline = make_pipeline(fs.FedStandardScaler(), fs.FedPCA(2)).fit(X)
    drawn = fs.plot_map(pipeline, new=X, labels=X[:, 0], ax=axes())
    assert (drawn.get_xlabel(), drawn.get_ylabel()) == ("component 1", "component 2")
    assert fs.plot_map(pipeline, new=X, path=tmp_path / "a.png").stat().st_size > 1000
    assert ">40 new rows. " in fs.plot_map(pipeline, new=X, path=tmp_path / "map.html").read_text(encoding="utf-8")
    with pytest.raises(InputError, match="keeps no map"):
        fs.plot_map(pipeline, ax=axes())
    with pytest.raises(InputError, match="has 1 coordinates"):
        fs.plot_map(fs.FedPCA(1).fit(X), new=X, ax=axes())


def test_a_map_of_one_site_is_no_simulation(tmp_path):
    X = np.random.default_rng(0).normal(size=(40, 4))
    model = fs.FedSpectralClustering(2, n_landmarks=10, rounds=3).fit(X)
    assert "Simulated" not in fs.plot_map(model, path=tmp_path / "map.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("by_federation", [True, False])
def test_labels_by_site_colour_the_rows_that_they_are_of(by_federation, tmp_path):
    """On a federation rows are in another order than in the table: labels in the table's would colour other rows."""
    X = np.random.default_rng(0).normal(size=(60, 4)) + np.repeat([[0.0], [6.0]], 30, axis=0)
    kind, site = np.repeat(["low", "high"], 30), np.array(["b", "a", "c"])[np.arange(60) % 3]
    model = fs.FedSpectralClustering(2, n_landmarks=20, rounds=5)
    model = model.fit(fs.federate(X, sites=site)) if by_federation else model.fit(X, sites=site)
    labels = {name: kind[site == name] for name in "abc"}
    data = Page(fs.plot_map(model, labels=labels, path=tmp_path / "map.html").read_text(encoding="utf-8")).map_data()
    shown = np.array(data["ways"]["label"]["names"])[unpacked(data["ways"]["label"]["codes"])]
    expected = np.concatenate([kind[site == name] for name in "abc"]) if by_federation else kind
    np.testing.assert_array_equal(shown, expected)
    with pytest.raises(InputError, match=r"labels has rows by site .*'a': 19.*: give those of each site"):
        fs.plot_map(model, labels={**labels, "a": labels["a"][1:]})


def test_wrong_targets_are_refused(model, tmp_path):
    with pytest.raises(InputError, match="its folder does not exist"):
        fs.plot_map(model, path=tmp_path / "none" / "map.html")
    with pytest.raises(InputError, match=r"must end in \.html"):
        fs.plot_map(model, path=tmp_path / "map.txt")
    with pytest.raises(InputError, match="exclude each other"):
        fs.plot_map(model, path=tmp_path / "map.html", ax=axes())


@pytest.mark.slow
@pytest.mark.skipif(find_chromium() is None, reason="needs Chromium")
def test_the_page_is_drawn_in_a_browser(model, tmp_path):
    browser = Chromium(tmp_path / "profile")
    path = fs.plot_map(model, labels=np.arange(60) % 4, path=tmp_path / "map.html")
    try:
        for width, dark in ((1300, False), (390, True)):
            browser.open(path, width=width, dark=dark)
            browser.run(PROBES)
            assert browser.run("faults()") == []
            assert browser.until("pixels()")
        assert browser.complaints == []
    finally:
        browser.close()
