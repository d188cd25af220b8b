"""Base of the detectors whose scores can be explained: each feature has a share of a row's score."""

from __future__ import annotations

import copy
import math
import os
from abc import abstractmethod
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from fedspan.anomaly.export.exported_detector import export, one_row_scorer
from fedspan.anomaly.parts.learning_detector import LearningDetector
from fedspan.anomaly.parts.recalibration import (
    Followed,
    common_threshold,
    edges_around,
    followed,
    thresholds_by_site,
    usual_counts,
)
from fedspan.anomaly.parts.score_grid import spread
from fedspan.arrays import Vector
from fedspan.checks import real_number, true_or_false
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.sums.quantiles import quantiles


class ExplainedDetector(LearningDetector):
    """Base of the detectors that score and explain single rows."""

    #: After `recalibrate` with ``per_site``: minus the threshold of each site.
    site_offsets_: dict[str, float]
    #: After `recalibrate` or `follow`: the threshold when it was last set, and its distance from the median score.
    anchor_: float
    score_spread_: float

    def export(self, path: str | os.PathLike[str], *, precision: str = "double", site: str | None = None) -> None:
        """Write the detector to a file that runs without fedspan.

        Parameters
        ----------
        path : path
            ``detector.npz``: plain arrays, for ``fedspan gateway``, which needs numpy alone. ``detector.onnx`` (extra
            ``onnx``): a graph with the input ``rows`` (n, d) and the outputs ``score`` and ``alarm`` (n,), ``shares``
            (n, d) of the columns in the score, and ``top_features`` (n, 3), the numbers of those with the largest.
        precision : {"double", "single"}, default="double"
            Of the input and the output of an ONNX file.
        site : str, optional
            Write the threshold of this site (`recalibrate` with ``per_site``), or the common one if it has none.
        """
        check_is_fitted(self)
        export(self, path, precision, threshold=-self._at(site).offset_)

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
            The number of training rows that are counted along. With `per_site` a site with fewer than about
            ``5 / (1 - quantile)`` rows, 78 with these defaults, goes a part of the way from the common threshold
            to its own: the square of its rows over that number.
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
                found = thresholds_by_site(scored, edges=edges, level=level, usual=usual, common=-self.offset_)
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
