"""Base of the detectors whose scores can be explained: each feature has a share of a row's score."""

from __future__ import annotations

import copy
import math
import os
from abc import abstractmethod
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Protocol, Self, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from fedspan.aggregation import Aggregator, CoordinateMedian
from fedspan.anomaly.detector import FedDetector, few_levels
from fedspan.anomaly.parts.drift_counts import fits_a_message, view_counts, view_of
from fedspan.anomaly.parts.exported_detector import export, one_row_scorer
from fedspan.anomaly.parts.gateway_sums import summed
from fedspan.anomaly.parts.recalibration import (
    Followed,
    common_threshold,
    edges_around,
    followed,
    sketch_edges,
    thresholds_by_site,
    usual_counts,
)
from fedspan.anomaly.parts.score_grid import quantile_between, score_counts, shares_up_to, spread
from fedspan.checks import real_number, true_or_false
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.sums.batches import Fading
from fedspan.sums.quantiles import quantiles
from fedspan.sums.row_moments import RowMoments

Vector = NDArray[np.float64]


class Watcher(Protocol):
    """What watches the batches of a stream, such as a `DriftMonitor`."""

    def watch(self, X: Any, *, sites: Any = None, window: str | None = None) -> Any:
        """Look at the rows of a window, before a model learns from them."""


