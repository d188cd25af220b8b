"""Noise on what the sites send in FedDL (Section 5.2 of the paper), from each site's own secret.

One row x adds ``k(x, y_j) (x - y_j)`` to each row of ``A_p``. As ``r exp(-gamma r^2) <= (2 e gamma)^-1/2``, replacing x
moves ``A_p`` by at most ``2 sqrt(n_y) (2 e gamma)^-1/2``, and the site's mean gradient ``-4 gamma / (n_p n_y) A_p`` by

    Delta = 8 gamma / (n_p sqrt(n_y)) (2 e gamma)^-1/2,

whatever the rows: nothing is clipped, and the noise is fixed before anybody looks at a gradient. All else that a site
does, such as further steps of its own, it does with the noisy sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.federation import Site, step
from fedspan.landmarks.feddl import local_pull
from fedspan.landmarks.parts.kernel_pull import rows_pull
from fedspan.landmarks.parts.landmark_descent import descended, kept_within, mean_gradient, own_pull
from fedspan.linalg.kernels.gaussian_kernel import squared_norms
from fedspan.privacy.noise import normal

Array = NDArray[Any]
Matrix = NDArray[np.float64]

#: In units of the rows' spread: landmarks are kept within the first, rows beyond the second count for nothing. They
#: would not be felt anyway, and where numbers are larger rounding could move a sum by more than the sensitivity.
LANDMARKS_WITHIN = 8.0
ROWS_WITHIN = 32.0
#: The same of gamma, in units of one over the squared spread.
LARGEST_GAMMA = 1e4


def pull_sensitivity(n_landmarks: int, gamma: float) -> float:
    """Return by how much ``A_p`` can move (Frobenius norm) when a row is replaced, with room for rounding.

    The sum is computed in double precision, whatever that of the messages: a squared distance of rows and landmarks
    that are within their bounds is off by at most ``4e-13 m``, and the kernel by that times gamma. The room is enough
    for 25,000 columns were all errors of one sign, and in single precision there is none for a sharp kernel.

    Examples
    --------
    >>> round(pull_sensitivity(500, 0.5), 3)  # 2 sqrt(500 / e)
    27.125
    """
    room = 1 + 1e-6 + 1e-8 * gamma
    return float(room * 2 * np.sqrt(n_landmarks / (2 * np.e * gamma)))


def gradient_sensitivity(n_rows: int, n_landmarks: int, gamma: float) -> float:
    """Return Delta: by how much a site's mean gradient can move when one of its rows is replaced."""
    return 4 * gamma / (n_rows * n_landmarks) * pull_sensitivity(n_landmarks, gamma)


@step("landmarks.noisy_pull", reveals="sums", counts=["n"])
def local_noisy_pull(site: Site, Y: Array, gamma: float, multiplier: float, device: str = "") -> dict[str, Any]:
    """Leaves the site: ``A_p`` (n_y, m) plus noise of `multiplier` times its sensitivity, and its number of rows.

    Charged to the site's ledger.
    """
    check_question(Y, gamma)
    key = site.charged(mu2=multiplier**-2)
    return {"pull": _noisy(site, Y, gamma, multiplier, key, device).astype(Y.dtype, copy=False), "n": len(site)}


@step("landmarks.noisy_descent", reveals="sums", counts=["n"])
def local_noisy_descent(
    site: Site, Y: Array, gamma: float, size: float, steps: int, upload: str, multiplier: float, device: str = ""
) -> dict[str, Any]:
    """Leaves the site: n_p times its landmarks, or its mean gradient, after some steps by noisy ``A_p``; n_p.

    Each of the steps is charged to the site's ledger.
    """
    check_question(Y, gamma)
    key = site.charged(mu2=steps * multiplier**-2)

    def pull_at(number: int, moved: Array) -> Array:
        inside = kept_within(moved.astype(np.float64), LANDMARKS_WITHIN).astype(Y.dtype)
        return _noisy(site, inside, gamma, multiplier, key + number.to_bytes(4, "little"), device)

    return {upload: descended(pull_at, Y, len(site), gamma, size, steps, upload), "n": len(site)}


@step("landmarks.paper_pull", reveals="sums", counts=["n"])
def local_paper_pull(site: Site, Y: Array, gamma: float, beta: float, device: str = "") -> dict[str, Any]:
    """Leaves the site: ``A_p`` (n_y, m) plus noise of `beta` times the gradient's deviation, kernel sum, rows."""
    found = local_pull(site, Y, gamma, device)
    noisy = _paper_noisy(site, found["pull"], Y, gamma, beta, site.charged(mu2=np.inf))
    return {**found, "pull": noisy.astype(Y.dtype, copy=False)}


