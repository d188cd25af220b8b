"""Rows by centre: labels are computed once, in blocks, and checked."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.clustering.parts import rows_by_centre
from tests.clustering.cluster_examples import blobs


def test_the_labels_of_both_sums_of_a_round_are_computed_once(monkeypatch):
    calls = []
    whole = rows_by_centre.closest
    monkeypatch.setattr(rows_by_centre, "closest", lambda X, C: calls.append(1) or whole(X, C))
    X, _ = blobs(100)
    model = fs.FedKMeans(3, init=X[:3], max_iter=4, tol=0.0).fit(fs.federate(X, sites=np.zeros(100)))
    assert len(calls) == model.n_iter_  # the last round's serve the inertia: the centres move no more
    assert sum(call.step == "clustering.cluster_means" for call in model.run_.calls) == model.n_iter_


def test_blocks_change_nothing(monkeypatch):
    X, _ = blobs(200)
    whole = fs.FedKMeans(6, random_state=0).fit(X.astype(np.float32))
    monkeypatch.setattr(rows_by_centre, "_BLOCK_BYTES", 8 * 6 * 20)
    monkeypatch.setattr(rows_by_centre, "_KEPT_BYTES", 0)
    parts = fs.FedKMeans(6, random_state=0).fit(X.astype(np.float32))
    np.testing.assert_allclose(parts.cluster_centers_, whole.cluster_centers_, atol=1e-10)
    assert parts.transform(X[:3].astype(np.float32)).dtype == np.float32


def test_invalid_labels_exclude_their_site():
    X, _ = blobs(100)
    fed = fs.federate(X, sites=np.arange(100) % 4)

    def corrupted(replies, bad, rng, call):
        return {
            site: {**replies[site], "labels": replies[site]["labels"] + 99}
            if "labels" in replies[site]
            else replies[site]
            for site in bad
        }

    with pytest.warns(UserWarning, match=": 2"):
        model = fs.FedKMeans(3, post_labels=True, random_state=0).fit(fed.corrupt(corrupted, ["2"]))
    assert len(model.labels_) == 75
    assert any("labels must be whole numbers from 0 to 2" in why for _, _, why in model.run_.failures)
