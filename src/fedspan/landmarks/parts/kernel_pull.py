"""The pull of rows at landmarks, and steps down the gradient of MMD^2: what sites compute in FedDL.

All variants share this arithmetic. A site computes on its processor or on its graphics card.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.federation import Site, step, transform
from fedspan.federation.site.parameters import Matrix, OneOf, Passes, Positive, Text, Vector
from fedspan.linalg.array_backend import device_here, to_device
from fedspan.linalg.kernels.gaussian_kernel import kernel_pull, squared_norms
from fedspan.sums.plausible_totals import ABSURD
from fedspan.sums.row_blocks import n_columns
from fedspan.sums.row_transforms import same_columns

Array = NDArray[Any]
Device = Annotated[str, Text(20)]
Precision = Annotated[str, OneOf(("single", "double"))]
Upload = Annotated[str, OneOf(("gradient", "landmarks"))]

#: Sites keep rows that were prepared for the products up to this size; they prepare larger ones in every round.
_KEPT_BYTES = 2**30
_BATCH_ROWS = 8192


@transform("landmarks.reduced", affine=True)
def reduced(X: Array, centre: Vector, scale: Positive, precision: Precision) -> Array:
    """Return ``(X - centre) / scale``, in single or double precision."""
    D = np.asarray(X, dtype=np.float64) - centre
    D /= scale
    with np.errstate(over="ignore"):  # with public moments, rows may be beyond single precision
        return D.astype(np.float32 if precision == "single" else np.float64, copy=False)


@step("landmarks.view", reveals="nothing", counts=["n"])
def local_view(site: Site, mean: Vector, axes: Matrix, scale: Positive, precision: Precision) -> dict[str, Any]:
    """Leaves the site: its number of rows. It will see them as ``(x - mean) @ axes.T / scale`` in this run."""
    same_columns(site.X, len(mean))
    site.state.update({"mean": mean, "axes": axes, "scale": scale, "precision": precision})
    site.state["view"] = blake2b(axes.tobytes() + mean.tobytes() + repr((scale, precision)).encode()).hexdigest()
    return {"n": len(site)}


@step("landmarks.pull", reveals="sums", counts=["n"])
def local_pull(site: Site, Y: Matrix, gamma: Positive, device: Device = "", viewed: bool = False) -> dict[str, Any]:
    """Leaves the site: ``A_p`` (n_y, m), the sum of its kernel values with the landmarks, its number of rows.

    `viewed` rows are seen along the axes that the site keeps (`local_view`).
    """
    pull, total = rows_pull(site, Y, gamma, device, viewed=viewed)
    return {"pull": pull.astype(Y.dtype, copy=False), "kernel": total, "n": len(site)}


@step("landmarks.descent", reveals="sums", counts=["n"])
def local_descent(
    site: Site,
    Y: Matrix,
    gamma: Positive,
    size: Positive,
    steps: Passes,
    upload: Upload,
    device: Device = "",
    viewed: bool = False,
) -> dict[str, Any]:
    """Leaves the site: n_p times its landmarks after some steps, or its mean gradient on the way; kernel sum; n_p.

    The sum is that of its kernel values with the landmarks of the request; n_p is its number of rows.
    """
    return descent_reply(lambda _, moved: local_pull(site, moved, gamma, device, viewed), Y, gamma, size, steps, upload)


def rows_pull(
    site: Site, Y: Array, gamma: float, device: str = "", within: float = np.inf, *, viewed: bool = False
) -> tuple[Matrix, float]:
    """Return ``sum_i k(x_i, y_j) (x_i - y_j)`` (n_y, m) over the site's rows, and the sum of their kernel values.

    Parameters
    ----------
    device : str
        As torch names it; a site without it uses numpy.
    within : float
        Rows of a larger norm, and rows that are not finite, do not count; the others have the precision of Y.
    """
    here = device_here(device or None)
    landmarks = to_device(Y, here)
    pull, total = np.zeros(Y.shape), 0.0
    for X, norms in rows_and_norms(site, here, None if within == np.inf else Y.dtype, viewed=viewed):
        near = norms <= within**2
        more, kernel = kernel_pull(X, landmarks, gamma, norms) if near.all() else kernel_pull(X[near], landmarks, gamma)
        pull += more
        total += kernel
    return pull, total


def rows_and_norms(
    site: Site, device: str | None = None, kind: Any = None, *, viewed: bool = False
) -> Iterator[tuple[Any, Any]]:
    """Yield the site's rows, as numbers of `kind`, and their squared norms, all at once if the site keeps them.

    With `viewed` they are coordinates along the axes of `local_view`.
    """
    if viewed and "view" not in site.state:
        raise InputError(f"site {site.name!r} has not received the axes along which this run sees rows")
    columns = len(site.state["axes"]) if viewed else n_columns(site)

    def moved(X: Array) -> tuple[Any, Any]:
        X = _along_axes(site, X) if viewed else X
        there = to_device(X if kind is None else X.astype(kind, copy=False), device)
        return there, squared_norms(there)

    def all_rows() -> tuple[Any, Any]:
        if not viewed:
            return moved(site.X)
        parts = [_along_axes(site, batch.X) for batch in site.batches(_BATCH_ROWS)]
        there = to_device(np.concatenate(parts), device)
        return there, squared_norms(there)

    if 8 * len(site) * columns <= _KEPT_BYTES:
        view = site.state["view"] if viewed else None
        yield site.last_of(f"rows and norms on {device} as {kind}", view, all_rows)
    else:
        for batch in site.batches(_BATCH_ROWS):
            yield moved(batch.X)


def _along_axes(site: Site, X: Array) -> Array:
    """Return rows as the site's view shows them."""
    axes, kind = site.state["axes"], np.float32 if site.state["precision"] == "single" else np.float64
    D = np.asarray(X, dtype=np.float64) - site.state["mean"]
    with np.errstate(over="ignore"):
        return np.asarray((D @ axes.astype(np.float64).T) / site.state["scale"]).astype(kind)


