"""The whole way from raw counts at sites to clusters, a map and marker genes, in one run; cells stay at their sites.

counts -> scaled to one total, logarithms -> variable genes -> principal components -> Harmony -> codebook of k-means ->
Leiden's clusters of its centres -> marker genes -> labels -> map. Counts stay sparse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.atlases.atlas_model import Atlas
from fedspan.atlases.cell_clusters import cell_clusters
from fedspan.atlases.cell_components import cell_components, cell_scores, obs_names
from fedspan.atlases.harmony import FedHarmony
from fedspan.atlases.marker_genes import marker_genes
from fedspan.atlases.measures import cluster_agreement, site_mixing
from fedspan.atlases.variable_genes import gene_moments, variable_genes
from fedspan.checks import list_of, one_of, real_number, true_or_false, whole_number
from fedspan.clustering.federated_k_means import federated_k_means
from fedspan.clustering.k_means import FedKMeans
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.maps.parts.map_centres import Codebooks
from fedspan.maps.tsne import FedTSNE
from fedspan.maps.umap import FedUMAP
from fedspan.sums.columns import agree_on_columns

#: Cells for each centre of the codebook, and the most centres.
_CELLS_PER_CODE, _MOST_CODES = 30, 300
#: The most centres of each codebook of a map: with one for 17 cells, a map of 50,000 takes longer than all the rest.
_MOST_MAP_CENTRES = 400
#: Rounds of k-means with guarded sums, and for the measure of mixing before the correction.
_FEW_ROUNDS = 5
_MAPS = ("tsne", "umap", "none")


def atlas(
    federation: Federation,
    *,
    n_top_genes: int = 2000,
    n_components: int = 30,
    batch: str | None = None,
    batches: Sequence[str] | None = None,
    target_sum: float = 1e4,
    n_codes: int | None = None,
    resolution: float = 1.0,
    map: str = "tsne",
    labels: bool | Sequence[str] = False,
    measures: bool = True,
    least_cells: int = 5,
    harmony: Mapping[str, Any] | None = None,
    map_settings: Mapping[str, Any] | None = None,
    random_state: int | None = None,
) -> Atlas:
    """Make an atlas of the cells of all sites, which stay there.

    **What leaves a site** are sums over cells: moments of genes, products with a basis, and the sums of `FedHarmony`
    and `FedKMeans`. Then the number of cells between two centres, and sums of genes by cluster. With ``map="tsne"``
    positions stay at the sites; with ``map="umap"`` sites post distances, from which the coordinator can rebuild
    components.

    Parameters
    ----------
    federation : Federation
        Of tables of cells, see `fedspan.federate_anndata`.
    n_top_genes, n_components : int, default=2000, 30
        Highly variable genes that are chosen, and principal components of these.
    batch : str, optional
        The column of ``obs`` that holds the batch of each cell. Default: each site is a batch.
    batches : sequence of str, optional
        Its values. Default: sites report theirs, which needs single replies.
    target_sum : float, default=1e4
        What the counts of a cell are scaled to.
    n_codes : int, optional
        Centres of the codebook. Default: one for each 30 cells, at most 300.
    resolution : float, default=1.0
        Of Leiden's algorithm; larger values give more clusters.
    map : {"tsne", "umap", "none"}, default="tsne"
        ``FedTSNE(share="sums")``, `FedUMAP`, or no map.
    labels : bool or sequence of str, default=False
        Whether to learn the labels of cells (``y`` of the sites that have some), for cells without; or the labels.
        Where they are not listed, sites report theirs, which needs single replies.
    measures : bool, default=True
        Whether to measure the mixing of sites, and of labels, before and after the correction.
    least_cells : int, default=5
        No sum of fewer cells is requested of a gene, of a gene in a cluster, or for a centre of k-means. The sum of one
        cell would be this cell. Genes that fewer cells have are left out. 1: exact sums, as on pooled cells.
    harmony, map_settings : dict, optional
        More parameters of `FedHarmony` and of the map.
    random_state : int, optional
        Seed of the run. Default: the federation's.

    Returns
    -------
    Atlas
        ``annotate(adata, site=...)`` writes its results into a site's cells.
    """
    _check(n_top_genes, n_components, target_sum, n_codes, resolution, map, measures)
    whole_number("least_cells", least_cells, 1)
    if batch is None and batches is not None:
        raise InputError("batches=... goes with batch, the column of obs that holds them")
    given = None if isinstance(labels, bool) else _names("labels", labels)
    if (labels is True) or (batch is not None and batches is None):
        federation.need_single_replies("an atlas whose batches or labels sites report")
    settings = {"n_top_genes": n_top_genes, "n_components": n_components, "batch": batch, "resolution": resolution}
    settings["least_cells"] = least_cells
    with federation.begin("atlas", settings, random_state) as begun:
        columns, run = agree_on_columns(begun, text=True)
        if columns.names is None:
            raise InputError("the sites have no names of genes: make the federation with fedspan.federate_anndata")
        run.log(phase="genes")
        target = float(target_sum)
        found = gene_moments(run, n_genes=columns.count, target=target, least_cells=least_cells)
        variable = variable_genes(found, n_top_genes)
        mean = found.log_mean[variable.chosen]
        run.log(phase="components")
        rank = min(n_components, len(variable.chosen), found.n - 1)
        axes = cell_components(run, genes=variable.chosen, mean=mean, rank=rank, target=float(target_sum))
        shown: dict[str, Any] = {"genes": variable.chosen, "mean": mean, "components": axes.components}
        shown["target"] = float(target_sum)
        scores = run.apply(cell_scores, columns=columns.names, **shown)
        coded, names = scores, None
        if batch is not None:
            names = obs_names(run, batch=batch) if batches is None else _names("batches", batches)
            coded = run.apply(cell_scores, columns=columns.names, **shown, batch=batch, names=names)
        run.log(phase="harmony")
        codes = None if names is None else [str(i) for i in range(len(names))]
        column = None if batch is None else rank
        own = {"batch": column, "batches": codes, "least_rows": least_cells, "random_state": random_state}
        starts = {} if least_cells == 1 else {"n_init": 2}  # a guarded start takes long
        model = FedHarmony(**{**own, **starts, **(harmony or {})})
        corrected = model.fit(coded).transform(coded)
        run.log(phase="clusters")
        k = n_codes or min(max(2, found.n // _CELLS_PER_CODE), _MOST_CODES)
        codebook = FedKMeans(
            k, max_iter=25 if least_cells == 1 else _FEW_ROUNDS, least_rows=least_cells, random_state=random_state
        ).fit(corrected)
        centres = np.asarray(codebook.cluster_centers_, dtype=np.float64)
        clusters = cell_clusters(corrected, centres=centres, resolution=float(resolution))
        number = int(clusters.of_centre.max()) + 1
        markers = marker_genes(run, clusters=number, n_genes=columns.count, target=target, least_cells=least_cells)
        agreed = None
        if given is not None or labels:
            agreed = cluster_agreement(corrected, centres=centres, names=given)
        mixing, agreed_before = None, None
        if measures:
            run.log(phase="measures")
            before = federated_k_means(scores, n_clusters=k, max_iter=_FEW_ROUNDS, least_rows=least_cells).best()
            mixing = site_mixing(scores, centres=before.centres), site_mixing(corrected, centres=centres)
            if agreed is not None:
                agreed_before = cluster_agreement(
                    scores, centres=before.centres, names=np.array(agreed.names, dtype=str)
                )
        placed = _map(map, found.n, random_state, map_settings)
        if placed is not None:
            run.log(phase="map")
            placed.fit(corrected)
        record = run.record
    return Atlas(
        genes=columns.names,
        moments=found,
        variable=variable,
        axes=axes,
        target_sum=float(target_sum),
        batch=batch,
        batch_names=None if names is None else tuple(names.tolist()),
        harmony=model,
        codebook=codebook,
        clusters=clusters,
        resolution=float(resolution),
        markers=markers,
        labels=agreed,
        labels_before=agreed_before,
        mixing=mixing,
        map=placed,
        map_name=map,
        run_=record,
    )


def _check(
    n_top_genes: int,
    n_components: int,
    target_sum: float,
    n_codes: int | None,
    resolution: float,
    map: str,
    measures: bool,
) -> None:
    for name, value in (("n_top_genes", n_top_genes), ("n_components", n_components)):
        whole_number(name, value, 1)
    if n_codes is not None:
        whole_number("n_codes", n_codes, 2)
    real_number("target_sum", target_sum, above=0)
    real_number("resolution", resolution, above=0)
    one_of("map", map, _MAPS)
    true_or_false("measures", measures)


def _names(what: str, given: Any) -> NDArray[np.str_]:
    return np.unique(np.array([str(name) for name in list_of(what, given, "names")], dtype=str))


def _map(name: str, n: int, seed: int | None, settings: Mapping[str, Any] | None) -> Any:
    if name == "none":
        return None
    given = {"random_state": seed, **(settings or {})}
    if name == "umap":
        return FedUMAP(**given)
    share = given.pop("share", "sums")
    if share == "sums":
        coarse = {"rows_per_centre": max(Codebooks.rows_per_centre, n / _MOST_MAP_CENTRES)}
        given["sums_settings"] = {**coarse, **(given.get("sums_settings") or {})}
    return FedTSNE(share=share, **given)