@step("landmarks.paper_descent", reveals="sums", counts=["n"])
def local_paper_descent(
    site: Site, Y: Array, gamma: float, size: float, steps: int, upload: str, beta: float, device: str = ""
) -> dict[str, Any]:
    """Leaves the site: n_p times its landmarks, or its mean gradient, after noisy steps; its kernel sum; n_p."""
    key = site.charged(mu2=np.inf)
    kernels = []

    def pull_at(number: int, moved: Array) -> Array:
        found = local_pull(site, moved, gamma, device)
        kernels.append(found["kernel"])
        return _paper_noisy(site, found["pull"], moved, gamma, beta, key + number.to_bytes(4, "little"))

    sent = descended(pull_at, Y, len(site), gamma, size, steps, upload)
    return {upload: sent, "kernel": kernels[0], "n": len(site)}


@step("landmarks.paper_cost", reveals="sums")
def local_paper_cost(site: Site) -> dict[str, Any]:
    """Leaves the site: what its noise is worth, the sum of (sensitivity / deviation)^2: no guarantee, as it is told."""
    return {"mu2": min(float(site.state.get("paper mu2", 0.0)), 1e300)}


@step("landmarks.rows", reveals="nothing")
def local_rows(site: Site) -> dict[str, Any]:
    """Leaves the site: its number of rows, which is public where one row is replaced by another."""
    return {"n": len(site)}


@step("landmarks.ledger", reveals="nothing")
def local_ledger(site: Site, mu2: float) -> dict[str, Any]:
    """Leaves the site: whether its noise is simulated, if its budget lasts for a cost of `mu2`, if it is strict."""
    ledger = site.ledger
    return {
        "simulated": ledger is None or ledger.simulated,
        "lasts": ledger is None or ledger.lasts(mu2=mu2),
        "strict": ledger is not None and bool(getattr(ledger, "strict", False)),
    }


def check_question(Y: Array, gamma: float) -> None:
    """Refuse landmarks and a gamma at which rounding could say more of a row than the noise covers."""
    if Y.dtype not in (np.float32, np.float64) or Y.ndim != 2 or not 0 < gamma <= LARGEST_GAMMA:
        raise InputError(
            f"landmarks must be a matrix of real numbers, and gamma={gamma!r} above 0 and at most {LARGEST_GAMMA:g}"
        )
    if not squared_norms(np.clip(Y, -1e9, 1e9, dtype=np.float64)).max() <= (1.01 * LANDMARKS_WITHIN) ** 2:
        raise InputError(
            f"landmarks beyond {LANDMARKS_WITHIN:g} times the rows' spread are refused: rounding there could say more "
            "of a row than the noise covers"
        )


@np.errstate(over="ignore", invalid="ignore")  # of rows that are left out for it
def bounded_pull(site: Site, Y: Array, gamma: float, device: str = "") -> Matrix:
    """Return ``A_p`` of the rows that are not far out, in double precision; rows that are no numbers do not count."""
    here = "" if device.startswith("mps") else device  # which has no double precision
    return rows_pull(site, Y.astype(np.float64), gamma, here, ROWS_WITHIN)[0]


def _noisy(site: Site, Y: Array, gamma: float, multiplier: float, key: bytes, device: str) -> Matrix:
    sigma = multiplier * pull_sensitivity(len(Y), gamma)
    return np.asarray(bounded_pull(site, Y, gamma, device) + sigma * normal(key, Y.shape))


def _paper_noisy(site: Site, pull: Array, Y: Array, gamma: float, beta: float, key: bytes) -> Matrix:
    """Return a sum with the paper's noise, and keep account of what it is worth."""
    n, n_y = max(1, len(site)), len(Y)
    gradient = mean_gradient(pull, n, own_pull(np.asarray(Y, dtype=np.float64), gamma)[0], gamma)
    deviation = beta * float(gradient.std())
    worth = gradient_sensitivity(n, n_y, gamma) / max(deviation, 1e-150)
    site.state["paper mu2"] = float(site.state.get("paper mu2", 0.0)) + worth**2
    return np.asarray(pull + deviation * n * n_y / (4 * gamma) * normal(key, Y.shape))
