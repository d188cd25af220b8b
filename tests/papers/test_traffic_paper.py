"""Traffic of small made-up tables: splits, sites, logarithms, and hosts that are held out."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from fedspan.datasets.bunch import Bunch
from fedspan.papers.fedpca import traffic_paper
from fedspan.papers.fedpca.traffic_paper import SOURCES, held_out_hosts, signed_log, traffic


@pytest.fixture
def table(monkeypatch):
    """30,000 normal rows of 60 hosts, and 100 attacks."""
    rng = np.random.default_rng(0)
    n = 30_100
    made = Bunch(
        name="made up",
        data=rng.normal(size=(n, 3)) * 100,
        target=np.repeat([0, 1], [30_000, 100]),
        feature_names=np.array(["src_port", "bytes", "row"]),
        src_ip=np.repeat([f"host {i}" for i in range(60)], n // 60 + 1)[:n],
        type=np.repeat(["normal", "dos"], [30_000, 100]),
    )
    made.data[:, 2] = np.arange(n)
    sizes = {"train_normals": 500, "test_normals": 200, "attacks": 50}
    monkeypatch.setitem(SOURCES, "TON-IoT", SOURCES["TON-IoT"]._replace(load=lambda: made, sizes=sizes))
    traffic_paper._loaded.cache_clear()
    yield made
    traffic_paper._loaded.cache_clear()


def test_rows_train_or_test_and_sites_are_blocks_of_the_sorted_column(table):
    found = traffic("TON-IoT", seed=1, n_sites=5)
    assert not set(found.X_train[:, 2]) & set(found.X_test[:, 2])
    assert (found.y_test.sum(), len(found.y_test)) == (50, 250)
    np.testing.assert_array_equal(found.kinds == "dos", found.y_test == 1)
    ranges = sorted(
        (found.X_train[found.sites == site, 0].min(), found.X_train[found.sites == site, 0].max())
        for site in np.unique(found.sites)
    )
    assert len(ranges) == 5
    assert all(high <= low for (_, high), (low, _) in pairwise(ranges))


def test_logarithms_keep_signs_and_zeros(table):
    plain, log = traffic("TON-IoT"), traffic("TON-IoT", log=True)
    np.testing.assert_allclose(log.X_train, signed_log(plain.X_train))
    np.testing.assert_array_equal(log.sites, plain.sites)
    assert log.name == "TON-IoT, log"
    np.testing.assert_allclose(signed_log(np.array([-np.e + 1, 0.0, np.e - 1])), [-1.0, 0.0, 1.0])


def test_no_host_trains_and_tests(table):
    found = held_out_hosts(seed=0)
    rows = [np.rint(np.expm1(X[:, 2])).astype(int) for X in (found.X_train, found.X_test[found.y_test == 0])]
    trained, tested = (set(table.src_ip[some]) for some in rows)
    assert not trained & tested
    assert len(rows[1]) == 10_000
