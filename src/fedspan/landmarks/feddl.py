"""FedDL: landmarks that follow the distribution of rows which stay at their sites.

Algorithm 1 of "Federated t-SNE and UMAP for distributed data visualization" (Qiao, Ding and Fan, AAAI 2025). The
landmarks Y minimise the squared maximum mean discrepancy (MMD^2) between them and all rows X, for a Gaussian kernel:

    grad f(Y) = -4 gamma / (n n_y) sum_p A_p + 4 gamma / (n_y (n_y - 1)) sum_i k(y_i, y_j) (y_i - y_j)

with ``A_p = sum_i k(x_i, y_j) (x_i - y_j)`` over the rows of site p. Only the *sum* of the sites' terms is needed
(`fed.sum`). With one local step the result is that of gradient descent on the pooled rows, for any split of them.

The paper leaves some choices open; here they follow from the data. Kernel width and start come from the mean and
variance of the columns. The step is a multiple of 1 / L with ``L = 4 gamma kbar / n_y``, and heavy-ball momentum saves
most of the rounds. No landmark moves further in a step than a quarter of the kernel's width: L belongs to a landmark
with the mean kernel value. Where more rows pull, a landmark could overshoot to where no row pulls it back. Sites
compute with ``(x - mean) / s``, s^2 being the sum of the variances: no offset or unit of the data costs digits.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from fedspan.arrays import Matrix
from fedspan.checks import frames_inside
from fedspan.errors import InputError
from fedspan.federation import Federation, Total
from fedspan.landmarks.parts.card_rows import card_moments, double_device
from fedspan.landmarks.parts.discrepancy import Discrepancy
from fedspan.landmarks.parts.feddl_settings import FedDLSettings, settled
from fedspan.landmarks.parts.kernel_pull import (
    kept_within,
    local_descent,
    local_pull,
    mean_gradient,
    own_pull,
    per_row,
    reduced,
)
from fedspan.landmarks.parts.map_bytes import estimated_bytes, warn_of_traffic
from fedspan.landmarks.parts.principal_view import (
    PrincipalView,
    Reduce,
    axes_bytes,
    fewest_axes,
    may_reduce,
    needs_scatter,
    principal_view,
    send_view,
)
from fedspan.sums.moments import Moments, moments
from fedspan.sums.plausible_totals import ABSURD, CountedRows, whole

#: A round: by how much the landmarks move, the sites' total, and what the record keeps.
Move = tuple[Matrix, Total, dict[str, float]]

#: The share of the rows' variance that noise alone may add to landmarks over all rounds; it limits the default step.
_NOISY_PART = 0.1
_TYPES: dict[str, type[np.floating[Any]]] = {"single": np.float32, "double": np.float64}


@dataclass(frozen=True)
class Landmarks:
    """Landmarks (n_y, m), the kernel's gamma, MMD^2 at the end (NaN if it was not followed), and how sites see rows.

    Rows are seen as ``(x - centre) / scale``, with `centre` (m,) the mean and `scale` the root of the summed variances.
    `n` is the number of rows that the `sites` reported together, 0 if it is not known, `rounds` that of FedDL's rounds.
    With a `view` FedDL saw rows along principal axes: `scale` is of these coordinates, and all landmarks are in the
    span of the axes.
    """

    points: Matrix
    gamma: float
    mmd2: float
    centre: Matrix
    scale: float
    precision: str
    n: int = 0
    sites: tuple[str, ...] = ()
    rounds: int = 0
    view: PrincipalView | None = None

    @property
    def seen(self) -> dict[str, Any]:
        """The landmarks as `distances_to` takes them: points, or coordinates along the axes of the view."""
        if self.view is None:
            return {"landmarks": self.points, "centre": self.centre, "scale": self.scale}
        axes = self.view.axes
        coordinates = ((self.points - self.centre) @ axes.T.astype(np.float64)).astype(np.float32)
        return {"landmarks": coordinates, "centre": self.centre, "scale": self.scale, "axes": axes}

    @property
    def reduced(self) -> Matrix:
        """The landmarks as sites see them."""
        return np.asarray((self.points - self.centre) / self.scale)


@dataclass(frozen=True)
class Variant:
    """A variant of FedDL: its steps, the defaults of its settings, and its bounds (see `private_feddl`).

    `pull` and `descent` replace `local_pull` and `local_descent`, with more `payload`; `kernel` states whether their
    replies have the sum of the kernel values. `moments` returns those of the rows, or public ones. A landmark moves at
    most `farthest` kernel widths in a step, and stays `within` this multiple of the rows' spread. ``deviation(n_y,
    gamma)`` of the noise on one site's ``A_p`` limits the default step.
    """

    pull: Callable[..., dict[str, Any]]
    descent: Callable[..., dict[str, Any]]
    payload: dict[str, Any] = field(default_factory=dict)
    kernel: bool = True
    momentum: float = 0.0
    n_frequencies: int = 1024
    moments: Callable[[Federation, tuple[str, ...] | None], Moments] = moments
    farthest: float = np.inf  # a limit would cut noise short
    within: float = np.inf
    deviation: Callable[[int, float], float] = lambda n_landmarks, gamma: 0.0


#: FedDL without noise. A landmark moves at most a quarter of the kernel's width in a step.
PLAIN = Variant(local_pull, local_descent, momentum=0.9, farthest=0.25)


def feddl(
    fed: Federation,
    *,
    names: tuple[str, ...] | None = None,
    reduce: Reduce = None,
    posting: bool = False,
    variant: Variant = PLAIN,
    **settings: Any,
) -> Landmarks:
    """Return landmarks for all rows.

    Parameters
    ----------
    names : tuple of str, optional
        Names of the columns, for errors about values that are not finite.
    reduce : int, float or "auto", optional
        The number of principal axes along which FedDL sees the rows, or the share of the variance that they hold.
    posting : bool, default=False
        Whether sites will post distances to the landmarks: for the estimate of the bytes.
    variant : Variant, optional
        The variant that `private_feddl` runs.
    **settings
        Of `FedDLSettings`, as `FedLandmarks` documents them.
    """
    chosen = FedDLSettings(**settings).completed(variant.momentum, variant.n_frequencies)
    on_card = chosen.device is not None and variant.pull is local_pull
    if on_card:
        found, scatter = card_moments(fed, str(chosen.device), names, partial(_with_scatter, fed, reduce))
    else:
        found, scatter = variant.moments(fed, names), None
    centre, scale, variance = found.mean, _spread(found), found.variance
    learning = axes_bytes(reduce, len(centre), fed.policy.max_bytes, on_card=on_card)
    estimate = partial(estimated_bytes, chosen, found.n, len(centre), len(found.sites), learning, posting)
    expected = estimate(fewest_axes(reduce, len(centre)))
    warned = warn_of_traffic(expected, found.n, len(centre))  # before the axes are learned, which may move the most
    view = principal_view(fed, found, reduce, scatter)
    if view is not None:
        scale, variance, expected = view.spread, view.variance, estimate(len(view.variance))
    n_y, m = chosen.landmarks_for(len(variance)), len(variance)
    precision = chosen.precision_for(found.n * n_y * m, reduced=view is not None)
    fed.log(precision=precision, landmarks=n_y, estimated_bytes=expected)
    if not warned:
        warn_of_traffic(expected, found.n, len(centre))
    waves: dict[str, Any] = {}
    if view is None and not on_card:
        prepared = fed.apply(reduced, centre=centre, scale=scale, precision=precision)
    else:
        axes = None if view is None else view.axes
        send_view(fed, mean=centre, axes=axes, scale=scale, precision=precision)
        prepared, variant = fed, replace(variant, payload={**variant.payload, "viewed": True})
        waves = {"viewed": True, **({"device": chosen.device} if on_card else {})}
    width = 0.5 * chosen.gamma  # of the reduced rows, whose mean squared distance is 2
    start = fed.rng.standard_normal((n_y, m)) * (np.sqrt(variance) / scale)
    rows = CountedRows(found.n, found.sites)
    discrepancy = Discrepancy(prepared, chosen.n_frequencies or 0, m, width, rows, **waves)
    fed.log(gamma=width / scale**2)
    longest = _quiet_step(fed, chosen, variant.deviation(n_y, width), found)
    moves = _Moves(prepared, chosen, variant, _TYPES[precision], n_y, width, longest, rows)
    farthest = variant.farthest * chosen.local_steps / np.sqrt(2 * width)
    ball = _heavy_ball(chosen.momentum or 0.0, farthest)
    Y, rounds = _descended(fed, start, chosen, moves.of_round, ball, discrepancy, variant.within)
    last = discrepancy.at_the_end(Y)
    fed.log(**last)
    mmd2 = last.get("mmd2", float("nan"))
    points = centre + scale * Y if view is None else view.lifted(scale * Y)
    return Landmarks(
        points, width / scale**2, mmd2, centre, scale, precision, rows.n, rows.sites, rounds=rounds, view=view
    )


def _with_scatter(fed: Federation, reduce: Reduce, columns: int) -> bool:
    """Return whether the scatter matrix comes with the moments: where rows are reduced by it."""
    return may_reduce(reduce, columns) and needs_scatter(reduce, columns, fed.policy.max_bytes, on_card=True)


def _spread(found: Moments) -> float:
    """Return the root of the summed variances, by which sites divide their rows."""
    scale = float(np.sqrt(found.variance.sum()))
    if not 0 < scale < np.inf:
        raise InputError(
            f"the rows' variances add up to {scale**2:g}, beside means of up to {np.abs(found.mean).max():.2g}: "
            "landmarks need rows that differ, by amounts whose squares are finite, and sites whose sums are true"
        )
    return scale


def _descended(
    fed: Federation,
    Y: Matrix,
    chosen: FedDLSettings,
    move_of: Callable[[Matrix], Move],
    accelerated: Callable[[Matrix], Matrix],
    discrepancy: Discrepancy,
    within: float,
) -> tuple[Matrix, int]:
    """Return the landmarks after all rounds, and their number.

    `move_of` requests sums, `accelerated` makes a velocity of each move.
    """
    absent: Counter[str] = Counter()
    Y = kept_within(Y, within)
    rounds, followed = 0, list[float]()
    for _ in fed.rounds(chosen.most_rounds):
        by, total, metrics = move_of(Y)
        rounds += 1
        absent.update(list(total.failed))
        discrepancy.follow(total.sites)
        apart = discrepancy.of(Y)
        fed.log(**metrics, **apart)
        followed += apart.values()
        if chosen.rounds == "auto" and settled(followed):
            fed.stop(f"MMD^2 has settled at {min(followed):.3g} after {rounds} rounds", converged=True)
        Y = kept_within(Y + accelerated(by), within)
        if not np.abs(Y).max() < ABSURD:
            raise InputError("the landmarks diverge: use a smaller step_size, momentum or gamma, or fewer local_steps")
    often = {name: count for name, count in sorted(absent.items()) if 2 * count > rounds}
    if often:
        names = [f"{name} (missing in {count} of {rounds} rounds)" for name, count in often.items()]
        warnings.warn(f"the landmarks hardly follow the rows of {', '.join(names[:10])}", stacklevel=frames_inside())
    return Y, rounds


def _heavy_ball(momentum: float, farthest: float) -> Callable[[Matrix], Matrix]:
    """Return the accelerator: it remembers the velocity, and limits it to `farthest`."""
    velocity: Any = 0.0

    def accelerated(move: Matrix) -> Matrix:
        nonlocal velocity
        velocity = kept_within(momentum * velocity + move, farthest)
        return np.asarray(velocity)

    return accelerated


def _quiet_step(fed: Federation, chosen: FedDLSettings, deviation: float, found: Moments) -> float:
    """Return the longest step at which noise of this deviation per site adds little variance to the landmarks.

    A given step size has no such limit.
    """
    if chosen.step_size is not None or not deviation:
        return np.inf
    noise_of_gradient = (
        2 * chosen.gamma / (max(1, found.n) * chosen.landmarks_for(len(found.mean))) * deviation * len(fed.sites) ** 0.5
    )
    steps = max(1, chosen.most_rounds * chosen.local_steps) * len(found.mean)
    return float(np.sqrt(_NOISY_PART / steps) / noise_of_gradient)


@dataclass
class _Moves:
    """The round functions: each requests one sum and returns the landmarks' move, in steps of at most `longest`."""

    prepared: Federation
    chosen: FedDLSettings
    variant: Variant
    dtype: type[np.floating[Any]]
    n_landmarks: int
    gamma: float
    longest: float
    rows: CountedRows
    lipschitz: float = 0.0

    @property
    def of_round(self) -> Callable[[Matrix], Move]:
        """The round function for the settings."""
        plain = self.chosen.local_steps == 1 and self.chosen.upload == "gradient"
        return self.by_pull if plain else self.by_local_steps

    def by_pull(self, Y: Matrix) -> Move:
        """Move down the gradient, by one step at the coordinator."""
        own, own_mean = own_pull(Y, self.gamma, double_device(self.chosen.device))
        total = self._sum(self.variant.pull, "pull", Y)
        metrics = self._measured(total, own_mean)
        return -self._stride * mean_gradient(total["pull"], total["n"], own, self.gamma), total, metrics

    def by_local_steps(self, Y: Matrix) -> Move:
        """Move by the mean of the steps that the sites take."""
        own_mean = own_pull(Y, self.gamma, double_device(self.chosen.device))[1]
        if not self.variant.kernel:
            self._measured(None, own_mean)
        elif not self.lipschitz:
            self.by_pull(Y)  # the first steps at the sites need a length, too
        stride, steps, upload = self._stride, self.chosen.local_steps, self.chosen.upload
        total = self._sum(self.variant.descent, upload, Y, size=stride, steps=steps, upload=upload)
        sent = per_row(total[upload], total["n"])
        by = sent - Y.astype(self.dtype) if upload == "landmarks" else -steps * stride * sent
        return by, total, self._measured(total, own_mean)

    @property
    def _stride(self) -> float:
        size = self.chosen.step_size or (2.0 if self.chosen.momentum else 1.0)
        return min(size / self.lipschitz, self.longest)

    def _sum(self, run: Callable[..., Any], what: str, Y: Matrix, **more: object) -> Total:
        device = {} if self.chosen.device is None else {"device": self.chosen.device}
        total = self.prepared.sum(
            run, Y=Y.astype(self.dtype), gamma=self.gamma, **more, **self.variant.payload, **device
        )
        whole(total, **{what: Y.shape, "n": ()}, **({"kernel": ()} if self.variant.kernel else {}))
        self.rows.compare(total)
        return total

    def _measured(self, total: Total | None, own_mean: float) -> dict[str, float]:
        """Set L from the mean kernel value between rows and landmarks; return the objective, if sites report it.

        Without a report the mean value has a bound. It is an inner product of two mean embeddings, of which the rows'
        has at most the norm 1. A tiny L stands for landmarks so far from all rows that no kernel value is left.
        """
        n_y = self.n_landmarks
        if total is None or not self.variant.kernel:
            kernel_mean, metrics = float(np.sqrt(own_mean)), {}
        else:
            kernel_mean = float(per_row(total["kernel"], total["n"]) / n_y)
            metrics = {"objective": own_mean - 2 * kernel_mean}  # MMD^2 less the part that Y does not influence
        self.lipschitz = 4 * self.gamma * max(kernel_mean, own_mean, 1e-12) / n_y
        return metrics
