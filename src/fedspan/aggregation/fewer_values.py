"""Fit a rule to fewer values than it was set up for."""

from __future__ import annotations

from dataclasses import replace

from fedspan.aggregation.aggregator import Aggregator
from fedspan.aggregation.clip_norm import ClipNorm
from fedspan.aggregation.coordinate_wise import TrimmedMean
from fedspan.aggregation.geometric_medians import MedianOfMeans
from fedspan.aggregation.krum import Krum, MultiKrum


def for_fewer_values(aggregator: Aggregator, count: int) -> Aggregator:
    """Return the rule nearest to `aggregator` that `count` values allow; the same one, if they allow it.

    For sites that drop out in the middle of a run and for groups of them. Never for a rule that does not fit the
    federation. `MedianOfMeans` gets as many groups as values, `Krum`, `MultiKrum` and `TrimmedMean` assume as many
    malicious sites as they can among the rest. Each is the strictest that is defined, and tolerates fewer malicious
    sites than it was set up for.
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


def within_a_group(aggregator: Aggregator, count: int, all_values: int) -> Aggregator:
    """Return the rule for a group of `count` of `all_values` values, such as those of a cluster.

    All malicious sites that a rule was set up for may be in one group, which tolerates fewer than half of its size. A
    rule that does not fit all values stays as it is, and refuses them itself.
    """
    fits = for_fewer_values(aggregator, all_values) is aggregator
    return for_fewer_values(aggregator, count) if fits else aggregator
