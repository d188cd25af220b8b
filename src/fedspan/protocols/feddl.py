"""FedDL: landmarks that follow the distribution of rows which stay at their sites.

Algorithm 1 of "Federated t-SNE and UMAP for distributed data visualization" (Qiao, Ding and Fan, AAAI 2025). The
landmarks Y minimise the squared maximum mean discrepancy (MMD^2) between them and all rows X, for a Gaussian kernel:

    grad f(Y) = -4 gamma / (n n_y) sum_p A_p + 4 gamma / (n_y (n_y - 1)) sum_i k(y_i, y_j) (y_i - y_j)

with ``A_p = sum_i k(x_i, y_j) (x_i - y_j)`` over the rows of site p. Only the *sum* of the sites' terms is needed
(`fed.sum`), and with one local step the result is that of gradient descent on the pooled rows, however these are split.

What the paper leaves open is fixed so that nothing needs tuning: kernel width and start come from the mean and
variance of the columns, the step is a multiple of 1 / L with ``L = 4 gamma kbar / n_y``, and heavy-ball momentum saves
most of the rounds. Sites compute with ``(x - mean) / s``, s^2 being the sum of the variances: no offset or unit of
the data costs digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.checks import one_of, real_number, whole_number
from fedspan.errors import InputError, MessageError
from fedspan.federation import Federation, Site, Total, lens, step
from fedspan.linalg.gaussian_kernel import characteristic, frequencies, kernel_pull, squared_norms
from fedspan.protocols.blocks import n_columns
from fedspan.protocols.moments import Moments, moments

Array = NDArray[Any]
Matrix = NDArray[np.float64]

#: Sites keep rows that were prepared for the products, up to this size; larger ones are prepared anew in every round.
_KEPT_BYTES = 2**30
_BATCH_ROWS = 8192
#: Kernel evaluations times columns of one round, above which ``precision="auto"`` is single.
SINGLE_ABOVE = 2**32


@dataclass(frozen=True)
class Landmarks:
    """Landmarks (n_y, m), the kernel's gamma, MMD^2 at the end (NaN where it was not followed), and how sites see rows.

    Rows are seen as ``(x - centre) / scale``, with `centre` (m,) the mean and `scale` the root of the summed variances.
    """

    points: Matrix
    gamma: float
    mmd2: float
    centre: Matrix
    scale: float
    precision: str


@lens
def reduced(X: Array, centre: Matrix, scale: float, precision: str) -> Array:
    """Return ``(X - centre) / scale``, in single or double precision."""
    D = np.asarray(X, dtype=np.float64) - centre
    D /= scale
    return D.astype(np.float32 if precision == "single" else np.float64, copy=False)


@step
def local_pull(site: Site, Y: Array, gamma: float) -> dict[str, Any]:
    """Leaves the site: ``A_p`` (n_y, m), the sum of its kernel values with the landmarks, its number of rows."""
    pull, total = np.zeros(Y.shape), 0.0
    for X, norms in _blocks(site):
        more, kernel = kernel_pull(X, Y, gamma, norms)
        pull += more
        total += kernel
    return {"pull": pull.astype(Y.dtype, copy=False), "kernel": total, "n": len(site)}


@step
def local_descent(site: Site, Y: Array, gamma: float, size: float, steps: int, upload: str) -> dict[str, Any]:
    """Leaves the site: n_p times its landmarks after some steps of its own, or n_p times its mean gradient on the way.

    Also the sum of its kernel values with the landmarks it was given, and its number of rows.
    """
    moved, kernel = np.asarray(Y, dtype=np.float64), 0.0
    for number in range(steps):
        found = local_pull(site, moved.astype(Y.dtype, copy=False), gamma)
        kernel = kernel if number else found["kernel"]
        gradient = _gradient(found["pull"], len(site), _own_pull(moved, gamma)[0], gamma)
        moved = moved - size * gradient
    sent = moved if upload == "landmarks" else (Y - moved) / (steps * size)
    return {upload: (len(site) * sent).astype(Y.dtype, copy=False), "kernel": kernel, "n": len(site)}


@step
def local_characteristic(site: Site, W: Array) -> dict[str, Any]:
    """Leaves the site: the sums of cos w'x and sin w'x over its rows, for a few random directions w; their number."""
    total = np.zeros((2, len(W)))
    for X, _ in _blocks(site):
        total += characteristic(X, W)
    return {"characteristic": total, "n": len(site)}


def feddl(
    fed: Federation,
    *,
    n_landmarks: int,
    rounds: int = 50,
    gamma: float = 1.0,
    momentum: float = 0.9,
    step_size: float | None = None,
    local_steps: int = 1,
    upload: str = "gradient",
    precision: str = "auto",
    n_frequencies: int = 1024,
    names: tuple[str, ...] | None = None,
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
    momentum : float, default=0.9
        Of the heavy ball; 0 is the paper's plain gradient descent.
    step_size : float, optional
        In units of 1 / L; below ``2 (1 + momentum)``, where it gets unstable. Default: 2, and 1 without momentum.
    local_steps : int, default=1
        Q in the paper: steps at a site between two messages. Above 1 sites whose rows differ pull the result apart.
    upload : {"gradient", "landmarks"}, default="gradient"
        What sites send. With more local steps the gradient is the mean of those on the way.
    precision : {"auto", "single", "double"}, default="auto"
        Of the products at sites and of the messages. ``"auto"``: double, and single where n n_y m is above 2^32.
        In double precision any split of the rows gives the same landmarks to 1e-10; in single to about 1e-5.
    n_frequencies : int, default=1024
        Random directions by which MMD^2 is estimated in each round, to about ``sqrt(2 / n_frequencies)`` of its value:
        one more message of 2 n_frequencies numbers per site. 0: not at all.
    names : tuple of str, optional
        Of the columns, for what is said about values that are not finite.
    """
    check_settings(n_landmarks, rounds, gamma, momentum, step_size, local_steps, upload, precision, n_frequencies)
    found = moments(fed, names)
    scale = float(np.sqrt(found.variance.sum()))
    if not 0 < scale < np.inf:
        raise InputError(
            f"the rows' variances add up to {scale**2:g}: landmarks need rows that differ, by amounts whose squares "
            "can be held"
        )
    m = len(found.mean)
    if precision == "auto":
        precision = "single" if found.n * n_landmarks * m > SINGLE_ABOVE else "double"
    prepared = fed.apply(reduced, centre=found.mean, scale=scale, precision=precision)
    width = 0.5 * gamma  # of the reduced rows, whose mean squared distance is 2
    size = (2.0 if momentum else 1.0) if step_size is None else step_size
    Y = _start(fed, found, scale, n_landmarks)
    discrepancy = _Discrepancy(prepared, n_frequencies, m, width)
    fed.log(precision=precision, gamma=width / scale**2)
    V = np.zeros_like(Y)
    lipschitz = 0.0
    for _ in fed.rounds(rounds):
        own, own_mean = _own_pull(Y, width)
        message = Y.astype(np.float32 if precision == "single" else np.float64)
        if local_steps == 1 and upload == "gradient":
            total = _whole(prepared.sum(local_pull, Y=message, gamma=width), pull=Y.shape)
            kernel_mean = _mean(total["kernel"], total["n"]) / n_landmarks
            lipschitz = _lipschitz(width, max(kernel_mean, own_mean), n_landmarks)
            move = -size / lipschitz * _gradient(total["pull"], total["n"], own, width)
        else:
            if not lipschitz:  # the first round: sites must know their step before they send anything
                total = _whole(prepared.sum(local_pull, Y=message, gamma=width), pull=Y.shape)
                kernel_mean = _mean(total["kernel"], total["n"]) / n_landmarks
                lipschitz = _lipschitz(width, max(kernel_mean, own_mean), n_landmarks)
            total = prepared.sum(
                local_descent, Y=message, gamma=width, size=size / lipschitz, steps=local_steps, upload=upload
            )
            sent = _mean(_whole(total, **{upload: Y.shape})[upload], total["n"])
            move = sent - message if upload == "landmarks" else -local_steps * size / lipschitz * sent
            kernel_mean = _mean(total["kernel"], total["n"]) / n_landmarks
            lipschitz = _lipschitz(width, max(kernel_mean, own_mean), n_landmarks)
        # MMD^2 less the part that Y has no influence on; and where it was followed, all of it
        fed.log(objective=own_mean - 2 * kernel_mean, **discrepancy.of(Y))
        V = momentum * V + move
        Y = Y + V
        if not np.abs(Y).max() < 1e100:
            raise InputError("the landmarks run away: use a smaller step_size, momentum or gamma, or fewer local_steps")
    last = discrepancy.of(Y)
    fed.log(**last)
    return Landmarks(
        found.mean + scale * Y, width / scale**2, last.get("mmd2", float("nan")), found.mean, scale, precision
    )