class ExplainedDetector(FedDetector):
    """Base of the detectors that score and explain single rows."""

    n_features_in_: int
    n_samples_: int
    #: Whether all scores move when a model learns on, so that those counted before must move along.
    _scores_shift = False

    #: After `recalibrate` with ``per_site``: minus the threshold of each site.
    site_offsets_: dict[str, float]
    #: After `recalibrate` or `follow`: the threshold when it was last set, and its distance from the median score.
    anchor_: float
    score_spread_: float

    #: The rows of the first fit, counted by column and direction, and how these are seen. See `fedspan.drift`.
    baseline_counts_: NDArray[np.float32]
    baseline_mean_: Vector
    baseline_scale_: Vector | None
    baseline_root_: Vector | None

    #: After `partial_fit`: edges (q,) around the first threshold, and scores counted between them (q + 1,).
    sketch_edges_: Vector
    sketch_counts_: Vector

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sites: Any = None,
        decay: float = 1.0,
        half_life: float | str | timedelta | None = None,
        batch: str | None = None,
        at: str | float | datetime | None = None,
        monitor: Watcher | None = None,
    ) -> Self:
        """Learn on from new rows alone, a table (with ``sites``) or a federation; the first call is a fit.

        What rests on moments and counts is with ``decay=1`` that of all rows at once. The threshold comes from counts
        of scores between edges 0.4 % apart. Each row has the score that the model of its time gave it, as if the row
        had been left out. Where sites may be malicious, the detector's aggregator or resilient solver combines the
        moments, counts and shares of each batch.

        Parameters are those of `FedPCA.partial_fit`, and `monitor`: a `DriftMonitor` that compares the rows
        with its reference before the model learns from them.
        """
        if monitor is not None and hasattr(self, "offset_"):
            monitor.watch(X, sites=sites, window=batch)
        fading = Fading.of(decay, half_life, at)
        self._check_exact_sums()
        first = not hasattr(self, "offset_")

        def learn(fed: Federation, factor: float) -> None:
            self._start_sketch(rows=0.0 if first else None)
            if first:
                self._keep_sums(fed)
            else:
                self.sketch_counts_ = factor * self._comparable() * self.sketch_counts_
                before = self._sketched(self._scored(fed)) if self._scores_shift else None
                self._learn_on(fed, factor)
            new = self._sketched(self._training_scores(fed))
            if not first and before is not None:
                new = self._shift_sketch(before, new)
            self.sketch_counts_ = self.sketch_counts_ + new
            if not first:
                threshold = quantile_between(self.sketch_edges_, self.sketch_counts_, self._level())
                self.offset_ = -threshold * (1.0 + self._rounding)
                self.score_levels_ = few_levels(self.sketch_edges_, shares_up_to(self.sketch_counts_[None])[0])

        return self._learn_batch(X, y, sites, batch, fading, first=first, learn=learn)

    def learn_sums(
        self,
        fed: Federation,
        *,
        decay: float = 1.0,
        half_life: float | str | timedelta | None = None,
        batch: str | None = None,
        at: str | float | datetime | None = None,
    ) -> Self:
        """Learn on from the sums that gateways have kept of their rows; parameters are those of `partial_fit`.

        The sites are those that `fedspan.gateway_site` makes of ``fedspan gateway --periods``. Sums alone are needed.
        """
        check_is_fitted(self)
        fading = Fading.of(decay, half_life, at)
        self._check_exact_sums()

        def learn(sums: Federation, factor: float) -> None:
            self._start_sketch()
            centre = getattr(self, "baseline_mean_", np.zeros(self.n_features_in_))
            rows, found = summed(centre, self.sketch_edges_, sums)
            self._learn_kept(rows, found, factor, sums)
            self.sketch_counts_ = factor * self.sketch_counts_ + found["counts"]
            threshold = quantile_between(self.sketch_edges_, self.sketch_counts_, self._level())
            self.offset_ = -threshold * (1.0 + self._rounding)
            self.score_levels_ = few_levels(self.sketch_edges_, shares_up_to(self.sketch_counts_[None])[0])

        return self._learn_batch(fed, None, None, batch, fading, first=False, learn=learn, rows=False)

    @abstractmethod
    def _learn_kept(self, rows: RowMoments, found: dict[str, Any], factor: float, fed: Federation) -> None:
        """Learn from the moments of new rows and other sums of gateways; rows before count by `factor`."""

    def _learn_threshold(
        self, fed: Federation, aggregator: Aggregator | None = None, search: Callable[..., Vector] | None = None
    ) -> None:
        super()._learn_threshold(fed, aggregator, search)
        self.__dict__.pop("baseline_counts_", None)
        view = view_of(self)
        # With noise, further counts would cost more of the budget.
        if search is None and fits_a_message(view, fed.policy.max_bytes):
            self.baseline_counts_ = view_counts(view, fed, None, aggregator)
            self.baseline_mean_, self.baseline_scale_, self.baseline_root_ = view["mean"], view["scale"], view["root"]

    def _change_units(self, factor: Vector, shift: Vector) -> None:
        super()._change_units(factor, shift)
        if hasattr(self, "baseline_counts_"):  # the counts stay what they are
            self.baseline_mean_ = factor * self.baseline_mean_ + shift
            self.baseline_scale_ = factor * (1.0 if self.baseline_scale_ is None else self.baseline_scale_)

    def _start_sketch(self, rows: float | None = None) -> None:
        """Begin to count scores; of a model that `fit` has made, with the rows that it was fitted on."""
        if hasattr(self, "sketch_counts_"):
            return
        edges = sketch_edges(-self.offset_)
        self.sketch_edges_ = edges[0]
        self.sketch_counts_ = usual_counts(self.score_levels_, edges, self.n_samples_ if rows is None else rows)

    def _sketched(self, scored: Federation) -> Vector:
        """Return the number (q + 1,) of scores between the edges of the sketch."""
        return np.asarray(score_counts(scored, self.sketch_edges_[None], self._of_new_shares())[0])

    def _shift_sketch(self, before: Vector, after: Vector) -> Vector:
        """Move the edges by as much as the scores of new rows have moved; return their counts between these edges.

        `before` and `after` count the same rows, by the model before it learned from them and after.
        """
        old = self.sketch_edges_
        shift = quantile_between(old, after, self._level()) - quantile_between(old, before, self._level())
        self.sketch_edges_ = old + shift
        up_to = np.interp(self.sketch_edges_, old, np.cumsum(after)[:-1])
        return np.diff(up_to, prepend=0.0, append=float(after.sum()))

    def _comparable(self) -> float:
        """Return how far scores so far are comparable with those that follow, from 0 to 1."""
        return 1.0

    def _check_exact_sums(self) -> None:
        """Refuse parameters with which sums are not exact."""
        given = self.get_params(deep=False)
        if given.get("privacy") is not None:
            raise InputError("partial_fit adds sums up, and takes no privacy=...")

    def _of_new_shares(self) -> Aggregator | None:
        """Return the rule for the shares of new rows between edges: their median, where sites may be malicious."""
        return None if self.get_params(deep=False).get("aggregator") is None else CoordinateMedian()

    def _keep_sums(self, fed: Federation) -> None:
        """Learn the sums of the first rows that `partial_fit` adds to, where ``fit`` has not kept them."""

    @abstractmethod
    def _learn_on(self, fed: Federation, factor: float) -> None:
        """Learn from new rows; those before count by `factor`."""

    def export(self, path: str | os.PathLike[str], *, precision: str = "double") -> None:
        """Write the detector to a file that runs without fedspan.

        Parameters
        ----------
        path : path
            ``detector.npz``: plain arrays, for ``fedspan gateway``, which needs numpy alone. ``detector.onnx`` (extra
            ``onnx``): a graph with the input ``rows`` (n, d) and the outputs ``score`` and ``alarm`` (n,), ``shares``
            (n, d) of the columns in the score, and ``top_features`` (n, 3), the numbers of those with the largest.
        precision : {"double", "single"}, default="double"
            Of the input and the output of an ONNX file.
        """
        check_is_fitted(self)
        export(self, path, precision)

    def recalibrate(
        self,
        X: Any,
        *,
        sites: Any = None,
        per_site: bool = False,
        contamination: float = 0.015,
        borrowed: float = 20.0,
    ) -> Self:
        """Set the threshold by recent rows of a table (with ``sites``) or a federation, such as those of a new site.

        The scores stay as they are. Some hundreds of rows that are normal, or nearly all so, are enough.

        Parameters
        ----------
        per_site : bool, default=False
            False: ``offset_`` becomes that of all these rows together, and sums are enough. True: each site gets a
            threshold of its own in ``site_offsets_``, for ``predict(X, site="name")``; that needs single replies.
        contamination : float, default=0.015
            The share of these rows that may be attacks: the quantile is taken of the others, as if all of these were at
            the top. With 0.015 and 5 % false alarms wanted, 6.4 % of rows without attacks are above the threshold; with
            5 % of attacks among 500 rows about 1.7 % of the others still are.
        borrowed : float, default=20.0
            The number of training rows that are counted along: a site with few rows has nearly the common threshold.
        """
        check_is_fitted(self)
        real_number("contamination", contamination, least=0, below=1)
        real_number("borrowed", borrowed, least=0)
        true_or_false("per_site", per_site)
        edges = edges_around(-self.offset_)
        level = float(self.quantile) * (1.0 - contamination)
        usual = usual_counts(self.score_levels_, edges, float(borrowed))
        with self._scores_of(X, sites).begin("recalibrate", {"per_site": bool(per_site)}) as scored:
            if per_site:
                found = thresholds_by_site(scored, edges=edges, level=level, usual=usual)
                self.site_offsets_ = {**getattr(self, "site_offsets_", {}), **{s: -t for s, t in found.items()}}
                return self
            threshold = common_threshold(scored, edges=edges, level=level, usual=usual)
            self._set_anchor(scored, threshold)
        self.offset_ = -threshold
        return self

    def follow(
        self, X: Any, *, sites: Any = None, rate: float = 3.0, cap: float = 0.5, new_period: bool = False
    ) -> Followed:
        """Let the threshold follow a slow drift: call it with the rows of each window, a table or a federation.

        The share of rows above the threshold stays at ``1 - quantile`` in the mean over many windows. An attacker that
        sends rows with ever higher scores could raise the threshold. So it changes by at most `cap`, and a warning
        states when it would have changed by more.

        Parameters
        ----------
        rate : float, default=3.0
            How fast it follows: a window with a share of 1 - quantile + 0.1 of rows above it moves it by ``0.1 rate``
            spreads. A spread is the distance between threshold and median score.
        cap : float, default=0.5
            The largest change, in spreads, since it was last set by ``fit`` or `recalibrate`, or since the last call
            with `new_period`.
        new_period : bool, default=False
            Whether a period, such as a day, begins with this window: the cap is about the change from now on.
        """
        check_is_fitted(self)
        real_number("rate", rate, above=0)
        real_number("cap", cap, above=0)
        true_or_false("new_period", new_period)
        with self._scores_of(X, sites).begin("follow", {"rate": float(rate), "cap": float(cap)}) as scored:
            if not hasattr(self, "anchor_"):
                self._set_anchor(scored, -self.offset_)
            if new_period:
                self.anchor_ = -self.offset_
            place = {"threshold": -self.offset_, "anchor": self.anchor_, "width": self.score_spread_}
            share = 1.0 - float(self.quantile)
            found = followed(scored, **place, share=share, rate=float(rate), cap=float(cap))
        self.offset_ = -found.threshold
        return found

    def predict(self, X: Any, site: str | None = None) -> Any:
        """Return for each row (n,) +1 where it is normal, -1 where its anomaly score is above the threshold.

        With `site` the threshold is that site's own (`recalibrate`), or the common one if it has none.
        """
        return super(ExplainedDetector, self._at(site)).predict(X)

    def decision_function(self, X: Any, site: str | None = None) -> Any:
        """Return ``score_samples(X) - offset_`` (n,), or with the offset of a `site`: negative for outliers."""
        return super(ExplainedDetector, self._at(site)).decision_function(X)

    def _at(self, site: str | None) -> Self:
        """Return the detector with the threshold of a site."""
        if site is None:
            return self
        check_is_fitted(self)
        one = copy.copy(self)
        one.offset_ = getattr(self, "site_offsets_", {}).get(site, self.offset_)
        return one

    def _scores_of(self, X: Any, sites: Any) -> Federation:
        """Return the federation whose sites see the scores of their rows."""
        return self._scored(self._as_federation(X, None, sites, reset=False))

    def _set_anchor(self, scored: Federation, threshold: float) -> None:
        """Remember where the threshold was set, and its distance from the median of the scores."""
        middle = float(quantiles(scored, level=0.5)[0])
        self.anchor_, self.score_spread_ = threshold, float(spread(np.array([middle]), np.array([threshold]))[0])

    @abstractmethod
    def _shares(self, X: NDArray[Any]) -> Vector:
        """Return the share of every feature in the score of every row (n, d); they sum to 1, or are all 0."""

    def score_one(self, x: Any) -> float:
        """Return ``score_samples`` of one row (d,), without its checks: for streams."""
        row = self._row(x)
        with np.errstate(over="ignore", invalid="ignore"):
            score = self._one_score(row)
        if not math.isfinite(score):
            self._row(x, finite=True)
            score = math.inf
        return -score

    def explain(self, X: Any) -> Vector:
        """Return each feature's share of the anomaly score: for one row (d,), or for every row (n, d).

        Shares are not negative and sum to 1; a row with the score 0 has shares 0.
        """
        check_is_fitted(self)
        if np.ndim(X) != 1:
            return self._shares(self._validated(X))
        return cast(Vector, self._shares(self._row(X, finite=True)[None])[0])

    def top_features(self, x: Any, count: int = 5) -> list[tuple[str, float]]:
        """Return the features with the largest shares of one row's score, the largest first, as (name, share)."""
        shares = self.explain(np.ravel(x))
        names = self._names() or tuple(f"feature {j}" for j in range(len(shares)))
        return [(names[j], float(shares[j])) for j in np.argsort(-shares, kind="stable")[:count]]

    def _level_of_new_rows(self) -> float:
        """Return the level of scores of n rows left out above which a share ``1 - quantile`` of new rows is expected.

        A new score is equally likely in each of the n + 1 gaps between n others.
        """
        n = max(self.n_samples_, 1)
        return min(1.0, float(self.quantile) * (n + 1) / n)

    def _one_score(self, row: Vector) -> float:
        """Return the anomaly score of one row (d,)."""
        return one_row_scorer(self).score_one(row)

    def _anomaly(self, X: Any) -> Vector:
        return self._scores(self._validated(X))

    def _row(self, x: Any, finite: bool = False) -> Vector:
        row: Vector = np.asarray(x, dtype=np.float64)
        if row.shape != (self.n_features_in_,):
            raise InputError(f"x has the shape {row.shape}, and must be one row of {self.n_features_in_} numbers")
        if finite and not np.isfinite(row).all():
            raise InputError("x holds NaN or infinity: fill or drop them first")
        return row
