"""Aggregators: one value out of the values of many sites, and the trust that it puts in each of them.

All of them are called in one way, ``aggregator(values, weights=None) -> Aggregate(value, weights, certificate)``, with
the values stacked along the first axis. They refuse what is not finite, and what a rule cannot do with the values that
came (`TrimmedMean` needs more than ``2 f``). Nothing is ever clamped.

The coordinator sets `weights`. Sample counts that the sites report are for `Mean` alone, so that only its
``believes_reported_weights`` is true: a malicious site may report any count.
"""

from __future__ import annotations

from fedspan.aggregation.aggregator import Aggregate, Aggregator
from fedspan.aggregation.clip_norm import ClipNorm
from fedspan.aggregation.coordinate_wise import CoordinateMedian, TrimmedMean
from fedspan.aggregation.geometric_medians import GeometricMedian, MedianOfMeans
from fedspan.aggregation.krum import Krum, MultiKrum
from fedspan.aggregation.majority_mean import MajorityMean
from fedspan.aggregation.mean import Mean
from fedspan.aggregation.spectral_filter import SpectralFilter

__all__ = [
    "Aggregate",
    "Aggregator",
    "ClipNorm",
    "CoordinateMedian",
    "GeometricMedian",
    "Krum",
    "MajorityMean",
    "Mean",
    "MedianOfMeans",
    "MultiKrum",
    "SpectralFilter",
    "TrimmedMean",
]
