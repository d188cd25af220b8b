"""FedKaplanMeier: survival curves of rows that stay at their sites."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn.utils.validation import check_is_fitted

from fedspan.checks import real_number, whole_number
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.statistics.survival.event_counts import EventCounts, checked_grid, event_counts
from fedspan.statistics.survival.survival_model import FedSurvival

Numbers = NDArray[np.float64]


class FedKaplanMeier(FedSurvival):
    """Kaplan-Meier survival curves, also by group, with confidence bands, by counts on a grid of times.

    E. Kaplan and P. Meier, "Nonparametric estimation from incomplete observations" (1958). The numbers are those of
    the pooled rows: exactly, if the grid has all times of events; else those of rows whose events are moved up and
    whose censored times are moved down to the grid.

    Parameters
    ----------
    times : sequence of numbers, optional
        The public grid, such as ``range(0, 1000, 7)``. Only counts at grid points leave a site, and secure sums can
        carry them. Default: all times of events, which the sites then send: for embedded federations.
    by : int or str, optional
        The column of X with the group of each row, of numbers or text.
    groups : sequence, optional
        Names of the groups. Default: found out; secure sums need them here. Other rows are left out.
    confidence : float, default=0.95
        Of the bands, by Greenwood's formula for the logarithm of the cumulative hazard.
    random_state, verbose : int, optional
        Nothing is random; 1 shows a progress bar when the fit takes longer than two seconds.

    Attributes
    ----------
    times_ : array (m,)
        The grid.
    survival_function_ : array (m,), or (g, m) with groups
    confidence_interval_ : array (m, 2), or (g, m, 2)
    at_risk_, events_ : array of int (m,), or (g, m)
    median_survival_time_ : float, or array (g,)
        The first time with a survival of at most one half; infinite if survival stays above that.
    groups_ : tuple of str
    n_obs_ : int, or array of int (g,)
    sites_ : tuple of str
    run_ : RunRecord

    Examples
    --------
    >>> y = np.array([[5.0, 1], [6.0, 0], [8.0, 1], [8.0, 1], [9.0, 0], [12.0, 1]])
    >>> curve = FedKaplanMeier(times=range(1, 13)).fit(np.zeros((6, 1)), y, sites=["a", "a", "a", "b", "b", "b"])
    >>> curve.predict([4, 5, 8, 12]).round(3)
    array([1.   , 0.833, 0.417, 0.   ])
    >>> curve.median_survival_time_
    8.0
    """

    takes_text = True
    survival_function_: Numbers
    confidence_interval_: Numbers
    at_risk_: NDArray[np.int64]
    events_: NDArray[np.int64]

    def __init__(
        self,
        *,
        times: Sequence[float] | None = None,
        by: int | str | None = None,
        groups: Sequence[Any] | None = None,
        confidence: float = 0.95,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.times = times
        self.by = by
        self.groups = groups
        self.confidence = confidence
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, *, sites: Any = None) -> Self:
        """Count rows at risk and events of a table (and ``sites``), or of a federation with targets."""
        real_number("confidence", self.confidence, above=0, below=1, why=", such as 0.95")
        if self.groups is not None and self.by is None:
            raise InputError("groups=... names the groups of the column by=..., which is None")
        with self._fitting(X, self._target(X, y), sites) as fed:
            self._keep(_counted(fed, self.times, self.by, self.groups, self._names(), self.n_features_in_))
        return self

    def predict(self, times: Any) -> Numbers:
        """Return the survival at some times (t,), with groups of each of them (g, t)."""
        check_is_fitted(self)
        wanted = np.asarray(times, dtype=np.float64)
        at = np.searchsorted(self.times_, wanted, "right")
        padded = np.concatenate([np.ones_like(self.survival_function_[..., :1]), self.survival_function_], axis=-1)
        return np.asarray(padded[..., at])

    # Inside.

    def _keep(self, found: EventCounts) -> None:
        curves = [survival_curve(n, d, self.confidence) for n, d in zip(found.at_risk, found.events, strict=True)]
        survival, bands = np.stack([one[0] for one in curves]), np.stack([one[1] for one in curves])
        medians = np.array([_median(found.grid, curve) for curve in survival])
        self.times_, self.groups_ = found.grid, found.groups
        many = self.by is not None
        self.survival_function_, self.confidence_interval_ = (survival, bands) if many else (survival[0], bands[0])
        self.at_risk_, self.events_ = (found.at_risk, found.events) if many else (found.at_risk[0], found.events[0])
        self.median_survival_time_ = medians if many else float(medians[0])
        self.n_obs_ = found.rows if many else int(found.rows[0])


def survival_curve(at_risk: NDArray[np.int64], events: NDArray[np.int64], confidence: float) -> tuple[Numbers, Numbers]:
    """Return the survival (m,) and its band (m, 2) from rows at risk and events at rising times."""
    n, d = at_risk.astype(np.float64), events.astype(np.float64)
    some = n > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.cumsum(np.where(some, np.log1p(-np.where(some, d / n, 0.0)), 0.0))
        squares = np.cumsum(np.where(some & (d > 0), d / n / (n - d), 0.0))
        reach = stats.norm.ppf(1 - (1 - confidence) / 2) * np.sqrt(squares) / logs
        ends = np.exp(-np.exp(np.log(-logs)[:, None] + np.stack([-reach, reach], axis=1)))
    curve = np.exp(logs)
    ends[np.isnan(ends)] = 1.0
    ends[curve == 1.0], ends[curve == 0.0] = 1.0, 0.0
    return curve, ends


def _median(times: Numbers, curve: Numbers) -> float:
    below = np.flatnonzero(curve <= 0.5)
    return float(times[below[0]]) if len(below) else np.inf


def _counted(
    fed: Federation, times: Any, by: Any, groups: Any, names: tuple[str, ...] | None, columns: int
) -> EventCounts:
    return event_counts(
        fed,
        times=None if times is None else checked_grid(times),
        by=-1 if by is None else column_number("by", by, names, columns),
        groups=None if groups is None else group_names(groups),
    )


def group_names(groups: Any) -> tuple[str, ...]:
    """Return names of groups as text, as cells of a table are named."""
    found = tuple(f"{one:g}" if isinstance(one, float) else str(one) for one in groups)
    if not found or len(set(found)) < len(found):
        raise InputError(f"groups={groups!r} must be different names, one or more")
    return found


def column_number(what: str, value: Any, names: tuple[str, ...] | None, columns: int) -> int:
    """Return the number of a column that is given by its name or number."""
    if not isinstance(value, str):
        return whole_number(what, value, 0, columns - 1, why=", the number of a column, or its name")
    known = [str(name) for name in names or ()]
    if value not in known:
        shown = f"; columns: {', '.join(known[:20])}" if known else ": the columns have no names"
        raise InputError(f"{what}={value!r} is the name of no column{shown}")
    return known.index(value)
