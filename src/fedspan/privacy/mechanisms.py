"""Mechanisms: where sites add noise, and how much of it.

A mechanism is the parameter ``privacy=...`` of an estimator. It holds public numbers and draws
nothing itself: the sites make the noise, from secrets that only they have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from hashlib import blake2b
from typing import Any

import numpy as np

from fedspan.arrays import Vector
from fedspan.checks import real_number, whole_number
from fedspan.errors import InputError
from fedspan.privacy.gaussian import check_budget, mu_of

Numbers = float | tuple[float, ...]

#: In units of `clip`: further out double precision has no six digits left for the rows.
LARGEST_CENTER = 1e9


class Mechanism:
    """Base of the mechanisms. Numbers per column become numbers or tuples, so that mechanisms can be compared."""

    def __post_init__(self) -> None:
        for name in ("center", "scale", "lower", "upper"):
            if hasattr(self, name):
                object.__setattr__(self, name, _plain(name, getattr(self, name)))

    def __repr__(self) -> str:
        parts = [f"{field.name}={_shown(getattr(self, field.name))}" for field in fields(self)]  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(parts)})"


@dataclass(frozen=True, repr=False)
class _Clipped(Mechanism):
    """Noise on rows that are drawn in to a public ball."""

    epsilon: float
    delta: float
    clip: float
    center: Any = 0.0

    def check(self) -> None:
        """Refuse numbers that can't work."""
        check_budget(self.epsilon, self.delta)
        real_number("clip", self.clip, above=0)
        if self.center is None:
            raise InputError(f"{type(self).__name__}: center=None must be a number, or one for each column")


@dataclass(frozen=True, repr=False)
class GaussianGradient(Mechanism):
    """Normal noise on the sites' replies in each round of FedDL: covers the landmarks, not distances posted later.

    Parameters
    ----------
    epsilon, delta : float
        For all rounds of one fit together, when one row of one site is replaced by any other.
    center, scale : float or array (m,), optional
        A public guess of the mean and the standard deviation of each column, for kernel width and start. Without
        them the sites send the sums of their columns and squares, which **no noise covers**: the record states it.
        Rows further than 32 times the root of the summed squares of `scale` from `center` are left out.

    Examples
    --------
    >>> GaussianGradient(8.0, 1e-5)
    GaussianGradient(epsilon=8.0, delta=1e-05, center=None, scale=None)
    """

    epsilon: float
    delta: float
    center: Any = None
    scale: Any = None

    def check(self) -> None:
        """Refuse numbers that can't work."""
        check_budget(self.epsilon, self.delta)
        if (self.center is None) != (self.scale is None):
            raise InputError("GaussianGradient: center and scale go together, give both or neither")
        if self.scale is not None and not (np.min(self.scale) >= 0 and np.max(self.scale) > 0):
            raise InputError("GaussianGradient: scale must be standard deviations, at least 0 and not all 0")

    def multiplier(self, events: int) -> float:
        """Return the noise's deviation over the sensitivity, for `events` replies."""
        return math.sqrt(events) / mu_of(self.epsilon, self.delta)


@dataclass(frozen=True, repr=False)
class GaussianData(_Clipped):
    """Normal noise on the rows themselves, once: covers all that is ever computed of them, also posted distances.

    The guarantee needs so much noise that maps at a small epsilon show nothing else.

    Parameters
    ----------
    epsilon, delta : float
        Of the noisy rows, when one row of one site is replaced by any other.
    clip : float
        Public radius: rows further from `center` are drawn in to it. The noise is proportional to it.
    center : float or array (m,), default=0.0
        Public. The nearer to the rows' mean, the smaller `clip` can be.

    Examples
    --------
    >>> GaussianData(100.0, 1e-5, clip=5.0)
    GaussianData(epsilon=100.0, delta=1e-05, clip=5.0, center=0.0)
    """

    def check(self) -> None:
        """Refuse numbers that can't work."""
        super().check()
        largest = float(np.max(np.abs(self.center), initial=0.0))
        if largest > LARGEST_CENTER * self.clip:
            raise InputError(
                f"GaussianData: center has {largest:g} and clip={self.clip:g}: beyond {LARGEST_CENTER:g} times clip "
                "the rows themselves are rounded away; subtract a public offset from the rows first"
            )

    @property
    def sigma(self) -> float:
        """The noise's deviation in every column: two rows within `clip` of the centre are up to 2 `clip` apart."""
        return 2 * self.clip / mu_of(self.epsilon, self.delta)


