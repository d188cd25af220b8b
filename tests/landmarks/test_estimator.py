"""FedLandmarks: attributes, distances of rows here and at sites, and the warning about few rows."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import fedspan as fs
from fedspan.landmarks.feddl import feddl
from tests.landmarks.landmark_examples import blobs


@fs.step
def own_rows(site):
    return {"X": site.X}


def test_the_attributes_are_those_of_feddl():
    X, labels = blobs()
    model = fs.FedLandmarks(12, rounds=5, random_state=1).fit(X, sites=labels)
    found = fs.federate(X, sites=labels).run(feddl, random_state=1, n_landmarks=12, rounds=5)
    np.testing.assert_array_equal(model.landmarks_, found.points)
    np.testing.assert_array_equal(model.centre_, found.centre)
    assert (model.gamma_, model.mmd2_, model.scale_) == (found.gamma, found.mmd2, found.scale)
    assert (model.precision_, model.sites_, model.privacy_) == ("double", ("0", "1", "2"), None)


def test_rows_become_distances_to_landmarks_in_their_precision():
    X, labels = blobs()
    model = fs.FedLandmarks(12, rounds=5, random_state=1).fit(X, sites=labels)
    expected = cdist(X, model.landmarks_)
    np.testing.assert_allclose(model.transform(X), expected, atol=1e-9)
    assert model.transform(X.astype(np.float32)).dtype == np.float32
    at_sites = model.transform(fs.federate(X, sites=labels, wire=True)).ask(own_rows)
    np.testing.assert_allclose(at_sites["1"]["X"], expected[labels == 1], atol=1e-9)
    assert list(model.get_feature_names_out()[:2]) == ["fedlandmarks0", "fedlandmarks1"]


def test_totals_of_few_rows_bring_a_warning():
    X, labels = blobs(n=60)
    with pytest.warns(UserWarning, match="totals hold 288 numbers about 60 rows, which have 240"):
        fs.FedLandmarks(12, rounds=6).fit(X, sites=labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fs.FedLandmarks(12, rounds=5).fit(X, sites=labels)
        fs.FedLandmarks(12, rounds=30).fit(blobs()[0])
