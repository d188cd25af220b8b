"""Aggregators: one value out of the values of many sites, and whom it rests on.

All of them are called in one way, ``aggregator(values, weights=None) -> Aggregate(value, weights, certificate)``, with
the values stacked along the first axis. What is not finite is refused, and so is what a rule cannot do with the
values that came (`TrimmedMean` needs more than ``2 f``): nothing is ever clamped.

`weights` are for the coordinator to set. Sample counts that the sites report are for `Mean` alone, which is why only
its ``believes_reported_weights`` is true: a bad site may report any count.
"""

from __future__ import annotations

from fedspan.aggregation.base import Aggregate, Aggregator
from fedspan.aggregation.clip_norm import ClipNorm
from fedspan.aggregation.coordinate_median import CoordinateMedian
from fedspan.aggregation.geometric_median import GeometricMedian
from fedspan.aggregation.krum import Krum
from fedspan.aggregation.mean import Mean
from fedspan.aggregation.median_of_means import MedianOfMeans
from fedspan.aggregation.multi_krum import MultiKrum
from fedspan.aggregation.spectral_filter import SpectralFilter
from fedspan.aggregation.trimmed_mean import TrimmedMean

__all__ = [
    "Aggregate",
    "Aggregator",
    "ClipNorm",
    "CoordinateMedian",
    "GeometricMedian",
    "Krum",
    "Mean",
    "MedianOfMeans",
    "MultiKrum",
    "SpectralFilter",
    "TrimmedMean",
]
