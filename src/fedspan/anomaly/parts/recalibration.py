"""Move a threshold to where it keeps its false-alarm rate: for a new site, for each site, or for a slow drift.

A quantile is taken of the scores of recent rows, counted between edges around the threshold. A site with few rows
borrows from the training rows. Some of the recent rows may be attacks, so that the quantile is taken a little lower.

Where rows drift, the threshold follows the share of rows above it. With a share e in a window, and 1 - quantile = a, it
moves by ``rate (e - a) w``. w is the distance of the threshold from the median of the scores. Over many windows the
mean share is then a, whatever the drift (I. Gibbs and E. J. Candès, "Adaptive conformal inference under distribution
shift", NeurIPS 2021; A. N. Angelopoulos et al., "Conformal PID control for time series prediction", NeurIPS 2023).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedspan.anomaly.parts.score_grid import edge_above, local_score_counts, score_counts
from fedspan.arrays import Matrix, Vector
from fedspan.checks import frames_inside
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.sums.plausible_totals import whole

_EDGES, _REACH, _FINE = 1025, 5.5, 0.1
#: Rows that are expected beyond a site's own quantile, for its threshold to be that quantile.
_BEYOND = 5.0


def edges_around(threshold: float) -> Matrix:
    """Return edges (1, 1025) around a threshold: 0.1 % apart at it, to a hundred thousand times more and less."""
    least = np.finfo(np.float64).tiny * 1e20
    return np.asarray(max(threshold, least) * np.exp(_FINE * np.sinh(np.linspace(-_REACH, _REACH, _EDGES))))[None]


def sketch_edges(threshold: float) -> Matrix:
    """Return every fourth of the edges (1, 257) between which a threshold is interpolated."""
    return edges_around(threshold)[:, ::4]


def thresholds_by_site(
    scored: Federation, *, edges: Matrix, level: float, usual: Vector, common: float
) -> dict[str, float]:
    """Return the threshold of each site, from its own scores and `usual` (1026,) counts that it borrows.

    A quantile needs some rows beyond it. With fewer than `_BEYOND` expected there, a site's threshold moves from the
    `common` one by the square of that part of the way, in ratios: a few unusual rows, however large, can't move it far.
    """
    scored.need_single_replies("a threshold for each site")
    replies = scored.accept(scored.ask(local_score_counts, edges=edges), lambda reply: _checked(reply, edges))
    found = {}
    for site, reply in replies.items():
        counts = reply["counts"][0]
        part = min(1.0, float(counts.sum()) * (1.0 - level) / _BEYOND)
        start = max(common, np.finfo(np.float64).tiny)
        found[site] = start * (edge_above(edges[0], counts + usual, level) / start) ** part**2
    return found


def common_threshold(scored: Federation, *, edges: Matrix, level: float, usual: Vector) -> float:
    """Return the threshold of the scores of all sites together, which may borrow `usual` (1026,) counts."""
    counts = score_counts(scored, edges)[0]
    if not counts.sum() > 0:
        raise InputError("the sites have no rows: there is nothing to set a threshold by")
    return edge_above(edges[0], counts + usual, level)


def _checked(reply: dict[str, object], edges: Matrix) -> dict[str, object]:
    counts = np.asarray(reply.get("counts"))
    if counts.shape != (1, edges.shape[1] + 1) or counts.dtype.kind not in "iu" or (counts < 0).any():
        raise InputError("counts of scores must be whole numbers of at least 0, one for each gap between edges")
    return reply


def usual_counts(levels: NDArray[np.float32], edges: Matrix, rows: float) -> Vector:
    """Return the counts (q + 1,) of `rows` training rows between edges; `levels` (m, 2) has scores and shares."""
    up_to = np.interp(edges[0], levels[:, 0], levels[:, 1], left=0.0, right=1.0)
    return rows * np.diff(np.concatenate([[0.0], up_to, [1.0]]))


@dataclass(frozen=True)
class Followed:
    """A window of a stream.

    Attributes
    ----------
    rows : int
        In the window.
    alarms : float
        The share of its rows that were above the threshold.
    before, threshold : float
        The threshold before and after.
    capped : bool
        Whether the cap on its change was reached.
    """

    rows: int
    alarms: float
    before: float
    threshold: float
    capped: bool


def followed(
    scored: Federation, *, threshold: float, anchor: float, width: float, share: float, rate: float, cap: float
) -> Followed:
    """Return the next threshold: nearer to that above which a `share` of the rows of `scored` lies.

    It stays within `cap` times `width` of the `anchor`.
    """
    total = whole(scored.sum(local_score_counts, edges=np.array([[threshold]])), counts=(1, 2))
    below, above = (int(count) for count in total["counts"][0])
    if not below + above:
        raise InputError("the sites have no rows in this window: there is nothing to follow")
    found = above / (below + above)
    wanted = threshold + rate * (found - share) * width
    moved = min(max(wanted, anchor - cap * width), anchor + cap * width)
    capped = moved != wanted
    if capped:
        warnings.warn(
            f"the threshold has moved by its cap of {cap:g} spreads since it was last set, and {found:.1%} of the rows "
            "of this window were above it: find out which site's rows changed before you recalibrate",
            stacklevel=frames_inside(),
        )
    return Followed(below + above, found, threshold, moved, capped)
