"""The pull of rows at landmarks, and steps down the gradient of MMD^2: what sites compute in FedDL.

All variants share this arithmetic. A site computes on its processor or on its graphics card.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Annotated, Any, TypedDict, Unpack

import numpy as np

from fedspan.arrays import Array
from fedspan.errors import InputError
from fedspan.federation import Site, step, transform
from fedspan.federation.site.parameters import Matrix, OneOf, Passes, Positive, Text, Vector
from fedspan.linalg.array_backend import device_here, namespace, to_device
from fedspan.linalg.kernels.gaussian_kernel import kernel_pull, squared_norms
from fedspan.linalg.kernels.tensor_cores import on_tensor_cores, rounded_in_place
from fedspan.sums.plausible_totals import ABSURD
from fedspan.sums.row_blocks import n_columns

Device = Annotated[str, Text(20)]
Precision = Annotated[str, OneOf(("single", "double"))]

#: Sites keep rows that were prepared for the products up to this size; they prepare larger ones in every round.
_KEPT_BYTES = 2**30
_BATCH_ROWS = 8192
#: The same on a card, for the rows themselves and for those prepared; and the rows of a block there.
CARD_BYTES = 2**34
_CARD_ROWS = 65536


class DescentForm(TypedDict):
    """What all steps down the gradient take: the length and the number of steps, and what the site sends."""

    size: Positive
    steps: Passes
    upload: Annotated[str, OneOf(("gradient", "landmarks"))]


@transform("landmarks.reduced", affine=True, elementwise=True)
def reduced(X: Array, centre: Vector, scale: Positive, precision: Precision) -> Array:
    """Return ``(X - centre) / scale``, in single or double precision."""
    D = np.asarray(X, dtype=np.float64) - centre
    D /= scale
    with np.errstate(over="ignore"):  # with public moments, rows may be beyond single precision
        return D.astype(np.float32 if precision == "single" else np.float64, copy=False)


@step("landmarks.view", reveals="nothing", counts=["n"])
def local_view(site: Site, mean: Vector, axes: Matrix | None, scale: Positive, precision: Precision) -> dict[str, Any]:
    """Leaves the site: its number of rows. It will see them as ``(x - mean) @ axes.T / scale`` in this run.

    Without axes it will see ``(x - mean) / scale``.
    """
    if len(mean) != n_columns(site):
        raise InputError(f"this site has {n_columns(site)} columns, and the view of this run has {len(mean)}")
    axes = np.zeros((0, len(mean)), dtype=np.float32) if axes is None else axes
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
    site: Site, Y: Matrix, gamma: Positive, device: Device = "", viewed: bool = False, **form: Unpack[DescentForm]
) -> dict[str, Any]:
    """Leaves the site: n_p times its landmarks after some steps, or its mean gradient on the way; kernel sum; n_p.

    The sum is that of its kernel values with the landmarks of the request; n_p is its number of rows.
    """
    return descent_reply(lambda _, moved: local_pull(site, moved, gamma, device, viewed), Y, gamma, **form)


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
    pull: Array | None = None
    total = 0.0
    # Of rows that are kept there is one block: its sum leaves the device as it is sent.
    single = Y.dtype == np.float32 and here is not None and within == np.inf
    for X, norms in rows_and_norms(site, here, None if within == np.inf else Y.dtype, viewed=viewed):
        near = None if within == np.inf else norms <= within**2
        if near is None or near.all():
            form = {"single": single and len(X) == len(site), "rounded": on_tensor_cores(X)}
            more, kernel = kernel_pull(X, landmarks, gamma, norms, **form)
        else:
            more, kernel = kernel_pull(X[near], landmarks, gamma)
        pull = more if pull is None else pull + more
        total += kernel
    return np.zeros(Y.shape) if pull is None else pull, total


def rows_and_norms(
    site: Site, device: str | None = None, kind: Any = None, *, viewed: bool = False
) -> Iterator[tuple[Any, Any]]:
    """Yield the site's rows, as numbers of `kind`, and their squared norms, all at once if the site keeps them.

    With `viewed` they are coordinates along the axes of `local_view`.
    """
    if viewed and "view" not in site.state:
        raise InputError(f"site {site.name!r} has not received the axes along which this run sees rows")
    if not viewed:
        yield from _rows_and_norms(site, device, kind)
        return
    columns = len(site.state["axes"]) or n_columns(site)
    # A device without double precision receives rows that numpy has prepared.
    double = None if device is not None and device.startswith("mps") else device
    viewer = _Viewer(site.state, double)

    def moved(X: Any) -> tuple[Any, Any]:
        return _with_norms(X if double == device else to_device(X, device))

    def all_rows() -> tuple[Any, Any]:
        return moved(viewer.concat([viewer(X) for X in raw_blocks(site, double)]))

    if 8 * len(site) * columns <= (_KEPT_BYTES if device is None else CARD_BYTES):
        yield site.last_of(f"viewed rows on {device}", site.state["view"], all_rows)
    else:
        for X in raw_blocks(site, double):
            yield moved(viewer(X))


def _rows_and_norms(site: Site, device: str | None, kind: Any) -> Iterator[tuple[Any, Any]]:
    """Yield rows and norms; those of a `kind` get noise, and no row may move another."""
    batches = site.batches if kind is None else site.batches_alone

    def moved(X: Array) -> tuple[Any, Any]:
        return _with_norms(to_device(X if kind is None else X.astype(kind, copy=False), device))

    if 8 * len(site) * n_columns(site) <= _KEPT_BYTES:
        yield site.cached(
            f"rows and norms on {device} as {kind}", lambda: moved(site.X if kind is None else site.X_alone)
        )
    else:
        for batch in batches(_BATCH_ROWS):
            yield moved(batch.X)


def _with_norms(X: Any) -> tuple[Any, Any]:
    """Return rows and their squared norms; those for tensor cores are rounded, in place: on a GPU they are a copy."""
    X = rounded_in_place(X) if on_tensor_cores(X) else X
    return X, squared_norms(X)


def raw_blocks(site: Site, device: str | None = None) -> Iterator[Any]:
    """Yield the site's own rows in blocks, on the device, where rows of up to `CARD_BYTES` stay for later calls."""
    if device is None:
        for batch in site.batches(_BATCH_ROWS):
            yield batch.X
    elif 8 * len(site) * n_columns(site) <= CARD_BYTES:
        X = site.cached(f"rows on {device}", lambda: to_device(site.X, device))
        for start in range(0, len(site), _CARD_ROWS):
            yield X[start : start + _CARD_ROWS]
    else:
        for batch in site.batches(_CARD_ROWS):
            yield to_device(batch.X, device)


