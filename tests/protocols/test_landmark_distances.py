"""Distances to landmarks as sites post them: values, parts, absent and misbehaving sites."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import fedspan as fs
from fedspan.errors import QuorumError
from fedspan.protocols.feddl import Landmarks
from fedspan.protocols.landmark_distances import landmark_distances

Y = np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]])
MARKS = Landmarks(Y, 1.0, 0.0, np.array([1.0, 1.0]), 5.0, "double")
SIZES = {"a": 50, "b": 1, "c": 7}


def federation(**options):
    rng = np.random.default_rng(0)
    return fs.LocalFederation([fs.Site(name, rng.normal(size=(n, 2))) for name, n in SIZES.items()], **options)


def test_a_case_by_hand():
    fed = fs.LocalFederation([fs.Site("a", np.array([[0.0, 0.0], [3.0, 0.0]]))])
    np.testing.assert_allclose(
        fed.run(landmark_distances, landmarks=MARKS)["a"], [[0, 5, 10], [3, 4, np.sqrt(73)]], atol=1e-6
    )


@pytest.mark.parametrize(("precision", "dtype", "accuracy"), [("single", "f4", 1e-6), ("double", "f8", 1e-14)])
def test_every_site_posts_its_rows(precision, dtype, accuracy):
    fed = federation()
    found = fed.run(landmark_distances, landmarks=MARKS, precision=precision)
    rng = np.random.default_rng(0)
    for name, n in SIZES.items():
        assert found[name].dtype == dtype
        np.testing.assert_allclose(found[name], cdist(rng.normal(size=(n, 2)), Y), rtol=accuracy)


def test_large_sites_post_in_parts():
    expected = federation().run(landmark_distances, landmarks=MARKS)
    fed = federation(policy=fs.Policy(max_bytes=2**9))
    with fed.begin("run") as running:
        found = landmark_distances(running, landmarks=MARKS)
    for name in SIZES:
        np.testing.assert_array_equal(found[name], expected[name])
    assert [call.asked for call in running.record.calls] == [("a", "b", "c"), ("a",), ("a",)]


def test_a_site_that_never_posts_is_left_out_with_a_warning():
    def silent(replies, bad, rng, call):
        return {name: {} for name in bad}

    fed = federation().corrupt(silent, ["b"])
    with pytest.warns(UserWarning, match="did not post their distances: b"):
        found = fed.run(landmark_distances, landmarks=MARKS)
    assert list(found) == ["a", "c"]
    with pytest.raises(QuorumError):
        federation().corrupt(silent, ["a", "b"]).run(landmark_distances, landmarks=MARKS)


def test_a_site_that_answers_later_is_asked_again():
    def late(replies, bad, rng, call):
        return {name: ({} if call.number < 2 else replies[name]) for name in bad}

    found = federation().corrupt(late, ["b"]).run(landmark_distances, landmarks=MARKS)
    assert list(found) == ["a", "b", "c"]


@pytest.mark.parametrize("change", [lambda D: D[:, :-1], lambda D: D[:-1], lambda D: -1 - D, lambda D: D * np.nan])
def test_wrong_distances_are_refused(change):
    def liar(replies, bad, rng, call):
        return {name: {**replies[name], "distances": change(replies[name]["distances"])} for name in bad}

    with pytest.warns(UserWarning, match=": c"):
        found = federation().corrupt(liar, ["c"]).run(landmark_distances, landmarks=MARKS)
    assert list(found) == ["a", "b"]


def test_an_offset_costs_no_digits():
    rng = np.random.default_rng(1)
    X, points = rng.normal(size=(20, 2)), rng.normal(size=(5, 2))
    marks = Landmarks(points + 1e7, 1.0, 0.0, np.full(2, 1e7), 1.0, "double")
    found = fs.LocalFederation([fs.Site("a", X + 1e7)]).run(landmark_distances, landmarks=marks)["a"]
    np.testing.assert_allclose(found, cdist(X, points), rtol=1e-5)
