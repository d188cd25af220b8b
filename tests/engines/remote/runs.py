"""Two runs of a paper's algorithm, whose sites keep state, and the bytes that they end with when nothing happens."""

from __future__ import annotations

from functools import cache

import numpy as np

import fedspan as fs
from fedspan.landmarks.feddl import feddl
from fedspan.pca.fedpg import fedpg

RUNS = {
    "fedpg": (fedpg, {"rank": 2, "n_columns": 4, "participation": 0.7, "local_steps": 2, "max_rounds": 7}),
    "feddl": (feddl, {"n_landmarks": 4, "rounds": 6, "n_frequencies": 8}),
}


def sites():
    rng = np.random.default_rng(3)
    return [fs.Site(name, rng.normal(loc=i, size=(9 + i, 4))) for i, name in enumerate("abc")]


@cache
def expected(name):
    protocol, options = RUNS[name]
    from tests.laws.protocol_laws import as_bytes

    return as_bytes(fs.LocalFederation(sites(), seed=1).run(protocol, **options))
