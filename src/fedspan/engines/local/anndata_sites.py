"""Federations of cells: AnnData objects and ``.h5ad`` files as the data of sites."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedspan.datasets.sources.cell_table import CellTable
from fedspan.engines.local.embedded import LocalFederation
from fedspan.errors import InputError
from fedspan.federation import Site
from fedspan.federation.site_labels import site_rows


def federate_anndata(
    data: Any, *, sites: str | None = None, labels: str | None = None, layer: str | None = None, **kwargs: Any
) -> LocalFederation:
    """Make an embedded federation of cells; their counts stay sparse, and those of files are read block by block.

    Parameters
    ----------
    data : AnnData, path of an ``.h5ad`` file, or mapping of such
        One table, or that of each site by the site's name. Sites with different genes keep those that all have.
    sites : str, optional
        Of one table: the column of ``obs`` that names each cell's site.
    labels : str, optional
        A column of ``obs`` with labels of cells, such as types, which becomes ``y`` of the sites that have it.
    layer : str, optional
        The layer that holds raw counts. Default: ``X``.
    **kwargs
        For `fedspan.LocalFederation`.

    Examples
    --------
    >>> import anndata, numpy as np, pandas as pd
    >>> obs = pd.DataFrame({"lab": ["a", "b", "b"]}, index=["1", "2", "3"])
    >>> federate_anndata(anndata.AnnData(np.eye(3), obs=obs), sites="lab").sites
    ('a', 'b')
    """
    if isinstance(data, Mapping):
        if sites is not None:
            raise InputError("sites=... goes with one table: in a dict of tables the keys name the sites")
        tables = {str(name): CellTable(one, layer=layer) for name, one in data.items()}
        tables = _same_genes(tables, layer)
    else:
        whole = CellTable(data, layer=layer)
        if sites is None:
            raise InputError("sites=... must name the column of obs that holds the site of each cell")
        tables = {name: whole.chosen(rows) for name, rows in site_rows(whole.obs(sites), len(whole)).items()}
    return LocalFederation([Site(name, table, _labels(table, labels)) for name, table in tables.items()], **kwargs)


def _same_genes(tables: dict[str, CellTable], layer: str | None) -> dict[str, CellTable]:
    """Return tables of the genes that all have, in the order of the first."""
    if len({tuple(table.columns) for table in tables.values()}) <= 1:
        return tables
    shared = set.intersection(*(set(table.columns) for table in tables.values()))
    first = next(iter(tables.values()))
    genes = [name for name in first.columns if name in shared]
    if not genes:
        raise InputError("no gene is in all tables: compare var_names of the sites")
    return {name: CellTable(table.data, layer=layer, genes=genes) for name, table in tables.items()}


def _labels(table: CellTable, labels: str | None) -> Any:
    if labels is None or labels not in table.data.obs.columns:
        return None
    return table.obs(labels)
