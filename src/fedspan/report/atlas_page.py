"""The page of an atlas: cells before and after the correction, by site and by cluster, and what was measured."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.report.charts.bars_and_cells import row_bars
from fedspan.report.charts.still_map import still_map
from fedspan.report.charts.svg import SERIES, charts, figure
from fedspan.report.markup import (
    Html,
    PageSection,
    count,
    few,
    header,
    join,
    more,
    note,
    number,
    plural,
    section,
    table,
)
from fedspan.report.models.map_pictures import MOST_POINTS
from fedspan.report.models.picture import pictures_of
from fedspan.report.models.scatter_map import Scatter, scatter_section
from fedspan.report.page import asset, write_page
from fedspan.report.sections.privacy_section import privacy_section
from fedspan.report.sections.run_sections import failures_section, requested_section, sites_section
from fedspan.report.sections.traffic import traffic_section

if TYPE_CHECKING:
    from fedspan.atlases.atlas_model import Atlas

#: The most cells of a still picture; clusters that are listed, and marker genes of each.
_MOST_DOTS, _MOST_CLUSTERS, _MARKERS = 5000, 30, 5
_CELLS_SHOWN = "The cells are those of the tables that were given to this page."


def write_atlas_page(
    path: str | os.PathLike[str], atlas: Atlas, cells: Mapping[str, Any] | None = None, *, title: str = "Atlas of cells"
) -> Path:
    """Write an atlas as one HTML file that opens offline.

    Without cells it shows what the coordinator knows: measures, clusters, marker genes and the run. A site adds its own
    cells. Where sites may see each other's, all of them are drawn. Only its owner may read the file (mode 0600).

    Parameters
    ----------
    path : path
        The file to write; its folder must exist.
    atlas : Atlas
        What `fedspan.atlas` returned.
    cells : mapping of site name to AnnData, optional
        Cells that ``atlas.annotate`` has annotated.
    title : str, default="Atlas of cells"
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise InputError(f"path={str(path)!r} can't be written: its folder does not exist")
    shown = None if not cells else _Cells(atlas, cells)
    parts: list[PageSection] = []
    if shown is not None:
        parts.append(_before_and_after(shown))
        if shown.places is not None:
            parts.append(scatter_section(shown.scatter()))
    parts += [_measures(atlas), _clusters(atlas)]
    if atlas.run_ is not None:
        records = [atlas.run_]
        parts += [requested_section(records, None), sites_section(records, None), traffic_section(records)]
        parts += [failures_section(records), privacy_section(records)]
    navigation = Html(f'<nav aria-label="Sections">{join(part.link for part in parts)}</nav>')
    moving = shown is not None and shown.places is not None
    script = asset("points.js") + asset("scatter.js") if moving else ""
    write_page(path, title, join([_header(atlas, title), navigation, *parts], "\n"), script)
    return path


