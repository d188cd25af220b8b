"""FedKaplanMeier: survival curves of rows that stay at their sites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn.utils.validation import check_is_fitted

from fedspan.arrays import Floats
from fedspan.checks import printable, real_number
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.statistics.regression.parts.regression_table import WIDTH
from fedspan.statistics.survival.event_counts import EventCounts, checked_grid, event_counts, group_names
from fedspan.statistics.survival.log_rank_test import compared
from fedspan.statistics.survival.survival_model import FedSurvival
from fedspan.sums.columns import column_number


@dataclass(eq=False, repr=False)
class FedKaplanMeier(FedSurvival):
    """Kaplan-Meier survival curves, also by group, with confidence bands, by counts on a grid of times.

    E. Kaplan and P. Meier, "Nonparametric estimation from incomplete observations" (1958). The numbers are those of the
    pooled rows, exactly if the grid has all times of events. Otherwise they are those of rows whose events are moved up
    to the grid, and whose censored times are moved down.

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
    log_rank_statistic_, log_rank_p_value_ : float
        Of the log-rank test between the groups; NaN where fewer than two have rows.
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

    _: KW_ONLY
    times: Sequence[float] | None = None
    by: int | str | None = None
    groups: Sequence[Any] | None = None
    confidence: float = 0.95

    def fit(self, X: Any, y: Any = None, *, sites: Any = None) -> Self:
        """Count rows at risk and events of a table (and ``sites``), or of a federation with targets."""
        real_number("confidence", self.confidence, above=0, below=1, why=", such as 0.95")
        if self.groups is not None and self.by is None:
            raise InputError("groups=... names the groups of the column by=..., which is None")
        with self._fitting(X, self._target(X, y), sites) as fed:
            self._keep(_counted(fed, self.times, self.by, self.groups, self._names(), self.n_features_in_))
        return self

    def predict(self, times: Any) -> Floats:
        """Return the survival at some times (t,), with groups of each of them (g, t)."""
        check_is_fitted(self)
        wanted = np.asarray(times, dtype=np.float64)
        at = np.searchsorted(self.times_, wanted, "right")
        padded = np.concatenate([np.ones_like(self.survival_function_[..., :1]), self.survival_function_], axis=-1)
        return np.asarray(padded[..., at])

    def summary(self, names: Sequence[str] | None = None) -> str:
        """Return a table of rows, events and median times by group, with the log-rank test; `names` is not needed."""
        check_is_fitted(self)
        title = "Kaplan-Meier Results"
        head = f"{'':30}{'rows':>12}{'events':>12}{'median':>24}"
        lines = [title.center(WIDTH).rstrip(), "=" * WIDTH, head, "-" * WIDTH]
        events = np.atleast_2d(self.events_).sum(axis=1)
        medians = np.atleast_1d(self.median_survival_time_)
        for name, n, d, median in zip(self.groups_, np.atleast_1d(self.n_obs_), events, medians, strict=True):
            shown = f"{median:g}" if np.isfinite(median) else "not reached"
            lines.append(f"{name[:30]:30}{n:12d}{d:12d}{shown:>24}")
        what = "only counts at public times" if self.times is not None else "counts, and the times of events,"
        lines += ["=" * WIDTH, "", "Notes:", f"[1] {len(self.sites_)} sites; {what} have left them."]
        if np.isfinite(self.log_rank_p_value_):
            lines.append(
                f"[2] Log-rank test: chi-square {self.log_rank_statistic_:.4g}, p-value {self.log_rank_p_value_:.4g}."
            )
        return printable("\n".join(lines))

    # Inside.

    def _keep(self, found: EventCounts) -> None:
        curves = [survival_curve(n, d, self.confidence) for n, d in zip(found.at_risk, found.events, strict=True)]
        survival, bands = np.stack([one[0] for one in curves]), np.stack([one[1] for one in curves])
        medians = np.array([_median(found.grid, curve) for curve in survival])
        self.times_, self.groups_ = found.grid, found.groups
        many = self.by is not None
        which: Any = ... if many else 0
        self.survival_function_, self.confidence_interval_ = survival[which], bands[which]
        self.at_risk_, self.events_ = found.at_risk[which], found.events[which]
        self.median_survival_time_ = medians if many else float(medians[0])
        self.n_obs_ = found.rows if many else int(found.rows[0])
        test = compared(found) if np.count_nonzero(found.rows) > 1 else None
        self.log_rank_statistic_ = np.nan if test is None else test.statistic
        self.log_rank_p_value_ = np.nan if test is None else test.p_value


def survival_curve(at_risk: NDArray[np.int64], events: NDArray[np.int64], confidence: float) -> tuple[Floats, Floats]:
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


def _median(times: Floats, curve: Floats) -> float:
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
