"""What an atlas has learned, and what it writes into the cells of a site, where scanpy looks for it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.atlases.cell_clusters import CellClusters
from fedspan.atlases.cell_components import CellComponents, cell_scores, obs_names
from fedspan.atlases.harmony import FedHarmony
from fedspan.atlases.marker_genes import MarkerGenes
from fedspan.atlases.measures import ClusterAgreement, SiteMixing, agreement
from fedspan.atlases.parts.batch_labels import codes_in, texts_of
from fedspan.atlases.variable_genes import GeneMoments, VariableGenes
from fedspan.clustering.k_means import FedKMeans
from fedspan.clustering.parts.rows_by_centre import closest_labels
from fedspan.datasets.sources.cell_table import CellTable, categories, make_writable
from fedspan.errors import InputError
from fedspan.federation import Federation, RunRecord
from fedspan.persistence import save


@dataclass
class Atlas:
    """An atlas: every part is a model, which a site applies to its own cells.

    ``save(path)`` writes all that a site needs to one file without pickle, which ``fedspan.load`` reads.

    Attributes
    ----------
    genes : tuple of str
        All genes; `moments` and `variable` have their means, and which of them were chosen.
    axes : CellComponents
    harmony : FedHarmony
    codebook : FedKMeans
        Centres on corrected components.
    clusters : CellClusters
        The cluster of each centre.
    markers : MarkerGenes
    labels : ClusterAgreement or None
        Labels by centre of the codebook, where they were learned.
    labels_before : ClusterAgreement or None
        The same of a codebook of uncorrected components, where the atlas was measured.
    mixing : tuple of SiteMixing, or None
        Before and after the correction.
    map : FedTSNE, FedUMAP or None
    run_ : RunRecord, or None where it was saved without
    """

    genes: tuple[str, ...]
    moments: GeneMoments
    variable: VariableGenes
    axes: CellComponents
    target_sum: float
    batch: str | None
    batch_names: tuple[str, ...] | None
    harmony: FedHarmony
    codebook: FedKMeans
    clusters: CellClusters
    resolution: float
    markers: MarkerGenes
    labels: ClusterAgreement | None
    labels_before: ClusterAgreement | None
    mixing: tuple[SiteMixing, SiteMixing] | None
    map: Any
    map_name: str
    run_: RunRecord | None = None

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return len(self.markers.sizes)

    @property
    def cluster_names(self) -> tuple[str, ...]:
        """The clusters' names in ``obs``: their numbers, the largest cluster first."""
        return tuple(str(c) for c in range(self.n_clusters))

    @property
    def labels_of_clusters(self) -> ClusterAgreement | None:
        """How clusters agree with labels, where these were learned: how well the correction keeps types together."""
        if self.labels is None:
            return None
        table = np.zeros((self.n_clusters, self.labels.table.shape[1]), dtype=np.int64)
        np.add.at(table, self.clusters.of_centre, self.labels.table)
        return ClusterAgreement(self.labels.names, table, *agreement(table))

    def scores(self, fed: Federation) -> Federation:
        """Return a federation of cells whose sites see uncorrected components."""
        return fed.apply(cell_scores, columns=self.genes, **self._shown())

    def corrected(self, fed: Federation) -> Federation:
        """Return a federation of cells whose sites see corrected components."""
        found: Federation = self.harmony.transform(self._coded(fed))
        return found

    def adapt(self, fed: Federation, *, batches: Sequence[str] | None = None) -> Atlas:
        """Learn the effects of sites, or batches, that the atlas does not know; clusters and map stay.

        Where a column of ``obs`` holds the batch, ``batches`` are values of it, new ones among them. Default: sites
        report theirs, which needs single replies.
        """
        if self.batch is None:
            if batches is not None:
                raise InputError("batches=... goes with an atlas made with batch: in this one each site is a batch")
            self.harmony.adapt(self._coded(fed))
            return self
        if batches is None:
            fed.need_single_replies("adapt without batches=[...], the column's values,")
        with fed.begin("Atlas.adapt", {"batch": self.batch}) as run:
            found = obs_names(run, batch=self.batch) if batches is None else [str(name) for name in batches]
            known = self.batch_names or ()
            new = sorted(set(found) - set(known))
            if not new:
                raise InputError(f"there is no new batch: the atlas knows {', '.join(map(repr, known[:10]))}")
            self.harmony.adapt(self._coded(run, (*known, *new)), batches=range(len(known) + len(new)))
        self.batch_names = (*known, *new)
        return self

    def save(self, path: str | os.PathLike[str], *, record: bool = True) -> None:
        """Write this atlas to one file, which ``fedspan.load`` reads; without pickle."""
        save(self, path, record=record)

    def annotate(self, adata: Any, *, site: str | None = None, layer: str | None = None) -> Any:
        """Write the results into cells, in place, and return them. Nothing leaves the site.

        ``obsm``: ``X_pca``, ``X_pca_harmony``, and ``X_tsne`` or ``X_umap``. ``obs``: ``leiden``, and ``label`` where
        labels were learned. ``var``: ``highly_variable``, ``means``, ``dispersions``, ``dispersions_norm``. ``varm``:
        ``PCs``. ``uns``: ``pca``, ``leiden``, ``hvg``, ``rank_genes_groups``.

        Parameters
        ----------
        adata : AnnData
        site : str, optional
            The site of the cells, where sites are batches. Without it they count as a new batch, whose effects are
            estimated from these cells.
        layer : str, optional
            The layer that holds raw counts. Default: ``X``.
        """
        cells = CellTable(adata, layer=layer, genes=self.genes)
        scores = cell_scores(cells, **self._shown())
        rows, sites = scores, None
        if self.batch is not None:
            codes = codes_in(texts_of(cells.obs(self.batch)), np.array(self.batch_names, dtype=str))
            rows = np.column_stack([scores, codes])
        elif site is not None:
            sites = np.full(len(scores), site)
        Z = np.asarray(self.harmony.transform(rows, sites=sites))
        centre = closest_labels(Z, self.codebook.cluster_centers_)
        adata.obsm["X_pca"], adata.obsm["X_pca_harmony"] = scores, Z
        if self.map is not None:
            adata.obsm[f"X_{self.map_name}"] = np.asarray(self.map.transform(Z))
        # Every site has all categories, so that they have the same colours everywhere.
        adata.obs["leiden"] = categories(self.clusters.of_centre[centre].astype(str), self.cluster_names)
        if self.labels is not None:
            adata.obs["label"] = categories(self._labels_of_centres()[centre], (*self.labels.names, "unknown"))
        self._describe_genes(adata)
        make_writable(adata)
        return adata

    def marker_table(self, n: int = 10) -> dict[str, list[tuple[str, float, float]]]:
        """Return the first marker genes of each cluster: name, t and adjusted p-value."""
        found = self.markers
        return {
            str(c): [(self.genes[g], float(found.scores[c, g]), float(found.adjusted[c, g])) for g in found.top(c, n)]
            for c in range(self.n_clusters)
        }

    def summary(self) -> str:
        """Return the atlas in a few lines."""
        lines = [f"{self.moments.n} cells, {len(self.genes)} genes, {len(self.variable.chosen)} of them chosen"]
        lines.append(f"{self.n_clusters} clusters of {', '.join(map(str, self.markers.sizes.tolist()))} cells")
        if self.mixing is not None:
            before, after = (one.ratio for one in self.mixing)
            lines.append(f"own site among neighbours, over chance: {before:.2f} before, {after:.2f} after correction")
        if self.labels is not None:
            lines.append(f"cells with the main label of their centre: {self.labels.purity:.3f}")
        return "\n".join(lines)

    def _coded(self, fed: Federation, batches: Sequence[str] | None = None) -> Federation:
        if self.batch is None:
            return self.scores(fed)
        names = np.array(self.batch_names if batches is None else batches, dtype=str)
        return fed.apply(cell_scores, columns=self.genes, **self._shown(), batch=self.batch, names=names)

    def _shown(self) -> dict[str, Any]:
        chosen = self.variable.chosen
        mean = self.moments.log_mean[chosen]
        return {"target": self.target_sum, "genes": chosen, "mean": mean, "components": self.axes.components}

    def _labels_of_centres(self) -> NDArray[np.str_]:
        """Return the main label of each centre; of a centre without labels, that of its cluster."""
        found, in_clusters = self.labels, self.labels_of_clusters
        assert found is not None
        assert in_clusters is not None
        table, names = found.table, np.array([*found.names, "unknown"], dtype=str)
        used = np.where(table.sum(axis=1, keepdims=True) > 0, table, in_clusters.table[self.clusters.of_centre])
        return names[np.where(used.sum(axis=1) > 0, used.argmax(axis=1), len(names) - 1)]

    def _describe_genes(self, adata: Any) -> None:
        """Write what is known of the genes: the atlas may know fewer than the cells have."""
        place = {str(name): number for number, name in enumerate(adata.var_names)}
        at = np.array([place[name] for name in self.genes], dtype=np.int64)
        chosen = np.zeros(len(self.genes), dtype=np.bool_)
        chosen[self.variable.chosen] = True
        normalised = np.where(np.isfinite(self.variable.normalised), self.variable.normalised, np.nan)
        columns = {"means": self.variable.means, "dispersions": self.variable.dispersions}
        for name, values in {**columns, "dispersions_norm": normalised}.items():
            whole = np.full(adata.n_vars, np.nan)
            whole[at] = values
            adata.var[name] = whole
        flags = np.zeros(adata.n_vars, dtype=np.bool_)
        flags[at] = chosen
        adata.var["highly_variable"] = flags
        loadings = np.zeros((adata.n_vars, len(self.axes.components)))
        loadings[at[self.variable.chosen]] = self.axes.components.T
        adata.varm["PCs"] = loadings
        ratio = self.axes.variances / max(self.axes.total_variance, 1e-300)
        known = {"zero_center": True, "use_highly_variable": True, "mask_var": "highly_variable"}
        adata.uns["pca"] = {"params": known, "variance": self.axes.variances, "variance_ratio": ratio}
        adata.uns["hvg"] = {"flavor": "seurat"}
        adata.uns["leiden"] = {"params": {"resolution": self.resolution}}
        adata.uns["rank_genes_groups"] = self._ranked()

    def _ranked(self) -> dict[str, Any]:
        """Return all genes, ranked in each cluster, as scanpy stores them: a field for each cluster."""
        clusters, found = self.cluster_names, self.markers
        order = [found.top(c, len(self.genes)) for c in range(self.n_clusters)]
        names = np.array(self.genes, dtype=object)
        params = {"groupby": "leiden", "reference": "rest", "method": "t-test"}
        ranked: dict[str, Any] = {
            "params": {**params, "use_raw": False, "layer": None, "corr_method": "benjamini-hochberg"},
            "names": np.rec.fromarrays([names[genes] for genes in order], dtype=[(c, "O") for c in clusters]),
        }
        tables = {"scores": found.scores, "pvals": found.pvalues, "pvals_adj": found.adjusted}
        for key, table in {**tables, "logfoldchanges": found.fold_changes}.items():
            parts = [table[c, genes] for c, genes in enumerate(order)]
            ranked[key] = np.rec.fromarrays(parts, dtype=[(c, "f8") for c in clusters])
        return ranked


#: What a saved atlas holds, beside arrays and estimators.
SAVED = (Atlas, CellClusters, CellComponents, ClusterAgreement, GeneMoments, MarkerGenes, SiteMixing, VariableGenes)