class _Cells:
    """The cells of some sites: components before and after, the map, sites, clusters and labels."""

    def __init__(self, atlas: Atlas, cells: Mapping[str, Any]) -> None:
        key = None if atlas.map is None else f"X_{atlas.map_name}"
        for site, one in cells.items():
            lacks = [name for name in ("X_pca", "X_pca_harmony", key) if name is not None and name not in one.obsm]
            if lacks or "leiden" not in one.obs:
                raise InputError(f"the cells of site {site!r} have no results: call atlas.annotate(cells, site=...)")
        tables = list(cells.values())
        sizes = [len(one) for one in tables]

        def whole(name: str) -> NDArray[Any]:
            return np.concatenate([np.asarray(one.obsm[name])[:, :2] for one in tables])

        def texts(name: str) -> NDArray[Any]:
            return np.concatenate([np.asarray(one.obs[name].astype(str), dtype=str) for one in tables])

        self.before, self.after = whole("X_pca"), whole("X_pca_harmony")
        self.places = None if key is None else whole(key)
        self.sites = np.repeat(np.array(list(cells), dtype=str), sizes)
        self.rows = np.concatenate([np.arange(size) for size in sizes])
        self.clusters, self.cluster_names = texts("leiden"), atlas.cluster_names
        self.labels = texts("label") if all("label" in one.obs for one in tables) else None

    def scatter(self) -> Scatter:
        """Return the map that moves and zooms."""
        assert self.places is not None
        some = slice(None, None, -(-len(self.rows) // MOST_POINTS))
        labels = None if self.labels is None else self.labels[some]
        clusters = self.clusters[some].astype(int)
        return Scatter(self.places[some], self.sites[some], self.rows[some], labels, "", "", clusters)


def _header(atlas: Atlas, title: str) -> Html:
    result = f"{plural(atlas.moments.n, 'cell')} in {plural(atlas.n_clusters, 'cluster')}."
    if atlas.mixing is not None:
        before, after = (number(one.ratio, 3) for one in atlas.mixing)
        result += (
            f" A cell's own site among its neighbours, over chance: {before} before the correction, {after} after."
        )
    tiles = [
        ("cells", count(atlas.moments.n)),
        ("genes", count(len(atlas.genes))),
        *([] if atlas.run_ is None else [("sites", count(len(atlas.run_.sites)))]),
        ("batches", count(len(atlas.harmony.batches_))),
        ("clusters", count(atlas.n_clusters)),
    ]
    return header(title, result, tiles)


def _before_and_after(cells: _Cells) -> PageSection:
    if cells.before.shape[1] < 2:
        return section("before-after", "Before and after", note("One component can't be drawn as a map."))
    step = -(-len(cells.rows) // _MOST_DOTS)
    ways = {"site": (cells.sites, sorted(set(cells.sites.tolist()))), "cluster": (cells.clusters, cells.cluster_names)}
    times = (("Before", cells.before), ("After", cells.after))
    frame = np.concatenate([cells.before, cells.after])
    pairs = [
        charts(
            [_still(f"{when}, by {what}", places[::step], groups[::step], names, frame) for when, places in times],
            wide=True,
        )
        for what, (groups, names) in ways.items()
    ]
    some = f" Every {step}th cell is drawn." if step > 1 else ""
    lead = f"The first two components, as they were and as they were corrected. {_CELLS_SHOWN}{some}"
    return section("before-after", "Before and after", *pairs, lead=lead)


def _still(title: str, places: NDArray[Any], groups: NDArray[Any], names: Sequence[str], frame: NDArray[Any]) -> Html:
    number_of = {name: i for i, name in enumerate(names)}
    codes = np.array([number_of[name] for name in groups.tolist()])
    key = [(i % SERIES, name) for i, name in enumerate(names)][:SERIES]
    rest = f"Colours repeat after {SERIES} names." if len(names) > SERIES else ""
    return figure(title, still_map(places, codes, label=title, within=frame), remark=rest, key=key)


def _measures(atlas: Atlas) -> PageSection:
    rows: list[list[object]] = []
    if atlas.mixing is not None:
        before, after = atlas.mixing
        best = number(before.expected_lisi, 3)
        rows.append(["own site among neighbours, over chance", number(before.ratio, 3), number(after.ratio, 3), "1"])
        rows.append(["sites in a neighbourhood (inverse Simpson)", number(before.lisi, 3), number(after.lisi, 3), best])
    if atlas.labels is not None:
        first = "–" if atlas.labels_before is None else number(atlas.labels_before.purity, 3)
        rows.append(["neighbours with the main label", first, number(atlas.labels.purity, 3), "1"])
    kept = atlas.labels_of_clusters
    if kept is not None:
        rows.append(["clusters and labels, adjusted Rand index", "–", number(kept.ari, 3), "1"])
        rows.append(["clusters and labels, mutual information", "–", number(kept.nmi, 3), "1"])
    effects = charts([one.figure() for one in pictures_of(atlas.harmony) if one.title == "Effects of batches"])
    if not rows:
        return section("measures", "Measures", note("The atlas was not measured (measures=False)."), effects)
    lead = "Sites should mix, and labels stay together. Neighbourhoods are the cells closest to one centre."
    return section("measures", "Measures", table(["measure", "before", "after", "best"], rows), effects, lead=lead)


def _clusters(atlas: Atlas) -> PageSection:
    shown = min(atlas.n_clusters, _MOST_CLUSTERS)
    names = [f"cluster {c}" for c in range(shown)]
    sizes = [[float(size)] for size in atlas.markers.sizes[:shown]]
    bars = row_bars(names, sizes, label="cells by cluster", show=lambda value: count(round(value)))
    kept = atlas.labels_of_clusters
    rows: list[list[object]] = []
    for c in range(shown):
        main: list[object] = []
        if kept is not None:
            own = kept.table[c]
            main = [f"{kept.names[int(own.argmax())]} ({own.max() / own.sum():.0%})" if own.sum() else "–"]
        best = [atlas.genes[g] for g in atlas.markers.top(c, _MARKERS)]
        rows.append([str(c), few(best, _MARKERS), *main, int(atlas.markers.sizes[c])])
    heads = ["cluster", "marker genes", *(["main label"] if kept is not None else []), "cells"]
    listed = table(heads, rows, texts=len(heads) - 1)
    rest = more(atlas.n_clusters - shown, "cluster")
    lead = "Marker genes have the largest t of Welch's test against all other cells."
    return section("clusters", "Clusters", listed, charts([figure("Cells by cluster", bars)]), *rest, lead=lead)
