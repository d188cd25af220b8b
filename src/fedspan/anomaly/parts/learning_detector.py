"""Base of the detectors that keep learning from new rows, or from sums that gateways have kept."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from fedspan.aggregation import Aggregator, CoordinateMedian
from fedspan.anomaly.detector import FedDetector, few_levels
from fedspan.anomaly.parts.drift_counts import fits_a_message, view_counts, view_of
from fedspan.anomaly.parts.gateway_sums import summed
from fedspan.anomaly.parts.recalibration import sketch_edges, usual_counts
from fedspan.anomaly.parts.score_grid import quantile_between, score_counts, shares_up_to, tempered
from fedspan.arrays import Vector
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.sums.batches import Fading
from fedspan.sums.row_moments import RowMoments

#: The levels by which scores of a young model are moved: shares above them, in units of that above the threshold.
_AROUND = (2.0, 0.4, 15)


class Watcher(Protocol):
    """What watches the batches of a stream, such as a `DriftMonitor`."""

    def watch(self, X: Any, *, sites: Any = None, window: str | None = None) -> Any:
        """Look at the rows of a window, before a model learns from them."""


class LearningDetector(FedDetector):
    """Base of the detectors whose models and thresholds follow a stream of rows."""

    n_features_in_: int
    n_samples_: int
    #: Whether all scores move when a model learns on, so that those counted before must move along.
    _scores_shift = False

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
        """Keep learning from new rows alone, a table (with ``sites``) or a federation; the first call is a fit.

        What rests on moments and counts is with ``decay=1`` that of all rows at once. The threshold comes from counts
        of scores between edges 0.4 % apart. Each row has the score that the model gave it before it learned from the
        row. Of a batch with far more alarms than were asked for, most do not count: after a sudden shift, these scores
        say nothing about those of a model that has learned from it. With ``decay=1`` a score counts by the number of
        rows of its model. Of more than 16,384 new rows `FedAnomalyDetector` scores a sample, which moves its centres,
        too. Where sites may be malicious, the detector's aggregator or resilient solver combines the
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
                self.sketch_counts_ = self.sketch_counts_ + self._sketched(self._training_scores(fed))
            elif self._in_one_call():
                self._learn_scored(*self._new_sums(fed), factor, fed)
            else:
                new = self._sketched(self._scored(fed))

                def update() -> None:
                    self._learn_on(fed, factor)
                    if self._scores_shift:
                        self._shift_sketch(new, self._sketched(self._training_scores(fed)))

                self._count_scores(new, factor, update)

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
        """Keep learning from the sums that gateways have kept of their rows; parameters are those of `partial_fit`.

        The sites are those that `fedspan.gateway_site` makes of ``fedspan gateway --periods``. Sums alone are needed.
        """
        check_is_fitted(self)
        fading = Fading.of(decay, half_life, at)
        self._check_exact_sums()

        def learn(sums: Federation, factor: float) -> None:
            self._start_sketch()
            centre = getattr(self, "baseline_mean_", np.zeros(self.n_features_in_))
            rows, found = summed(centre, self.sketch_edges_, sums)
            self._learn_scored(rows, found, factor, sums)

        return self._learn_batch(fed, None, None, batch, fading, first=False, learn=learn, rows=False)

    def _in_one_call(self) -> bool:
        """Return whether the detector learns from new rows as from the sums of gateways, in one call."""
        return False

    def _new_sums(self, fed: Federation) -> tuple[RowMoments, dict[str, Any]]:
        """Return the moments of new rows and the other sums that gateways keep."""
        raise NotImplementedError

    def _learn_scored(self, rows: RowMoments, found: dict[str, Any], factor: float, fed: Federation) -> None:
        """Learn from sums of rows that were scored by this model, to which they were new."""
        self._count_scores(found["counts"], factor, lambda: self._learn_kept(rows, found, factor, fed))

    def _count_scores(self, new: Vector, factor: float, learn: Callable[[], None]) -> None:
        """Count the scores of new rows by the model as it was before it learns from them, and take the threshold.

        Without fading a score counts by the number of rows of the model that it comes from: the next model's count in
        full. Where old rows fade, scores do so alike.
        """
        before, comparable = factor * self.n_samples_, self._comparable()
        learn()
        youth = min(1.0, before / max(self.n_samples_, 1)) if factor == 1.0 else 1.0
        youth *= comparable / (max(comparable, self._comparable()) or 1.0)
        new = tempered(new, self.sketch_edges_, -self.offset_, 1.0 - self.quantile)
        self.sketch_counts_ = youth * (factor * self.sketch_counts_ + new)
        self._take_threshold()

    def _take_threshold(self) -> None:
        """Take the threshold from the counts of scores."""
        threshold = quantile_between(self.sketch_edges_, self.sketch_counts_, self._level())
        self.offset_ = -threshold * (1.0 + self._rounding)
        self.score_levels_ = few_levels(self.sketch_edges_, shares_up_to(self.sketch_counts_[None])[0])

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

    def _shift_sketch(self, before: Vector, after: Vector) -> None:
        """Move the edges by as much as the scores of new rows have, counted `before` the model learned and `after`."""
        edges, above = self.sketch_edges_, 1.0 - self._level()
        # The mean of several quantiles around the threshold: a single one of few rows is noise, and noise adds up.
        levels = 1.0 - above * np.linspace(*_AROUND)
        shifts = [quantile_between(edges, after, level) - quantile_between(edges, before, level) for level in levels]
        self.sketch_edges_ = edges + np.mean(shifts)

    def _comparable(self) -> float:
        """Return how far scores of this model are comparable with those of one of very many rows, from 0 to 1."""
        return 1.0

    def _check_exact_sums(self) -> None:
        """Refuse parameters with which sums are not exact."""
        given = self.get_params(deep=False)
        if given.get("privacy") is not None:
            raise InputError(
                "partial_fit takes no privacy=...: each batch would have the noise of a fit: collect rows, then fit"
            )

    def _of_new_shares(self) -> Aggregator | None:
        """Return the rule for the shares of new rows between edges: their median, where sites may be malicious."""
        return None if self.get_params(deep=False).get("aggregator") is None else CoordinateMedian()

    def _keep_sums(self, fed: Federation) -> None:
        """Learn the sums of the first rows that `partial_fit` adds to, where ``fit`` has not kept them."""

    @abstractmethod
    def _learn_on(self, fed: Federation, factor: float) -> None:
        """Learn from new rows; `factor` multiplies the weight of earlier rows."""

    def _level_of_new_rows(self) -> float:
        """Return the level of scores of n rows left out above which a share ``1 - quantile`` of new rows is expected.

        A new score is equally likely in each of the n + 1 gaps between n others.
        """
        n = max(self.n_samples_, 1)
        return min(1.0, float(self.quantile) * (n + 1) / n)
