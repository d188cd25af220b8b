"""Notice drift: whether scores, columns or directions of recent rows are distributed as those of a baseline.

Sites count their rows between fixed edges of the score and of each standardised column. They also count along each
direction in which the detector has made the rows white. Counts of recent rows are compared with those of the baseline
by the test of Kolmogorov and Smirnov. The largest difference D of two distributions, of n and m rows, is beyond chance
where

    2 exp(-2 D^2 n m / (n + m)) < alpha / number of tests.

That bound holds for independent rows of any distribution (P. Massart, 1990; for two samples F. Wei and R. M. Dudley,
2012; of counts between edges D is only smaller). So `alpha` is the rate of false alarms of all tests of a window
together. Where rows that follow one another are alike, `alike` of them count as one. The population stability index is
reported beside it.

A detector scores its training rows only nearly as if they were new ones: see `SCORE_MARGIN`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fedspan.anomaly.parts.drift_counts import View, edges_of, seen_by, view_of
from fedspan.anomaly.parts.explained_detector import ExplainedDetector
from fedspan.anomaly.parts.recalibration import usual_counts
from fedspan.anomaly.parts.score_grid import local_score_counts, score_counts
from fedspan.arrays import Vector
from fedspan.checks import printable, real_number
from fedspan.errors import InputError

#: Added to counts, for the index of columns whose values leave a gap between edges empty.
_HALF = 0.5
#: The difference of scores from those of the training that is no drift. Scores of training rows are nearly those of
#: rows left out, or come from younger models. Chosen on generated rows, where 0.03 would not have been enough.
SCORE_MARGIN = 0.05


@dataclass(frozen=True)
class Comparison:
    """One test: what was compared, the largest difference of the distributions, its p-value, and the stability index.

    `of` is ``"score"``, ``"column"`` or ``"direction"``; `name` is that of the column, or the number of the direction.
    The p-value is one of all tests of the window together.
    """

    of: str
    name: str
    difference: float
    p_value: float
    index: float


@dataclass(frozen=True)
class Drift:
    """What `drift` found.

    Attributes
    ----------
    rows : int
        Of the window.
    alpha : float
        The rate of false alarms of a window: half of it is for all rows together, half for the sites, if there are any.
    moved : tuple of Comparison
        All tests, the clearest first.
    sites : dict of str to Drift
        For each site of the baseline, compared with its own rows there; empty with secure sums.
    """

    rows: int
    alpha: float
    moved: tuple[Comparison, ...]
    sites: dict[str, Drift] = field(default_factory=dict)

    @property
    def p_value(self) -> float:
        """Of all tests of all rows together."""
        return min((one.p_value for one in self.moved), default=1.0)

    @property
    def level(self) -> float:
        """The rate of false alarms of the tests of all rows together."""
        return self.alpha / 2.0 if self.sites else self.alpha

    @property
    def drifted(self) -> bool:
        """Whether some test of all rows is beyond chance, or of a site."""
        return self.p_value < self.level or bool(self.moved_sites)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that moved, the clearest first."""
        return tuple(one.name for one in self.moved if one.of == "column" and one.p_value < self.level)

    @property
    def moved_sites(self) -> tuple[str, ...]:
        """The sites whose rows moved."""
        return tuple(name for name, site in self.sites.items() if site.drifted)

    def summary(self) -> str:
        """Return a few lines for people."""
        found = "drift" if self.drifted else "no drift"
        lines = [f"{self.rows} rows: {found} (false alarms: {self.alpha:g} of windows)"]
        lines += [
            f"  {one.of} {one.name}: difference {one.difference:.2f}, index {one.index:.2f}, p {one.p_value:.1g}"
            for one in self.moved[:5]
            if one.p_value < self.level
        ]
        return printable("\n".join([*lines, *(f"  site {name} moved" for name in self.moved_sites)]))


@dataclass(frozen=True)
class Baseline:
    """Counts of the rows to compare with, of all and of each site, and the `view` in which they were counted.

    The first counts are those of scores between `score_edges`, then come those of columns and directions. Scores of
    rows of the same kind may differ from these by `margin`.
    """

    score_edges: Vector
    counts: list[Vector]
    sites: dict[str, list[Vector]]
    view: View | None
    margin: float = 0.0


def drift(
    model: Any,
    fed: Any,
    *,
    baseline: Any = None,
    sites: Any = None,
    alpha: float = 0.001,
    alike: float = 1.0,
) -> Drift:
    """Compare recent rows with those that a detector was fitted on.

    Parameters
    ----------
    model : a fitted detector that explains its scores, or a pipeline that ends with one
    fed : federation or table
        The recent rows.
    baseline : federation, table or `Baseline`, optional
        Rows to compare with, of all and of each site. Default: those of the training, which the detector has counted,
        all sites together: there a difference of the scores counts beyond 0.05. A detector that was fitted with
        ``privacy=`` has counts of its scores alone.
    sites : array, optional
        The sites of the rows of a table.
    alpha : float, default=0.001
        The rate of false alarms: 0.001 is one in a thousand windows.
    alike : float, default=1.0
        The number of rows that count as one. The rate holds for independent rows; where rows that follow one another
        are alike, more windows raise an alarm. With a correlation of r from row to row, ``(1 + r) / (1 - r)``.

    Examples
    --------
    >>> import fedspan as fs
    >>> X = np.random.default_rng(0).normal(size=(3000, 3))
    >>> model = fs.FedPCADetector().fit(X[:1000])
    >>> fs.drift(model, X[1000:2000]).drifted
    False
    >>> fs.drift(model, X[2000:] * [1.0, 3.0, 1.0]).columns
    ('feature 1',)
    """
    before_it, model = parts_of(model, "drift")
    fed = shown(before_it, fed)
    real_number("alpha", alpha, above=0, below=1)
    real_number("alike", alike, least=1)
    if baseline is None:
        before = training_rows(model)
    else:
        before = baseline if isinstance(baseline, Baseline) else baseline_of(model, shown(before_it, baseline))
    now = counted(model, fed, sites, before.score_edges, before.view)
    names = names_of(model, before.view)
    both = [site for site in now.sites if site in before.sites]
    own = alpha / 2.0 / max(1, len(both))
    found = {
        site: Drift(
            int(now.sites[site][0].sum()), own, compared(before.sites[site], now.sites[site], names, alike=alike)
        )
        for site in both
    }
    moved = compared(before.counts, now.counts, names, margin=before.margin, alike=alike)
    return Drift(int(now.counts[0].sum()), alpha, moved, found)


