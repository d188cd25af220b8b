"""How well sites mix, and how well groups stay together, measured by sums: no cell is pooled.

The pooled measures compare each row with its nearest rows. Here a k-means codebook stands for neighbourhoods: the rows
closest to a centre, about 30 of them. Within each, sums give the number of pairs of rows of one site or of one label.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Floats
from fedspan.checks import whole_number
from fedspan.clustering.federated_k_means import federated_k_means
from fedspan.clustering.parts.rows_by_centre import closest_labels, of_centres
from fedspan.errors import InputError, MessageError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Labels, Matrix
from fedspan.sums.plausible_totals import whole
from fedspan.wire import Message

#: The most neighbourhoods; the most labels of a site.
_MOST_CENTRES, _MOST_LABELS = 1000, 10_000


@dataclass(frozen=True)
class SiteMixing:
    """How sites mix.

    Attributes
    ----------
    ratio : float
        Share of a row's neighbours that are of its own site, over the share by chance: 1 where sites mix.
    lisi : float
        Effective number of sites in a neighbourhood, as the inverse Simpson index of LISI.
    expected_lisi : float
        The same of all rows: the largest that `lisi` reaches, apart from chance.
    centres : int
        Number of neighbourhoods.
    """

    ratio: float
    lisi: float
    expected_lisi: float
    centres: int


@dataclass(frozen=True)
class ClusterAgreement:
    """How clusters agree with the labels of rows: these are the pooled measures.

    `table` (k, L) has the number of rows of each cluster and label, of the labels `names`. `ari` is the adjusted Rand
    index, `nmi` the normalised mutual information, `purity` the share of rows with the main label of their cluster.
    """

    names: tuple[str, ...]
    table: NDArray[np.int64]
    ari: float
    nmi: float
    purity: float


@step("atlases.own_pairs", reveals="sums", fewest=of_centres, fewest_in_sums=False)
def local_own_pairs(site: Site, centres: Matrix) -> dict[str, Any]:
    """Leaves the site: its number of rows n closest to each centre, and of all; and for each n (n - 1)."""
    counts = np.bincount(closest_labels(site.X, centres), minlength=len(centres)).astype(np.int64)
    n = len(site)
    return {"counts": counts, "pairs": counts * (counts - 1), "n": n, "all_pairs": n * (n - 1)}


@step("atlases.label_names", reveals="rows", ragged=["names"])
def local_label_names(site: Site) -> dict[str, Any]:
    """Leaves the site: the different labels (``y``) of its rows, if it has any."""
    return {"names": np.unique(_labels(site))[:_MOST_LABELS]}


@step("atlases.label_counts", reveals="sums", fewest=of_centres, fewest_in_sums=False)
def local_label_counts(site: Site, centres: Matrix, names: Labels) -> dict[str, Any]:
    """Leaves the site: its number of rows with each label (``y``) closest to each centre, (k, L)."""
    if site.y is None:
        return {"counts": np.zeros((len(centres), len(names)), dtype=np.int64)}
    labels, found = _labels(site), closest_labels(site.X, centres)
    known = np.isin(labels, names)
    cells = found[known] * len(names) + np.searchsorted(names, labels[known])
    return {"counts": np.bincount(cells, minlength=len(centres) * len(names)).reshape(len(centres), len(names))}


def site_mixing(fed: Federation, *, neighbors: int = 30, centres: Floats | None = None) -> SiteMixing:
    """Measure how sites mix: for the rows of each site, as its transforms show them.

    Parameters
    ----------
    neighbors : int, default=30
        Rows of a neighbourhood, on average; of more than 30,000 rows the neighbourhoods are larger.
    centres : array (k, d), optional
        Centres of the neighbourhoods. Default: those of k-means.
    """
    whole_number("neighbors", neighbors, 2)
    if centres is None:
        centres = _codebook(fed, neighbors)
    k = len(centres)
    total = whole(fed.sum(local_own_pairs, centres=centres), counts=(k,), pairs=(k,), n=(), all_pairs=())
    counts, n = total["counts"].astype(np.float64), float(total["n"])
    several = counts > 1
    if not several.any():
        raise InputError("no neighbourhood has two rows: use fewer centres")
    share = total["pairs"][several] / (counts[several] * (counts[several] - 1.0))
    own = float(np.average(share, weights=counts[several]))
    chance = total["all_pairs"] / (n * (n - 1.0))
    return SiteMixing(own / chance, 1.0 / max(own, 1.0 / n), 1.0 / chance, k)


def cluster_agreement(fed: Federation, *, centres: Floats, names: NDArray[np.str_] | None = None) -> ClusterAgreement:
    """Compare the clusters of the closest of `centres` (k, d) with the labels of rows, which are the sites' ``y``.

    Sites report their different labels, which needs single replies, unless `names` lists them.
    """
    names = label_names(fed) if names is None else np.unique(np.asarray(names, dtype=str))
    shape = (len(centres), len(names))
    table = whole(fed.sum(local_label_counts, centres=centres, names=names), counts=shape)["counts"]
    return ClusterAgreement(tuple(names.tolist()), table, *agreement(table))


def label_names(fed: Federation) -> NDArray[np.str_]:
    """Return the different labels of the rows of all sites, sorted."""

    def check(reply: Message) -> Message:
        names = reply.get("names")
        if not isinstance(names, np.ndarray) or names.ndim != 1 or names.dtype.kind != "U":
            raise MessageError("names must be a list of texts")
        return reply

    replies = fed.accept(fed.ask(local_label_names), check)
    names = np.unique(np.concatenate([reply["names"] for reply in replies.ok.values()]))
    if not len(names):
        raise InputError("the rows of no site have labels: give them as y")
    return names


def agreement(table: NDArray[Any]) -> tuple[float, float, float]:
    """Return adjusted Rand index, normalised mutual information and purity of a table (k, L) of counts.

    Examples
    --------
    >>> agreement(np.array([[5, 0], [0, 5]]))
    (1.0, 1.0, 1.0)
    """
    T = np.asarray(table, dtype=np.float64)
    n = T.sum()
    if n < 2:
        raise InputError(f"{n:.0f} rows have a label, and two at least are needed")
    pairs = [float((x * (x - 1)).sum()) / 2 for x in (T, T.sum(axis=1), T.sum(axis=0))]
    expected = pairs[1] * pairs[2] / (n * (n - 1) / 2)
    most = (pairs[1] + pairs[2]) / 2
    ari = 1.0 if most == expected else (pairs[0] - expected) / (most - expected)
    P = T / n
    rows, columns = P.sum(axis=1), P.sum(axis=0)
    entropies = [-float((p[p > 0] * np.log(p[p > 0])).sum()) for p in (rows, columns)]
    there = P > 0
    mutual = float((P[there] * np.log(P[there] / np.outer(rows, columns)[there])).sum())
    mean = sum(entropies) / 2
    return float(ari), 1.0 if mean == 0 else max(0.0, mutual / mean), float(T.max(axis=1).sum() / n)


def _codebook(fed: Federation, neighbors: int) -> Floats:
    n = int(fed.sum(local_rows)["n"])
    k = min(max(1, n // neighbors), _MOST_CENTRES)
    return federated_k_means(fed, n_clusters=k, max_iter=10).best().centres


@step("atlases.rows", reveals="nothing")
def local_rows(site: Site) -> dict[str, Any]:
    """Leaves the site: its number of rows."""
    return {"n": len(site)}


def _labels(site: Site) -> NDArray[np.str_]:
    if site.y is None:
        return np.array([], dtype=str)
    return np.array([str(value) for value in np.asarray(site.y).tolist()], dtype=str)