class _Viewer:
    """Rows as a site's view shows them, on a device; products are in double precision."""

    def __init__(self, state: Any, device: str | None) -> None:
        self._single, self._scale = state["precision"] == "single", state["scale"]
        self._mean = to_device(np.asarray(state["mean"], dtype=np.float64), device)
        axes = np.asarray(state["axes"], dtype=np.float64)
        self._axes = to_device(axes, device) if len(axes) else None
        self._xp = namespace(self._mean)

    def __call__(self, X: Any) -> Any:
        xp = self._xp
        D = xp.asarray(X, dtype=xp.float64) - self._mean
        D = D if self._axes is None else D @ self._axes.T
        D /= self._scale
        with np.errstate(over="ignore"):
            return xp.asarray(D, dtype=xp.float32 if self._single else xp.float64)

    def concat(self, parts: list[Any]) -> Any:
        return self._xp.concat(parts)


def descent_reply(
    pull_at: Callable[[int, Array], dict[str, Any]], Y: Array, gamma: float, **form: Unpack[DescentForm]
) -> dict[str, Any]:
    """Return n times the landmarks after some steps at a site, or n times the mean gradient on the way, and n.

    ``pull_at(number, landmarks)`` returns ``A_p`` and n for each step; if it has a kernel sum, the first one is sent.
    """
    size, steps, upload = form["size"], form["steps"], form["upload"]
    moved = np.asarray(Y, dtype=np.float64)
    replies = []
    for number in range(steps):
        replies.append(pull_at(number, moved.astype(Y.dtype, copy=False)))
        own = own_pull(moved, gamma)[0]
        moved = moved - size * mean_gradient(replies[-1]["pull"], replies[-1]["n"], own, gamma)
    first = {name: value for name, value in replies[0].items() if name != "pull"}
    sent = moved if upload == "landmarks" else (Y - moved) / (steps * size)
    return {upload: (first["n"] * sent).astype(Y.dtype, copy=False), **first}


def own_pull(Y: Matrix, gamma: float, device: str | None = None) -> tuple[Matrix, float]:
    """Return the landmarks' pull at one another, and their mean kernel value."""
    there = to_device(Y, device)
    pull, total = kernel_pull(there, there, gamma)
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
