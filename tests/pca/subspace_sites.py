"""Sites that share a subspace, and the error of one honest site alone: the unit of resilience."""

from __future__ import annotations

import numpy as np

import fedspan as fs
from fedspan.linalg import subspace_distance
from fedspan.pca.subspace_median import subspace_median

N, R, SITES = 40, 3, 10


def honest_error(data):
    """Return the median error of an honest site alone: the unit in which resilience is measured."""
    sites = fs.federate(data.X, sites=data.sites)
    alone = [sites.subset([name]).run(subspace_median, rank=R).basis for name in sites.sites]
    return float(np.median([subspace_distance(basis, data.basis) for basis in alone]))
