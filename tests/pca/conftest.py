"""Sites that share a subspace."""

from __future__ import annotations

import pytest

import fedspan as fs
from fedspan.datasets import make_subspace_sites

from .subspace_sites import SITES, N, R


@pytest.fixture(scope="module")
def data():
    return make_subspace_sites(N, R, SITES, 60, tail=0.015, seed=5)


@pytest.fixture
def fed(data):
    return fs.federate(data.X, sites=data.sites, seed=2)