def parts_of(model: Any, what: str) -> tuple[list[Any], ExplainedDetector]:
    """Return the steps before the detector of a pipeline, and the detector."""
    *before, last = [step for _, step in model.steps] if hasattr(model, "steps") else [model]
    if not isinstance(last, ExplainedDetector):
        raise InputError(f"{what} takes a detector such as FedAnomalyDetector, and not {type(last).__name__}")
    check_is_fitted(last)
    return before, last


def shown(steps: Sequence[Any], X: Any) -> Any:
    """Return rows as the steps before a detector show them to it."""
    for step in steps:
        X = step.transform(X)
    return X


def training_rows(model: ExplainedDetector) -> Baseline:
    """Return the counts of the training rows that a detector keeps."""
    edges = _score_edges(model)
    counts: list[Vector] = [usual_counts(model.score_levels_, edges[None], float(model.n_samples_))]
    if not hasattr(model, "baseline_counts_"):
        return Baseline(edges, counts, {}, None, SCORE_MARGIN)
    view = {"mean": model.baseline_mean_, "scale": model.baseline_scale_, "root": model.baseline_root_}
    return Baseline(edges, [*counts, *model.baseline_counts_.astype(np.float64)], {}, view, SCORE_MARGIN)


def baseline_of(model: ExplainedDetector, fed: Any, sites: Any = None) -> Baseline:
    """Return the counts of rows of a table (with ``sites``) or a federation, to compare later ones with."""
    return counted(model, fed, sites, _score_edges(model), view_of(model))


def counted(model: ExplainedDetector, X: Any, sites: Any, score_edges: Vector, view: View | None) -> Baseline:
    """Return the counts of rows by score and, with a view, by column and direction."""
    seen = model._as_federation(X, None, sites, reset=False)
    parts = [(model._scored(seen), score_edges[None])]
    if view is not None:
        parts.append((seen_by(view, seen, model._names()), edges_of(view)))
    counts: list[Vector] = []
    by_site: dict[str, list[Vector]] = {}
    for part, edges in parts:
        with part.begin("drift") as run:
            if run.policy.secure_sum:
                counts += list(score_counts(run, edges))
                continue
            replies = run.ask(local_score_counts, edges=edges)
            own = {site: np.asarray(reply["counts"], dtype=np.float64) for site, reply in replies.ok.items()}
        counts += list(sum(own.values(), np.zeros((len(edges), edges.shape[1] + 1))))
        for site, found in own.items():
            by_site.setdefault(site, []).extend(found)
    if not counts[0].sum() > 0:
        raise InputError("the sites have no rows: there is nothing to compare")
    return Baseline(score_edges, counts, {site: own for site, own in by_site.items() if len(own) == len(counts)}, view)


def compared(
    before: Sequence[Vector],
    now: Sequence[Vector],
    names: list[tuple[str, str]],
    times: int = 1,
    margin: float = 0.0,
    alike: float = 1.0,
    mix: float = 0.0,
) -> tuple[Comparison, ...]:
    """Return all tests, the clearest first, with p-values for `times` as many tests; `alike` rows count as one.

    A difference counts beyond `mix`, and one of scores beyond `mix` and the `margin`.
    """
    found = []
    for (of, name), old, new in zip(names, before, now, strict=True):
        n, m = float(old.sum()), float(new.sum())
        if not n or not m:
            continue
        difference = float(np.abs(np.cumsum(old) / n - np.cumsum(new) / m).max())
        beyond = max(0.0, difference - mix - (margin if of == "score" else 0.0))
        p = min(1.0, times * len(now) * 2.0 * float(np.exp(-2.0 * beyond**2 * n * m / (n + m) / alike)))
        a, b = (old + _HALF) / (n + _HALF * len(old)), (new + _HALF) / (m + _HALF * len(new))
        found.append(Comparison(of, name, difference, p, float(np.sum((b - a) * np.log(b / a)))))
    return tuple(sorted(found, key=lambda one: (one.p_value, -one.difference)))


def names_of(model: ExplainedDetector, view: View | None) -> list[tuple[str, str]]:
    """Return what each of the counts is of, and its name."""
    names = [("score", "")]
    if view is not None:
        d = model.n_features_in_
        names += [("column", name) for name in model._names() or tuple(f"feature {j}" for j in range(d))]
        if view["root"] is not None:
            names += [("direction", str(j)) for j in range(d)]
    return names


def _score_edges(model: ExplainedDetector) -> Vector:
    """Return edges at the levels of the training scores."""
    return np.unique(model.score_levels_[:, 0].astype(np.float64))