def check_settings(
    n_landmarks: int,
    rounds: int,
    gamma: float,
    momentum: float,
    step_size: float | None,
    local_steps: int,
    upload: str,
    precision: str,
    n_frequencies: int,
) -> None:
    """Refuse settings that cannot work, before any site is asked."""
    whole_number("n_landmarks", n_landmarks, 2)
    whole_number("rounds", rounds, 0)
    real_number("gamma", gamma, above=0)
    real_number("momentum", momentum, least=0, below=1)
    if step_size is not None:
        edge = 2 * (1 + momentum)
        real_number("step_size", step_size, above=0, below=edge, why=", twice 1 + momentum: above it is unstable")
    whole_number("local_steps", local_steps, 1)
    one_of("upload", upload, ("gradient", "landmarks"))
    one_of("precision", precision, ("auto", "single", "double"))
    whole_number("n_frequencies", n_frequencies, 0)


class _Discrepancy:
    """MMD^2 between all rows and landmarks, from sums over rows that are asked for once."""

    def __init__(self, prepared: Federation, count: int, columns: int, gamma: float) -> None:
        self.W = frequencies(prepared.rng, count, columns, gamma).astype(np.float32)
        if count:
            total = prepared.sum(local_characteristic, W=self.W)
            self.rows = _mean(_whole(total, kernel=None, characteristic=(2, count))["characteristic"], total["n"])

    def of(self, Y: Matrix) -> dict[str, float]:
        if not len(self.W):
            return {}
        apart = self.rows - characteristic(Y, self.W) / len(Y)
        return {"mmd2": float(np.mean(np.sum(apart**2, axis=0)))}


