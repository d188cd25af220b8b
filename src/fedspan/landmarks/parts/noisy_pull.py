"""Noise on what the sites send in FedDL (Section 5.2 of the paper), from each site's own secret.

One row x adds ``k(x, y_j) (x - y_j)`` to each row of ``A_p``. As ``r exp(-gamma r^2) <= (2 e gamma)^-1/2``, replacing x
moves ``A_p`` by at most ``2 sqrt(n_y) (2 e gamma)^-1/2``, and the site's mean gradient ``-4 gamma / (n_p n_y) A_p`` by

    Delta = 8 gamma / (n_p sqrt(n_y)) (2 e gamma)^-1/2,

for any rows: nothing is clipped, and the noise is fixed before a gradient is computed. All else that a site does, such
as further steps of its own, it does with the noisy sum.
"""

from __future__ import annotations

from typing import Annotated, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Array
from fedspan.errors import InputError
from fedspan.federation import Site, step
from fedspan.federation.site.parameters import Matrix, Positive, Real
from fedspan.landmarks.parts.kernel_pull import (
    DescentForm,
    Device,
    descent_reply,
    kept_within,
    local_pull,
    mean_gradient,
    own_pull,
    rows_pull,
)
from fedspan.linalg.kernels.gaussian_kernel import squared_norms
from fedspan.privacy.noise import normal, with_noise
from fedspan.privacy.noisy_sums import Multiplier

#: In units of the rows' spread: landmarks stay within the first, and rows beyond the second do not count. Their effect
#: would be negligible, and with larger numbers rounding could move a sum by more than the sensitivity.
LANDMARKS_WITHIN = 8.0
ROWS_WITHIN = 32.0
#: The largest gamma, in units of one over the squared spread, for the same reason.
LARGEST_GAMMA = 1e4
Gamma = Annotated[float, Real(above=0.0, most=LARGEST_GAMMA)]


def pull_sensitivity(n_landmarks: int, gamma: float) -> float:
    """Return the distance (Frobenius norm) by which one replaced row can move ``A_p``, with room for rounding.

    The sum is computed in double precision, whatever the precision of the messages. A squared distance of rows and
    landmarks within their bounds is off by at most ``4e-13 m``, and the kernel by that times gamma. The room is enough
    for 25,000 columns even if all errors had one sign. In single precision a sharp kernel would leave no room.

    Examples
    --------
    >>> round(pull_sensitivity(500, 0.5), 3)  # 2 sqrt(500 / e)
    27.125
    """
    room = 1 + 1e-6 + 1e-8 * gamma
    return float(room * 2 * np.sqrt(n_landmarks / (2 * np.e * gamma)))


def gradient_sensitivity(n_rows: int, n_landmarks: int, gamma: float) -> float:
    """Return Delta: the distance by which one replaced row can move a site's mean gradient."""
    return 4 * gamma / (n_rows * n_landmarks) * pull_sensitivity(n_landmarks, gamma)


@step("landmarks.noisy_pull", reveals="sums", counts=["n"], noisy=True)
def local_noisy_pull(
    site: Site, Y: Matrix, gamma: Gamma, multiplier: Multiplier, device: Device = ""
) -> dict[str, Any]:
    """Leaves the site: ``A_p`` (n_y, m) plus noise of `multiplier` times its sensitivity, and its number of rows.

    Charged to the site's ledger.
    """
    _check_landmarks(Y)
    key = site.charged(mu2=multiplier**-2)
    return {"pull": _noisy(site, Y, gamma, multiplier, key, device).astype(Y.dtype, copy=False), "n": len(site)}


@step("landmarks.noisy_descent", reveals="sums", counts=["n"], noisy=True)
def local_noisy_descent(
    site: Site, Y: Matrix, gamma: Gamma, multiplier: Multiplier, device: Device = "", **form: Unpack[DescentForm]
) -> dict[str, Any]:
    """Leaves the site: n_p times its landmarks, or its mean gradient, after some steps by noisy ``A_p``; n_p.

    Each of the steps is charged to the site's ledger.
    """
    _check_landmarks(Y)
    key = site.charged(mu2=form["steps"] * multiplier**-2)

    def pull_at(number: int, moved: Array) -> dict[str, Any]:
        inside = kept_within(moved.astype(np.float64), LANDMARKS_WITHIN).astype(Y.dtype)
        pull = _noisy(site, inside, gamma, multiplier, key + number.to_bytes(4, "little"), device)
        return {"pull": pull, "n": len(site)}

    return descent_reply(pull_at, Y, gamma, **form)


