"""FedDL: landmarks that follow the distribution of rows which stay at their sites.

Algorithm 1 of "Federated t-SNE and UMAP for distributed data visualization" (Qiao, Ding and Fan, AAAI 2025). The
landmarks Y minimise the squared maximum mean discrepancy (MMD^2) between them and all rows X, for a Gaussian kernel:

    grad f(Y) = -4 gamma / (n n_y) sum_p A_p + 4 gamma / (n_y (n_y - 1)) sum_i k(y_i, y_j) (y_i - y_j)

with ``A_p = sum_i k(x_i, y_j) (x_i - y_j)`` over the rows of site p. Only the *sum* of the sites' terms is needed
(`fed.sum`), and with one local step the result is that of gradient descent on the pooled rows, however these are split.

What the paper leaves open is fixed so that nothing needs tuning: kernel width and start come from the mean and
variance of the columns, the step is a multiple of 1 / L with ``L = 4 gamma kbar / n_y``, and heavy-ball momentum saves
most of the rounds. No landmark goes further in a round than a quarter of the kernel's width: L is that of a landmark
with the mean kernel value, and one that more rows pull at would be carried off to where none pulls it back.
Sites compute with ``(x - mean) / s``, s^2 being the sum of the variances: no offset or unit of the data costs digits.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.checks import frames_inside, one_of, real_number, whole_number
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, Total, step, transform
from fedspan.landmarks.parts.discrepancy import Discrepancy, whole
from fedspan.landmarks.parts.kernel_pull import rows_pull
from fedspan.landmarks.parts.landmark_descent import descended, kept_within, mean_gradient, own_pull, per_row
from fedspan.linalg.array_backend import check_device
from fedspan.sums.moments import Moments, moments
from fedspan.sums.plausible_totals import CountedRows

Array = NDArray[Any]
Matrix = NDArray[np.float64]

#: Part of the rows' variance that noise alone may add to landmarks over all rounds: a default step gets no larger.
_NOISY_PART = 0.1
#: How far a landmark may go in a step, in widths (deviations) of the kernel.
FARTHEST_STEP = 0.25
#: Kernel evaluations times columns of one round, above which ``precision="auto"`` is single.
SINGLE_ABOVE = 2**32


@dataclass(frozen=True)
class Landmarks:
    """Landmarks (n_y, m), the kernel's gamma, MMD^2 at the end (NaN where it was not followed), and how sites see rows.

    Rows are seen as ``(x - centre) / scale``, with `centre` (m,) the mean and `scale` the root of the summed variances.
    `n` is how many rows the `sites` said that they have together, 0 where that is not known.
    """

    points: Matrix
    gamma: float
    mmd2: float
    centre: Matrix
    scale: float
    precision: str
    n: int = 0
    sites: tuple[str, ...] = ()


@dataclass(frozen=True)
class Noise:
    """What noise changes: the steps, what these are told besides, and what is public (see `private_feddl`).

    `pull` and `descent` stand in for `local_pull` and `local_descent`; with `kernel` their replies have the sum of the
    kernel values. `moments` are public ones. Landmarks are kept `within` so many times the rows' spread. `deviation` is
    that of the noise on one site's ``A_p``, as far as it is known: the default step gets no larger than it allows.
    """

    pull: Callable[..., dict[str, Any]]
    descent: Callable[..., dict[str, Any]]
    payload: dict[str, Any] = field(default_factory=dict)
    kernel: bool = False
    moments: Callable[[Federation], Moments] | None = None
    within: float = np.inf
    deviation: Callable[[int, float], float] | None = None


@transform("landmarks.reduced")
def reduced(X: Array, centre: Matrix, scale: float, precision: str) -> Array:
    """Return ``(X - centre) / scale``, in single or double precision."""
    D = np.asarray(X, dtype=np.float64) - centre
    D /= scale
    with np.errstate(over="ignore"):  # where no moments were asked for, rows may be beyond single precision
        return D.astype(np.float32 if precision == "single" else np.float64, copy=False)


@step("landmarks.pull", reveals="sums", counts=["n"])
def local_pull(site: Site, Y: Array, gamma: float, device: str = "") -> dict[str, Any]:
    """Leaves the site: ``A_p`` (n_y, m), the sum of its kernel values with the landmarks, its number of rows."""
    pull, total = rows_pull(site, Y, gamma, device)
    return {"pull": pull.astype(Y.dtype, copy=False), "kernel": total, "n": len(site)}


@step("landmarks.descent", reveals="sums", counts=["n"])
def local_descent(
    site: Site, Y: Array, gamma: float, size: float, steps: int, upload: str, device: str = ""
) -> dict[str, Any]:
    """Leaves the site: n_p times its landmarks after some steps, or its mean gradient on the way; kernel sum; n_p.

    The sum is that of its kernel values with the landmarks it was given; n_p is its number of rows.
    """
    kernels = []

    def pull_at(number: int, moved: Array) -> Array:
        found = local_pull(site, moved, gamma, device)
        kernels.append(found["kernel"])
        return np.asarray(found["pull"])

    sent = descended(pull_at, Y, len(site), gamma, size, steps, upload)
    return {upload: sent, "kernel": kernels[0], "n": len(site)}


def feddl(
    fed: Federation,
    *,
    n_landmarks: int,
    rounds: int = 50,
    gamma: float = 1.0,
    momentum: float | None = None,
    step_size: float | None = None,
    local_steps: int = 1,
    upload: str = "gradient",
    precision: str = "auto",
    n_frequencies: int | None = None,
    device: str | None = None,
    names: tuple[str, ...] | None = None,
    noise: Noise | None = None,
) -> Landmarks:
    """Return landmarks for all rows.

    Parameters
    ----------
    n_landmarks : int
        n_y, at least 2. Up and down per site and round: n_y m numbers.
    rounds : int, default=50
        S in the paper.
    gamma : float, default=1.0
        In units of one over the mean squared distance between rows, ``1 / (2 sum of variances)``.
    momentum : float, optional
        Of the heavy ball; 0 is the paper's plain gradient descent. Default: 0.9, and 0 with noise, which momentum
        would multiply.
    step_size : float, optional
        In units of 1 / L; below ``2 (1 + momentum)``, where it gets unstable. Default: 2, and 1 without momentum; with
        noise of a known size less, where otherwise noise alone would carry the landmarks away.
    local_steps : int, default=1
        Q in the paper: steps at a site between two messages. Above 1 sites whose rows differ pull the result apart.
    upload : {"gradient", "landmarks"}, default="gradient"
        What sites send. With more local steps the gradient is the mean of those on the way.
    precision : {"auto", "single", "double"}, default="auto"
        Of the products at sites and of the messages. ``"auto"``: double, and single where n n_y m is above 2^32.
        In double precision any split of the rows gives the same landmarks to 1e-10; in single to about 1e-5.
    n_frequencies : int, optional
        Random directions by which MMD^2 is estimated in each round, to about ``sqrt(2 / n_frequencies)`` of its value:
        one more message of 2 n_frequencies numbers per site. 0: not at all. Default: 1024, and 0 where the noise is to
        cover all that leaves the sites, which it does not cover.
    device : str, optional
        Where sites that have it compute the products, as torch names it (``"cuda"``); the others use numpy. Default:
        numpy everywhere. Results are the same to the precision of the products.
    names : tuple of str, optional
        Of the columns, for what is said about values that are not finite.
    noise : Noise, optional
        Of `private_feddl`.
    """
    check_settings(
        n_landmarks,
        rounds,
        gamma,
        momentum,
        step_size,
        local_steps,
        upload,
        precision,
        n_frequencies,
        device,
        noise is not None,
    )
    momentum = (0.9 if noise is None else 0.0) if momentum is None else momentum
    told = Noise(local_pull, local_descent, kernel=True) if noise is None else noise
    n_frequencies = (1024 if told.kernel else 0) if n_frequencies is None else n_frequencies
    found = moments(fed, names) if told.moments is None else told.moments(fed)
    scale = float(np.sqrt(found.variance.sum()))
    if not 0 < scale < np.inf:
        raise InputError(
            f"the rows' variances add up to {scale**2:g}, beside means of up to {np.abs(found.mean).max():.2g}: "
            "landmarks need rows that differ, by amounts whose squares can be held, and sites whose sums are true"
        )
    m = len(found.mean)
    if precision == "auto":
        precision = "single" if found.n * n_landmarks * m > SINGLE_ABOVE else "double"
    prepared = fed.apply(reduced, centre=found.mean, scale=scale, precision=precision)
    width = 0.5 * gamma  # of the reduced rows, whose mean squared distance is 2
    size = (2.0 if momentum else 1.0) if step_size is None else step_size
    quiet = np.inf  # the largest step, not in units of 1 / L
    if step_size is None and told.deviation is not None:
        sent = told.deviation(n_landmarks, width) * np.sqrt(len(fed.sites))
        noise_of_gradient = 4 * width / (max(1, found.n) * n_landmarks) * sent
        quiet = np.sqrt(_NOISY_PART / (max(1, rounds * local_steps) * m)) / noise_of_gradient
    Y = kept_within(_start(fed, found, scale, n_landmarks), told.within)
    rows = CountedRows(found.n, found.sites) if found.sites else CountedRows()
    discrepancy = Discrepancy(prepared, n_frequencies, m, width, rows)
    fed.log(precision=precision, gamma=width / scale**2)
    told_all = {"gamma": width, **told.payload, **({} if device is None else {"device": device})}
    # noise would be cut short by it, and has bounds of its own
    farthest = FARTHEST_STEP * local_steps / np.sqrt(2 * width) if noise is None else np.inf
    V = np.zeros_like(Y)
    lipschitz = 0.0
    absent: Counter[str] = Counter()
    for _ in fed.rounds(rounds):
        own, own_mean = own_pull(Y, width)
        message = Y.astype(np.float32 if precision == "single" else np.float64)
        if (local_steps == 1 and upload == "gradient") or (told.kernel and not lipschitz):
            # also in the first round of sites that take steps of their own: they must know how large these are
            total = whole(prepared.sum(told.pull, Y=message, **told_all), rows, told.kernel, pull=Y.shape)
            kernel_mean = _kernel_mean(total, told.kernel, own_mean, n_landmarks)
            lipschitz = _lipschitz(width, max(kernel_mean, own_mean), n_landmarks)
        if local_steps == 1 and upload == "gradient":
            move = -min(size / lipschitz, quiet) * mean_gradient(total["pull"], total["n"], own, width)
        else:
            if not told.kernel:
                lipschitz = _lipschitz(width, _kernel_mean(None, False, own_mean, n_landmarks), n_landmarks)
            stride = min(size / lipschitz, quiet)
            steps = {"size": stride, "steps": local_steps, "upload": upload}
            total = prepared.sum(told.descent, Y=message, **steps, **told_all)
            sent = per_row(whole(total, rows, told.kernel, **{upload: Y.shape})[upload], total["n"])
            move = sent - message if upload == "landmarks" else -local_steps * stride * sent
            kernel_mean = _kernel_mean(total, told.kernel, own_mean, n_landmarks)
            lipschitz = _lipschitz(width, max(kernel_mean, own_mean), n_landmarks)
        absent.update(list(total.failed))
        discrepancy.follow(total.sites)
        # MMD^2 less the part that Y has no influence on; and where it was followed, all of it
        fed.log(**({"objective": own_mean - 2 * kernel_mean} if told.kernel else {}), **discrepancy.of(Y))
        V = kept_within(momentum * V + move, farthest)
        Y = kept_within(Y + V, told.within)
        if not np.abs(Y).max() < 1e100:
            raise InputError("the landmarks run away: use a smaller step_size, momentum or gamma, or fewer local_steps")
    last = discrepancy.at_the_end(Y)
    fed.log(**last)
    _tell_absent(absent, rounds)
    return Landmarks(
        found.mean + scale * Y,
        width / scale**2,
        last.get("mmd2", float("nan")),
        found.mean,
        scale,
        precision,
        rows.n,
        rows.sites,
    )


def check_settings(
    n_landmarks: int,
    rounds: int,
    gamma: float,
    momentum: float | None,
    step_size: float | None,
    local_steps: int,
    upload: str,
    precision: str,
    n_frequencies: int | None,
    device: str | None = None,
    noise: bool = False,
) -> None:
    """Refuse settings that cannot work, before any site is asked."""
    whole_number("n_landmarks", n_landmarks, 2)
    whole_number("rounds", rounds, 0)
    real_number("gamma", gamma, above=0)
    momentum = (0.0 if noise else 0.9) if momentum is None else real_number("momentum", momentum, least=0, below=1)
    if step_size is not None:
        edge = 2 * (1 + momentum)
        real_number("step_size", step_size, above=0, below=edge, why=", twice 1 + momentum: above it is unstable")
    whole_number("local_steps", local_steps, 1)
    one_of("upload", upload, ("gradient", "landmarks"))
    one_of("precision", precision, ("auto", "single", "double"))
    if n_frequencies is not None:
        whole_number("n_frequencies", n_frequencies, 0)
    check_device(device)


def _tell_absent(absent: Counter[str], rounds: int) -> None:
    """Warn of sites that were missing in most rounds: landmarks follow the rows of the others."""
    gone = [f"{name} (missing in {count} of {rounds} rounds)" for name, count in absent.items() if 2 * count > rounds]
    if gone:
        warnings.warn(
            f"the landmarks hardly follow the rows of {', '.join(sorted(gone)[:10])}",
            stacklevel=frames_inside(),
        )


def _start(fed: Federation, found: Moments, scale: float, n_landmarks: int) -> Matrix:
    """Return normal draws with the columns' variances, in reduced coordinates."""
    draws = fed.rng.standard_normal((n_landmarks, len(found.mean)))
    return np.asarray(draws * (np.sqrt(found.variance) / scale))


def _kernel_mean(total: Total | None, told: bool, own_mean: float, n_landmarks: int) -> float:
    """Return the mean kernel value between rows and landmarks, or a bound where no site tells it.

    It is an inner product of two mean embeddings, of which the rows' has at most the norm 1.
    """
    if total is None or not told:
        return float(np.sqrt(own_mean))
    return float(per_row(total["kernel"], total["n"]) / n_landmarks)


def _lipschitz(gamma: float, kernel: float, n_landmarks: int) -> float:
    """Return L; where landmarks are so far from all rows that no kernel value is left, that of a tiny one."""
    return 4 * gamma * max(kernel, 1e-12) / n_landmarks
