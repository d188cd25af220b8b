"""What runs over the real thing gives the embedded engine's bytes."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.federation import SecureSum
from tests.engines.nvflare.conftest import SITES

pytestmark = pytest.mark.slow


@pytest.fixture
def fed(connected):
    return connected(policy=fs.Policy(quorum="all", max_bytes=2**28, run_deadline=600.0))


def pca(fed):
    return fs.FedPCA(2).fit(fed).components_


def fedpg(fed):
    return fs.FedPCA(2, solver="fedpg", max_rounds=15, tol=1e-2, random_state=3).fit(fed).components_


def landmarks(fed):
    return fs.FedLandmarks(5, rounds=4, random_state=1).fit(fed).landmarks_


def scaled(fed):
    return fs.FedPCA(2).fit(fs.FedStandardScaler().fit(fed).transform(fed)).components_


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("fit", [pca, fedpg, landmarks, scaled])
def test_same_bytes_as_embedded(fed, embedded, fit):
    assert fit(fed).tobytes() == fit(embedded()).tobytes()


def test_a_secure_sum_is_that_of_the_embedded_engine(connected, embedded):
    policy = fs.Policy(quorum="all", secure_sum=SecureSum(), run_deadline=600.0)
    fed = connected(seed=5, policy=policy)
    assert fed.sites == SITES
    # Not in the last bits: each real site fills a number below the bits that count by a secret of its own.
    np.testing.assert_allclose(pca(fed), pca(embedded(seed=5, policy=policy)), rtol=1e-12, atol=1e-14)


def test_large_messages_travel_both_ways(fed):
    from steps_at_sites import listen, many_bytes

    reply = fed.ask(many_bytes, ["north"], size=64 * 2**20)["north"]
    assert reply["bytes"].tobytes() == np.arange(64 * 2**20, dtype=np.uint8).tobytes()
    bulk = np.arange(1_500_000, dtype=np.int64)  # 12 MB to each of three sites
    replies = fed.ask(listen, bulk=bulk)
    assert {name: reply["total"] for name, reply in replies.ok.items()} == dict.fromkeys(fed.sites, int(bulk.sum()))
