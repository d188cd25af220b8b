"""
An atlas of cells that never met
================================

Three laboratories count the genes of cells, each with instruments of its own. A map of all cells mostly shows the
laboratories. ``fedspan.atlas`` goes the whole way from raw counts to clusters, marker genes and a map in which cells of
one type lie together, wherever they were counted. No cell leaves its laboratory: the coordinator sees sums.

The counts are generated: negative binomial, with effects of laboratories on genes, four types of unequal size, one of
them missing in one laboratory. The third laboratory comes later, and has no labels. Needs ``pip install ".[atlas]"``.
"""

from __future__ import annotations

import anndata
import numpy as np
import pandas as pd
import scipy.sparse

import fedspan as fs

try:
    import matplotlib.pyplot as plt
except ImportError:  # the numbers need no pictures
    plt = None

TYPES = ("T cell", "B cell", "monocyte", "NK cell")


# %%
# Data: counts of 240 genes in 900 cells, sparse, one table for each laboratory.


def laboratories(seed: int = 0) -> dict[str, anndata.AnnData]:
    """Return the cells of each laboratory, with their types in ``obs``."""
    rng = np.random.default_rng(seed)
    base, tables = rng.gamma(0.4, 1.0, 240), {}
    of_type = np.exp(rng.normal(0.0, 1.2, (4, 240)) * (rng.random((4, 240)) < 0.25))
    for number, name in enumerate(("north", "south", "west")):
        shares = np.array([4.0, 3.0, 2.0, 1.0 if number else 0.0])  # no NK cells in the north
        kind = rng.choice(4, 300, p=shares / shares.sum())
        mean = base * of_type[kind] * np.exp(rng.normal(0.0, 0.5, 240)) * rng.lognormal(0.0, 0.35, 300)[:, None]
        counts = rng.poisson(mean * rng.gamma(2.0, 0.5, mean.shape)).astype(np.float32)
        obs = pd.DataFrame({"type": np.array(TYPES)[kind]}, index=[f"{name} {i}" for i in range(300)])
        var = pd.DataFrame(index=[f"gene {i}" for i in range(240)])
        tables[name] = anndata.AnnData(scipy.sparse.csr_matrix(counts), obs=obs, var=var)
    return tables


# %%
# The atlas of two laboratories; then the third, which gets clusters, labels and places from what the others know.


def main() -> None:
    tables = laboratories()
    first = {name: tables[name] for name in ("north", "south")}
    settings = {"sums_settings": {"rounds": 150, "exaggeration_rounds": 40}}
    atlas = fs.atlas(
        fs.federate_anndata(first, labels="type"),
        n_top_genes=150,
        n_components=10,
        labels=True,
        map_settings=settings,
        random_state=0,
    )
    print(atlas.summary())
    for cluster, genes in atlas.marker_table(3).items():
        print(f"cluster {cluster}: {', '.join(name for name, _, _ in genes)}")

    atlas.adapt(fs.federate_anndata({"west": tables["west"]}))
    for name, table in tables.items():
        atlas.annotate(table, site=name)
        right = (table.obs["label"].astype(str) == table.obs["type"].astype(str)).mean()
        print(f"{name}: {100 * right:.0f} % of the cells have the label of their type")
    if plt is not None:
        draw(tables)


# %%
# Before and after: the first two components without correction, and the map, by laboratory and by type.


def draw(tables: dict[str, anndata.AnnData]) -> None:
    _, axes = plt.subplots(2, 2, figsize=(9, 8), layout="constrained")
    for row, key in zip(axes, ("X_pca", "X_tsne"), strict=True):
        for ax, colour in zip(row, ("laboratory", "type"), strict=True):
            ax.set_title(f"{'before' if key == 'X_pca' else 'after'}, by {colour}")
            ax.set_xticks([])
            ax.set_yticks([])
            places = np.concatenate([table.obsm[key][:, :2] for table in tables.values()])
            lab = np.repeat(list(tables), [len(table) for table in tables.values()])
            kind = np.concatenate([table.obs["type"].astype(str).to_numpy() for table in tables.values()])
            for name in sorted(set(lab if colour == "laboratory" else kind)):
                mine = (lab if colour == "laboratory" else kind) == name
                ax.scatter(*places[mine].T, s=3, label=name)
            ax.legend(markerscale=3, fontsize="small")
    plt.show()


if __name__ == "__main__":
    main()