def descent_reply(
    pull_at: Callable[[int, Array], dict[str, Any]], Y: Array, gamma: float, size: float, steps: int, upload: str
) -> dict[str, Any]:
    """Return n times the landmarks after some steps at a site, or n times the mean gradient on the way, and n.

    ``pull_at(number, landmarks)`` returns ``A_p`` and n for each step; if it has a kernel sum, the first one is sent.
    """
    moved = np.asarray(Y, dtype=np.float64)
    replies = []
    for number in range(steps):
        replies.append(pull_at(number, moved.astype(Y.dtype, copy=False)))
        own = own_pull(moved, gamma)[0]
        moved = moved - size * mean_gradient(replies[-1]["pull"], replies[-1]["n"], own, gamma)
    first = {name: value for name, value in replies[0].items() if name != "pull"}
    sent = moved if upload == "landmarks" else (Y - moved) / (steps * size)
    return {upload: (first["n"] * sent).astype(Y.dtype, copy=False), **first}


def own_pull(Y: Matrix, gamma: float) -> tuple[Matrix, float]:
    """Return the landmarks' pull at one another, and their mean kernel value."""
    pull, total = kernel_pull(Y, Y, gamma)
    return pull, total / len(Y) ** 2


def mean_gradient(pull: Array, n: int, own: Matrix, gamma: float) -> Matrix:
    """Return ``grad f`` (n_y, m) from the pull of n rows and the landmarks' own."""
    n_y = len(own)
    gradient = 4 * gamma * (own / (n_y * (n_y - 1)) - per_row(pull, n) / n_y)
    return np.asarray(gradient)


def kept_within(Y: Matrix, radius: float) -> Matrix:
    """Return landmarks, or their velocities, with those longer than `radius` shortened to it.

    Beyond it no row would pull them back from where noise or momentum takes them.

    Examples
    --------
    >>> kept_within(np.array([[3.0, 4.0], [0.0, 1.0]]), 1.0)
    array([[0.6, 0.8],
           [0. , 1. ]])
    """
    if radius == np.inf:
        return Y
    Y = np.clip(Y, -ABSURD, ABSURD)  # no square overflows
    norms = np.linalg.norm(Y, axis=1, keepdims=True)
    return np.asarray(Y * np.minimum(1.0, radius / np.maximum(norms, np.finfo(float).tiny)))


def per_row(total: Any, n: int) -> Any:
    """Return a sum over n rows as a mean."""
    if n < 1:
        raise InputError("the sites that answered have no rows: there is nothing to learn from")
    return total / n