def _start(fed: Federation, found: Moments, scale: float, n_landmarks: int) -> Matrix:
    """Return normal draws with the columns' variances, in reduced coordinates."""
    draws = fed.rng.standard_normal((n_landmarks, len(found.mean)))
    return np.asarray(draws * (np.sqrt(found.variance) / scale))


def _own_pull(Y: Matrix, gamma: float) -> tuple[Matrix, float]:
    """Return the landmarks' pull at one another, and their mean kernel value."""
    pull, total = kernel_pull(Y, Y, gamma)
    return pull, total / len(Y) ** 2


def _gradient(pull: Array, n: int, own: Matrix, gamma: float) -> Matrix:
    n_y = len(own)
    gradient = 4 * gamma * (own / (n_y * (n_y - 1)) - _mean(pull, n) / n_y)
    return np.asarray(gradient)


def _whole(total: Total, kernel: tuple[int, ...] | None = (), **shapes: tuple[int, ...]) -> Total:
    """Refuse sums that most sites spoilt alike, which no comparison among them can tell."""
    expected = {**shapes, "n": (), **({} if kernel is None else {"kernel": kernel})}
    for name, shape in expected.items():
        if name not in total or np.shape(total[name]) != shape:
            found = f"the shape {np.shape(total[name])}" if name in total else "nothing"
            raise MessageError(f"most sites sent {found} as {name!r}, and it must have the shape {shape}")
    return total


def _mean(total: Any, n: int) -> Any:
    if n < 1:
        raise InputError("the sites that answered have no rows: there is nothing to learn from")
    return total / n


def _lipschitz(gamma: float, kernel: float, n_landmarks: int) -> float:
    """Return L; where landmarks are so far from all rows that no kernel value is left, that of a tiny one."""
    return 4 * gamma * max(kernel, 1e-12) / n_landmarks


def _blocks(site: Site) -> Iterator[tuple[Array, Array | None]]:
    """Yield the site's rows and their squared norms: at once where they were kept, in batches otherwise."""
    if 8 * len(site) * n_columns(site) <= _KEPT_BYTES:
        yield site.X, site.cached("squared norms", lambda: squared_norms(site.X))
    else:
        for batch in site.batches(_BATCH_ROWS):
            yield batch.X, None
