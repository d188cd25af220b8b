"""The rule to use when fewer values came than a rule was set up for."""

from __future__ import annotations

from dataclasses import replace

from fedspan.aggregation.base import Aggregator
from fedspan.aggregation.clip_norm import ClipNorm
from fedspan.aggregation.krum import Krum
from fedspan.aggregation.median_of_means import MedianOfMeans
from fedspan.aggregation.multi_krum import MultiKrum
from fedspan.aggregation.trimmed_mean import TrimmedMean


def for_fewer_values(aggregator: Aggregator, count: int) -> Aggregator:
    """Return the rule nearest to `aggregator` that `count` values allow; the same one, if they allow it.

    For sites that drop out in the middle of a run and for groups of them, never for a rule that does not fit the
    federation. `MedianOfMeans` gets as many groups as values, `Krum`, `MultiKrum` and `TrimmedMean` assume as many bad
    sites as they can among those that are left. Each is the strictest that is defined, and tolerates fewer liars than
    it was set up for.

    Examples
    --------
    >>> for_fewer_values(MedianOfMeans(9), 7), for_fewer_values(Krum(3), 7), for_fewer_values(TrimmedMean(2), 7)
    (MedianOfMeans(groups=7), Krum(f=2), TrimmedMean(f=2))
    """
    match aggregator:
        case MedianOfMeans(groups=groups) if groups > count:
            return replace(aggregator, groups=max(1, count))
        case Krum(f=f) if count < 2 * f + 3:
            return replace(aggregator, f=max(0, (count - 3) // 2))
        case MultiKrum(f=f, m=m) if count < 2 * f + 3 or m > count - f:
            fewer = min(f, max(0, (count - 3) // 2))
            return replace(aggregator, f=fewer, m=max(1, min(m, count - fewer)))
        case TrimmedMean(f=f) if 2 * f >= count:
            return replace(aggregator, f=max(0, (count - 1) // 2))
        case ClipNorm(aggregator=inner):
            fitting = for_fewer_values(inner, count)
            return aggregator if fitting is inner else replace(aggregator, aggregator=fitting)
        case _:
            return aggregator


def within_a_group(aggregator: Aggregator, count: int, everybody: int) -> Aggregator:
    """Return the rule for `count` of `everybody`, who are said to be a group of their own: a cluster, for example.

    All the liars that a rule was set up for may be in one group, which bears fewer than half of its own size. A rule
    that does not fit everybody is left as it is, and says so itself.

    Examples
    --------
    >>> within_a_group(Krum(20), 25, 100), within_a_group(Krum(60), 25, 100)
    (Krum(f=11), Krum(f=60))
    """
    fits = for_fewer_values(aggregator, everybody) is aggregator
    return for_fewer_values(aggregator, count) if fits else aggregator