@dataclass(frozen=True, repr=False)
class GaussianCenters(_Clipped):
    """Normal noise on the sums of ``FedTSNE(share="centers")``: covers the map, not posted positions.

    Under a secure sum each site adds a share of the noise, and the smallest sum that can be unmasked has all of it.
    Without a secure sum each site adds all of it, because the coordinator sees its part.

    Parameters
    ----------
    epsilon, delta : float
        Of all that one fit requests, when one row of one site is added or removed.
    clip : float
        Public radius: rows further from `center` are drawn in to it. The noise is proportional to it.
    center : float or array (m,), default=0.0
        Public. The nearer to the rows' mean, the smaller `clip` can be.
    colluding : int, default=0
        The number of sites of a secure sum that may reveal their shares of the noise: the other shares suffice.

    Examples
    --------
    >>> GaussianCenters(8.0, 1e-5, clip=7.0, center=0.13)
    GaussianCenters(epsilon=8.0, delta=1e-05, clip=7.0, center=0.13, colluding=0)
    """

    colluding: int = 0

    def check(self) -> None:
        """Refuse numbers that can't work."""
        super().check()
        whole_number("colluding", self.colluding, 0)

    @property
    def mu(self) -> float:
        """The budget: the root of the summed squares of sensitivity over deviation, of all noise."""
        return mu_of(self.epsilon, self.delta)


@dataclass(frozen=True)
class Bounds:
    """Public bounds of rows x: ``(x - center) / width`` is within the unit ball, or with `box` every entry within 1."""

    center: Vector
    width: Vector
    box: bool

    @property
    def unit(self) -> Vector:
        """The length (d,) that is 1 where sites move their rows into the unit ball (see `rows_in_bounds`)."""
        return self.width * (math.sqrt(len(self.width)) if self.box else 1.0)


@dataclass(frozen=True, repr=False)
class GaussianMoments(Mechanism):
    """Normal noise on sums over rows within public bounds: for scaler, PCA, k-means, PCA detector and quantiles.

    All that one fit requests is covered, but for the names and number of columns. Under a secure sum each site adds a
    share of the noise, and the smallest sum that can be unmasked has all of it. Without one each site adds all of it.

    Parameters
    ----------
    epsilon, delta : float
        Of all that one fit requests, when one row of one site is added or removed.
    clip, center : float, float or array (d,), default=None, 0.0
        A public ball: rows further than `clip` from `center` are drawn in to it.
    lower, upper : float or array (d,), optional
        A public box instead: values beyond it are moved to its sides. Choose it where columns have different units.
    colluding : int, default=0
        The number of sites of a secure sum that may reveal their shares of the noise: the other shares suffice.

    Examples
    --------
    >>> GaussianMoments(1.0, 1e-6, lower=0.0, upper=[120.0, 250.0])
    GaussianMoments(epsilon=1.0, delta=1e-06, clip=None, center=0.0, lower=0.0, upper=(120.0, 250.0), colluding=0)
    """

    epsilon: float
    delta: float
    clip: float | None = None
    center: Any = 0.0
    lower: Any = None
    upper: Any = None
    colluding: int = 0

    def check(self) -> None:
        """Refuse numbers that can't work."""
        check_budget(self.epsilon, self.delta)
        whole_number("colluding", self.colluding, 0)
        box = self.lower is not None and self.upper is not None
        if box == (self.clip is not None) or (self.lower is None) != (self.upper is None) or self.center is None:
            raise InputError(
                f"{self!r} must have public bounds of the rows: either clip (and center), or both lower and upper"
            )
        if box and not np.all(np.less(self.lower, self.upper)):
            raise InputError(f"lower={self.lower!r} must be below upper={self.upper!r} in every column")
        if self.clip is not None:
            real_number("clip", self.clip, above=0)

    @property
    def mu(self) -> float:
        """The budget: the root of the summed squares of sensitivity over deviation, of all noise."""
        return mu_of(self.epsilon, self.delta)

    def bounds(self, columns: int) -> Bounds:
        """Return the bounds of rows with this number of columns."""
        if self.clip is not None:
            return Bounds(per_column("center", self.center, columns), np.full(columns, float(self.clip)), False)
        lower, upper = (per_column(name, getattr(self, name), columns) for name in ("lower", "upper"))
        return Bounds(lower / 2 + upper / 2, upper / 2 - lower / 2, True)


