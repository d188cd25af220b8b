"""The page of an atlas: cells before and after, measures, clusters and marker genes; without cells, sums alone."""

from __future__ import annotations

import pytest

pytest.importorskip("anndata")
pytest.importorskip("leidenalg")

import fedspan as fs
from fedspan.errors import InputError
from fedspan.report import write_atlas_page
from tests.atlases.cell_examples import cells

QUICK = {"n_init": 1, "max_iter": 2, "max_iter_cluster": 2, "block_size": 0.25}


@pytest.fixture(scope="module")
def made():
    data = cells(240, 80)
    fed = fs.federate_anndata(data, sites="site", labels="type")
    settings = {"n_top_genes": 60, "n_components": 5, "harmony": QUICK, "random_state": 0}
    settings["map_settings"] = {"sums_settings": {"rounds": 10, "exaggeration_rounds": 4}}
    atlas = fs.atlas(fed, labels=True, **settings)
    tables = {name: data[data.obs["site"] == name].copy() for name in sorted(set(data.obs["site"]))}
    return atlas, {name: atlas.annotate(table, site=name) for name, table in tables.items()}


def test_cells_before_and_after_and_what_was_measured(made, tmp_path):
    atlas, tables = made
    page = write_atlas_page(tmp_path / "atlas.html", atlas, tables, title="Three labs & more")
    text = page.read_text(encoding="utf-8")
    assert page.stat().st_mode & 0o077 == 0
    assert "Three labs &amp; more" in text
    for title in ("Before, by site", "Before, by cluster", "After, by site", "After, by cluster", "Effects of batches"):
        assert title in text
    assert 'id="map-data"' in text
    before, after = atlas.mixing
    assert f'<td class="n">{before.ratio:.3g}' in text
    assert f'<td class="n">{after.ratio:.3g}' in text
    assert atlas.labels_before is not None
    for measure in ("sites in a neighbourhood", "neighbours with the main label", "adjusted Rand index"):
        assert measure in text
    assert atlas.genes[atlas.markers.top(0, 1)[0]] in text


def test_without_cells_it_shows_what_the_coordinator_knows(made, tmp_path):
    atlas, tables = made
    text = write_atlas_page(tmp_path / "atlas.html", atlas).read_text(encoding="utf-8")
    assert "Before, by site" not in text
    assert 'id="map-data"' not in text
    assert "Marker genes have the largest t" in text
    bare = cells(20, 80)
    with pytest.raises(InputError, match=r"the cells of site .new. have no results: call atlas\.annotate"):
        write_atlas_page(tmp_path / "atlas.html", atlas, {**tables, "new": bare})
    with pytest.raises(InputError, match="its folder does not exist"):
        write_atlas_page(tmp_path / "none" / "atlas.html", atlas)
