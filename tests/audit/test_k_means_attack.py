"""Rows in differences of k-means sums."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.audit import Received, audit
from fedspan.audit.k_means_attack import KMeansSums
from fedspan.linalg.kernels.nearest_centres import rounded_mean


def two_rounds():
    """Sums of two rounds by hand: row 2 moves from the first centre to the second, about the mean 3.5."""
    X = np.array([[0.0], [1.0], [2.5], [5.0], [6.0], [6.5]])
    first, second = [[0, 1, 2], [3, 4, 5]], [[0, 1], [2, 3, 4, 5]]
    shift = rounded_mean(X.mean(axis=0), X.var(axis=0))
    sums = np.array([(X[rows] - shift).sum(axis=0) for rows in first + second])
    return X, KMeansSums(sums, np.array([3, 3, 2, 4]), shift, 2)


def test_a_row_that_changes_its_centre_is_found_in_the_sums():
    X, given = two_rounds()
    card = audit(Received("toy", "journal", k_means_sums=given, of_rows=True), truth=X, bounds=(0.0, 7.0))
    (entry,) = card.entries
    assert entry.attack == "k-means sums: differences"
    # Where it left and where it came; and the difference of the two centres, before and after.
    assert entry.facts["found_twice"] == 4
    assert entry.facts["right_of_found_twice"] == 0.5
    assert entry.facts["exact_rows"] == 1
    assert entry.measures["exact"] == pytest.approx(1 / 6)
    assert np.isclose(entry.rebuilt, 2.5).sum() == 2
    assert "Of 4 differences" in entry.verdict


@pytest.mark.parametrize("secure", [False, True])
def test_lloyd_reveals_rows_and_guarded_sums_do_not(secure, tmp_path):
    X = np.random.default_rng(0).normal(size=(150, 4))
    sites = np.arange(150) % 3
    truth = {str(site): X[sites == site] for site in range(3)}
    found = {}
    for least_rows in (1, 5):
        policy = fs.Policy(secure_sum=secure)
        with fs.federate(X, sites=sites, run_dir=tmp_path / str(least_rows), policy=policy) as fed:
            fs.FedKMeans(10, random_state=0, max_iter=30, least_rows=least_rows).fit(fed)
        found[least_rows], *searches = audit(tmp_path / str(least_rows), truth=truth).entries
    assert found[1].facts["exact_rows"] > 10
    assert found[1].facts["found_twice"] > 10
    assert found[5].facts["exact_rows"] == 0
    assert found[5].facts["found_twice"] == 0
    assert searches == []
