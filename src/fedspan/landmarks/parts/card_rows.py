"""What sites compute of their own rows on a graphics card: moments, scatter matrix, distances to landmarks.

Rows go to the card once, and stay there for the run (`raw_blocks`). A site without the device computes the same with
numpy. All of it is in double precision, of which few rows at a time are there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedspan.arrays import Array
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Count, Index, Matrix, Positive, Vector
from fedspan.landmarks.parts.kernel_pull import Device, Precision, raw_blocks
from fedspan.linalg.array_backend import device_here, namespace, to_device, to_numpy
from fedspan.linalg.kernels.gaussian_kernel import squared_distances
from fedspan.sums.moments import Moments, refuse_bad_values
from fedspan.sums.plausible_totals import CountedRows
from fedspan.sums.row_blocks import n_columns
from fedspan.sums.row_moments import packed, unpacked


def double_device(device: str | None) -> str | None:
    """Return a device of this machine that has double precision, or None for numpy."""
    return None if device is None or device.startswith("mps") else device_here(device)


@step("landmarks.card_moments", reveals="sums", moments=True, counts=["n"])
def local_card_moments(site: Site, centre: Vector | None, scatter: bool, device: Device) -> dict[str, Any]:
    """Leaves the site: n, sums and squares of its columns about `centre`, values not finite; a Gram matrix.

    Without a centre they are about 0. The matrix is the upper triangle of that about `centre`, sent for `scatter`.
    """
    d = n_columns(site)
    centre = np.zeros(d) if centre is None else centre
    if len(centre) != d:
        raise InputError(f"this site has {d} columns, and the centre has {len(centre)}")
    here = double_device(device)
    about = to_device(centre, here)
    xp = namespace(about)
    total, squares = xp.zeros_like(about), xp.zeros_like(about)
    bad = xp.zeros(d, dtype=xp.int64, device=about.device)
    gram = xp.zeros((d, d) if scatter else (0, 0), dtype=xp.float64, device=about.device)
    for X in raw_blocks(site, here):
        D = xp.asarray(X, dtype=xp.float64) - about
        finite = xp.isfinite(D)
        if not bool(xp.all(finite)):
            bad += xp.sum(xp.asarray(~finite, dtype=xp.int64), axis=0)
            D = xp.where(finite, D, xp.zeros_like(D))
        total += xp.sum(D, axis=0)
        squares += xp.sum(D * D, axis=0)
        if scatter:
            gram += D.T @ D
    sent = {"n": len(site), "sum": to_numpy(total), "squares": to_numpy(squares), "bad": to_numpy(bad)}
    return {**sent, "gram": packed(to_numpy(gram))} if scatter else sent


def card_moments(
    federation: Federation, device: str, names: tuple[str, ...] | None, scatter: Callable[[int], bool]
) -> tuple[Moments, Array | None]:
    """Return the moments of all rows and, if `scatter` of the number of columns, their scatter matrix: two calls."""
    first = federation.sum(local_card_moments, centre=None, scatter=False, device=device)
    if first["bad"].any():
        refuse_bad_values(federation, names)
    rows = CountedRows()
    rows.compare(first)
    if first["n"] == 0:
        raise InputError("the sites have no rows: there is nothing to learn from")
    centre = first["sum"] / first["n"]
    wanted = scatter(len(centre))
    about = federation.sum(local_card_moments, centre=centre, scatter=wanted, device=device)
    rows.compare(about)
    n = about["n"]
    if n == 0:
        raise InputError("the sites that answered have no rows: there is nothing to learn from")
    shift = about["sum"] / n
    found = Moments(n, centre + shift, np.maximum(about["squares"] / n - shift**2, 0.0), tuple(about.sites))
    return found, unpacked(about["gram"]) - n * np.outer(shift, shift) if wanted else None


@step("landmarks.card_distances", reveals="rows", ragged=["distances"], counts=["n"])
def local_card_distances(
    site: Site,
    start: Index,
    rows: Count,
    precision: Precision,
    unit: Positive,
    landmarks: Matrix,
    centre: Vector,
    scale: Positive,
    device: Device,
    axes: Matrix | None = None,
) -> dict[str, Any]:
    """Leaves the site: its number of rows, the distances of some of them to all landmarks (rows, n_y), their unit."""
    here = double_device(device)
    kind = np.float32 if precision == "single" else np.float64
    found, begin = [np.zeros((0, len(landmarks)), dtype=kind)], 0
    measure = CardDistances(landmarks, centre, scale, axes, here)
    for X in raw_blocks(site, here):
        part = X[max(0, start - begin) : max(0, start + rows - begin)]
        begin += len(X)
        if len(part):
            far = measure(part) * (scale / unit)
            xp = namespace(far)
            found.append(to_numpy(xp.asarray(far, dtype=xp.float32 if precision == "single" else xp.float64)))
    return {"distances": np.concatenate(found), "n": len(site), "unit": unit}


class CardDistances:
    """Distances of rows to landmarks in units of their scale, as `distances_to` has them, on a device."""

    def __init__(self, landmarks: Array, centre: Array, scale: float, axes: Array | None, device: str | None) -> None:
        about = np.asarray(landmarks, dtype=np.float64) - (centre if axes is None else 0.0)
        self._Y, self._centre = to_device(about / scale, device), to_device(centre, device)
        self._axes = None if axes is None else to_device(axes.T.astype(np.float64), device)
        self._scale = scale

    def __call__(self, X: Any) -> Any:
        """Return the distances (n, n_y) of rows, on their device."""
        xp = namespace(self._Y)
        D = (xp.asarray(X, dtype=xp.float64) - self._centre) / self._scale
        return xp.sqrt(seen_squares(D, self._Y, self._axes))


def seen_squares(D: Any, Y: Any, along: Any) -> Any:
    """Return squared distances (n, n_y) of rows D (n, m) to landmarks Y, which are coordinates `along` axes (m, k).

    The part of a row outside the axes is as far from every landmark: it adds the same to all of them.
    """
    if along is None:
        return squared_distances(D, Y)
    xp, inside = namespace(D), D @ along
    outside = xp.vecdot(D, D) - xp.vecdot(inside, inside)
    return squared_distances(inside, Y) + xp.maximum(outside, 0.0 * outside)[:, None]