@step("landmarks.paper_pull", reveals="sums", counts=["n"])
def local_paper_pull(site: Site, Y: Matrix, gamma: Positive, beta: Positive, device: Device = "") -> dict[str, Any]:
    """Leaves the site: ``A_p`` (n_y, m) plus noise of `beta` times the gradient's deviation, kernel sum, rows."""
    found = _paper_noisy(site, Y, gamma, beta, site.charged(mu2=np.inf), device)
    return {**found, "pull": found["pull"].astype(Y.dtype, copy=False)}


@step("landmarks.paper_descent", reveals="sums", counts=["n"])
def local_paper_descent(
    site: Site, Y: Matrix, gamma: Positive, beta: Positive, device: Device = "", **form: Unpack[DescentForm]
) -> dict[str, Any]:
    """Leaves the site: n_p times its landmarks, or its mean gradient, after noisy steps; its kernel sum; n_p."""
    key = site.charged(mu2=np.inf)

    def pull_at(number: int, moved: Array) -> dict[str, Any]:
        return _paper_noisy(site, moved, gamma, beta, key + number.to_bytes(4, "little"), device)

    return descent_reply(pull_at, Y, gamma, **form)


@step("landmarks.paper_cost", reveals="sums")
def local_paper_cost(site: Site) -> dict[str, Any]:
    """Leaves the site: what its noise is worth, the sum of (sensitivity / deviation)^2: a report, no guarantee."""
    return {"mu2": min(float(site.state.get("paper mu2", 0.0)), 1e300)}


@step("landmarks.rows", reveals="nothing")
def local_rows(site: Site) -> dict[str, Any]:
    """Leaves the site: its number of rows, which is public where one row is replaced by another."""
    return {"n": len(site)}


@np.errstate(over="ignore", invalid="ignore")  # of rows that do not count for that reason
def bounded_pull(site: Site, Y: Array, gamma: float, device: str = "") -> NDArray[np.float64]:
    """Return ``A_p`` of the finite rows within bounds, in double precision."""
    here = "" if device.startswith("mps") else device  # which has no double precision
    return rows_pull(site, Y.astype(np.float64), gamma, here, ROWS_WITHIN)[0]


def _check_landmarks(Y: Array) -> None:
    """Refuse landmarks at which rounding could reveal more of a row than the noise covers."""
    if not squared_norms(np.clip(Y, -1e9, 1e9, dtype=np.float64)).max() <= (1.01 * LANDMARKS_WITHIN) ** 2:
        raise InputError(
            f"landmarks must be within {LANDMARKS_WITHIN:g} times the rows' spread: beyond it rounding could reveal "
            "more of a row than the noise covers"
        )


def _noisy(site: Site, Y: Array, gamma: float, multiplier: float, key: bytes, device: str) -> Array:
    sensitivity = pull_sensitivity(len(Y), gamma)
    return with_noise(bounded_pull(site, Y, gamma, device), key, sensitivity=sensitivity, multiplier=multiplier)


def _paper_noisy(site: Site, Y: Array, gamma: float, beta: float, key: bytes, device: str) -> dict[str, Any]:
    """Return a reply of `local_pull` with the paper's noise; the site keeps account of what the noise is worth."""
    found = local_pull(site, Y, gamma, device)
    n, n_y = max(1, len(site)), len(Y)
    gradient = mean_gradient(found["pull"], n, own_pull(np.asarray(Y, dtype=np.float64), gamma)[0], gamma)
    deviation = beta * float(gradient.std())
    worth = gradient_sensitivity(n, n_y, gamma) / max(deviation, 1e-150)
    site.state["paper mu2"] = float(site.state.get("paper mu2", 0.0)) + worth**2
    return {**found, "pull": found["pull"] + deviation * n * n_y / (4 * gamma) * normal(key, Y.shape)}