@dataclass(frozen=True, repr=False)
class PaperNoise(Mechanism):
    """The noise of Qiao, Ding and Fan (2025), Section 6: on each gradient, `beta` times the deviation of its entries.

    For reproduction only: the size of the noise depends on the rows, so that **there is no guarantee**. The record
    has the epsilon that noise of this size would have. A site with a ledger of its own refuses it.

    Parameters
    ----------
    beta : float, default=1.0
    delta : float, default=1e-5
        Of the epsilon in the record.
    """

    beta: float = 1.0
    delta: float = 1e-5

    def check(self) -> None:
        """Refuse numbers that can't work."""
        real_number("beta", self.beta, above=0)
        check_budget(1.0, self.delta)


def check_mechanism(privacy: Any) -> None:
    """Refuse what is not a mechanism, and mechanisms with numbers that can't work."""
    if privacy is None:
        return
    if isinstance(privacy, GaussianCenters):
        raise InputError(f"privacy={privacy!r} goes with FedTSNE(share='centers') alone")
    if isinstance(privacy, GaussianMoments):
        raise InputError(f"privacy={privacy!r} goes with scaler, PCA, k-means and PCA detector, and not with landmarks")
    if not isinstance(privacy, GaussianGradient | GaussianData | PaperNoise):
        raise InputError(
            f"privacy={privacy!r} must be None, or fedspan.privacy.GaussianGradient(epsilon, delta), "
            "GaussianData(epsilon, delta, clip) or PaperNoise(beta)"
        )
    privacy.check()


def check_moments(privacy: Any, aggregator: Any = None) -> None:
    """Refuse what is neither ``None`` nor `GaussianMoments`, numbers that can't work, and an aggregator beside it."""
    if privacy is None:
        return
    if not isinstance(privacy, GaussianMoments):
        raise InputError(f"privacy={privacy!r} must be None, or fedspan.privacy.GaussianMoments(epsilon, delta, ...)")
    privacy.check()
    if aggregator is not None:
        raise InputError(f"aggregator={aggregator!r} does not go with privacy=..., which has noise in sums alone")


def per_column(name: str, value: Numbers, columns: int) -> Vector:
    """Return one number for each column."""
    found = np.asarray(value, dtype=np.float64)
    if found.ndim and found.shape != (columns,):
        raise InputError(f"{name} has {len(found)} numbers, and must have one, or one for each of {columns} columns")
    return np.broadcast_to(found, (columns,)).copy()


def _plain(name: str, value: Any) -> Numbers | None:
    if value is None:
        return None
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name}={value!r} must be a number, or one for each column") from None
    if not np.isfinite(array).all():
        raise InputError(f"{name} must be finite, and holds NaN or infinity")
    return tuple(array.ravel().tolist()) if array.ndim else float(array)


def _shown(value: Any) -> str:
    if isinstance(value, tuple) and len(value) > 8:
        return f"<{len(value)} numbers #{blake2b(np.asarray(value).tobytes(), digest_size=8).hexdigest()}>"
    return repr(value)
