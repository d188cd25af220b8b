"""Principal components of the logarithms of sparse counts, by orthogonal iteration: no dense table is made.

Rows are centred by ``(X - 1 m')'(X - 1 m') V = X'P - m 1'P`` with ``P = X V - 1 m'V``. Per round and site, each way: d
(k + p) numbers for d chosen genes, k components and p extra columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, qr

from fedspan.arrays import Floats
from fedspan.atlases.parts.batch_labels import codes_in, names_in, texts_of
from fedspan.atlases.parts.cell_rows import cells_of, kept_log_blocks, log_blocks
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step, transform
from fedspan.federation.site.parameters import Indices, Labels, Matrix, Positive, Text, Vector
from fedspan.linalg import with_fixed_signs
from fedspan.sums.plausible_totals import whole


@dataclass(frozen=True)
class CellComponents:
    """Components (k, d), their variances (k,), the variance of all d genes, and the number of cells."""

    components: Floats
    variances: Floats
    total_variance: float
    n: int


@step("atlases.log_product", reveals="sums")
def local_log_product(site: Site, target: Positive, genes: Indices, mean: Vector, V: Matrix) -> dict[str, Any]:
    """Leaves the site: ``X'X V`` (d, k + p) of its centred rows X, their sum of squares, the number of cells."""
    if len(mean) != len(genes) or V.shape[0] != len(genes):
        raise InputError(f"{len(genes)} genes, {len(mean)} means and a basis {V.shape} do not fit together")
    product, squares, offset = np.zeros(V.shape), 0.0, mean @ V
    for X in kept_log_blocks(site, target, genes):
        P = X @ V - offset
        product += X.T @ P
        product -= np.outer(mean, P.sum(axis=0))
        squares += float(X.data @ X.data) - 2.0 * float(np.asarray(X.sum(axis=0)).ravel() @ mean)
        squares += X.shape[0] * float(mean @ mean)
    return {"product": product, "trace": squares, "n": len(site)}


@transform("atlases.cell_scores", frames=True)
def cell_scores(
    X: Any,
    target: Positive,
    genes: Indices,
    mean: Vector,
    components: Matrix,
    batch: Annotated[str, Text(200)] = "",
    names: Labels | None = None,
) -> Floats:
    """Return the coordinates of cells along components; with `batch` also the number of each cell's batch in `names`.

    `batch` is a column of what is known of the cells.
    """
    if not hasattr(X, "blocks"):
        raise InputError("this transform takes tables of cells: make the federation with fedspan.federate_anndata")
    offset = mean @ components.T
    parts = [np.asarray(rows @ components.T) - offset for rows in log_blocks(X, target, genes)]
    scores = np.concatenate(parts) if parts else np.zeros((0, len(components)))
    if not batch or names is None:
        return scores
    return np.column_stack([scores, codes_in(texts_of(X.obs(batch)), names)])


@step("atlases.obs_names", reveals="rows", ragged=["names"])
def local_obs_names(site: Site, batch: Annotated[str, Text(200)]) -> dict[str, Any]:
    """Leaves the site: the different values of a column of what is known of its cells."""
    return {"names": np.unique(texts_of(cells_of(site).obs(batch)))}


def obs_names(run: Federation, *, batch: str) -> NDArray[np.str_]:
    """Return the different values of a column of what is known of the cells of all sites, sorted."""
    return names_in(run, run.ask(local_obs_names, batch=batch))


def cell_components(
    fed: Federation,
    *,
    genes: NDArray[np.int64],
    mean: Floats,
    rank: int,
    target: float = 1e4,
    oversampling: int = 20,
    max_rounds: int = 30,
    tol: float = 1e-5,
) -> CellComponents:
    """Return the `rank` leading components of the logarithms of `genes`, whose means are `mean`.

    Stops when the residual of the axes, ``||S V - V theta|| / theta_1``, is at most `tol`.
    """
    d = len(genes)
    if not 1 <= rank <= d:
        raise InputError(f"n_components={rank} must be between 1 and the number of chosen genes ({d})")
    V = qr(fed.rng.standard_normal((d, min(rank + oversampling, d))), mode="economic")[0]
    for _ in fed.rounds(max_rounds):
        total = fed.sum(local_log_product, target=target, genes=genes, mean=mean, V=V)
        W = whole(total, product=V.shape, trace=(), n=())["product"]
        inner = V.T @ W
        theta, Q = eigh((inner + inner.T) / 2)
        theta, Q = theta[::-1][:rank], Q[:, ::-1][:, :rank]
        axes = V @ Q
        residual = float(np.linalg.norm(W @ Q - axes * theta) / max(float(theta[0]), 1e-300))
        fed.log(residual=residual)
        if residual <= tol:
            fed.stop(f"converged: residual {residual:.1e} is at most {tol:g}", converged=True)
        V = qr(W, mode="economic")[0]
    n = int(total["n"])
    variances, every = np.maximum(theta, 0.0) / max(1, n - 1), float(total["trace"]) / max(1, n - 1)
    return CellComponents(with_fixed_signs(axes).T, variances, every, n)
