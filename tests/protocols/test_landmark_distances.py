"""Distances to landmarks as sites post them: values, parts, absent and misbehaving sites."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import fedspan as fs
from fedspan.errors import QuorumError
from fedspan.landmarks.feddl import Landmarks
from fedspan.landmarks.landmark_distances import landmark_distances

Y = np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]])
MARKS = Landmarks(Y, 1.0, 0.0, np.array([1.0, 1.0]), 5.0, "double")
SIZES = {"a": 50, "b": 1, "c": 7}


def federation(**options):
    rng = np.random.default_rng(0)
    return fs.LocalFederation([fs.Site(name, rng.normal(size=(n, 2))) for name, n in SIZES.items()], **options)


def test_a_case_by_hand():
    fed = fs.LocalFederation([fs.Site("a", np.array([[0.0, 0.0], [3.0, 0.0]]))])
    np.testing.assert_allclose(
        fed.run(landmark_distances, landmarks=MARKS)["a"], [[0, 1, 2], [0.6, 0.8, np.sqrt(73) / 5]], atol=1e-6
    )


@pytest.mark.parametrize(("precision", "dtype", "accuracy"), [("single", "f4", 1e-6), ("double", "f8", 1e-14)])
def test_every_site_posts_its_rows(precision, dtype, accuracy):
    fed = federation()
    found = fed.run(landmark_distances, landmarks=MARKS, precision=precision)
    rng = np.random.default_rng(0)
    for name, n in SIZES.items():
        assert found[name].dtype == dtype
        np.testing.assert_allclose(found[name], cdist(rng.normal(size=(n, 2)), Y) / 5, rtol=accuracy)


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


def changed(fed, site, change):
    """Return the federation with one site whose replies are changed from their number in the run on."""

    def liar(replies, bad, rng, call):
        return {name: change(dict(replies[name]), call.number) for name in bad}

    return fed.corrupt(liar, [site])


def test_a_distance_that_no_row_can_have_is_refused_and_a_far_one_is_not():
    def far(value):
        def change(reply, number):
            D = reply["distances"].copy()
            D[0] = value
            return {**reply, "distances": D}

        return changed(federation(), "c", change)

    with pytest.warns(UserWarning, match=r"c \(.*1e\+19 times the rows' spread"):
        assert list(far(1e19).run(landmark_distances, landmarks=MARKS)) == ["a", "b"]
    assert list(far(1e5).run(landmark_distances, landmarks=MARKS)) == ["a", "b", "c"]


def test_distances_in_another_unit_are_refused():
    fed = changed(federation(), "c", lambda reply, number: {**reply, "unit": 1.0})
    with pytest.warns(UserWarning, match=r"c \(.*unit that was asked for"):
        assert list(fed.run(landmark_distances, landmarks=MARKS)) == ["a", "b"]


def test_a_site_that_changes_its_number_of_rows_is_left_out():
    def more(reply, number):
        width = 3
        rows = 2**9 // (2 * 4 * width)
        return {
            **reply,
            "n": 50 + number,
            "distances": np.ones((max(0, min(rows, 50 + number - rows * number)), 3), "f4"),
        }

    fed = changed(federation(policy=fs.Policy(max_bytes=2**9)), "a", more)
    with fed.begin("run") as running, pytest.warns(UserWarning, match="says to have 51 rows, and said 50 before"):
        assert list(landmark_distances(running, landmarks=MARKS)) == ["b", "c"]
    assert len(running.record.calls) == 2


def test_more_rows_than_all_sites_had_are_not_asked_for():
    marks = replace(MARKS, n=58, sites=("a", "b", "c"))
    full = 2**9 // (2 * 4 * 3)

    def endless(reply, number):
        return {**reply, "n": 10**9, "distances": np.ones((full, 3), np.float32)}

    fed = changed(federation(policy=fs.Policy(max_bytes=2**9)), "c", endless)
    with fed.begin("run") as running, pytest.warns(UserWarning, match="1000000000 rows, and all had 58"):
        assert list(landmark_distances(running, landmarks=marks)) == ["a", "b"]
    assert [call.asked for call in running.record.calls][-2:] == [("a",), ("a",)]


@pytest.mark.parametrize("n", [-7, 7.0, "seven", None])
def test_a_number_of_rows_that_cannot_be_is_refused(n):
    fed = changed(federation(), "c", lambda reply, number: {**reply, "n": n})
    with pytest.warns(UserWarning, match=r"c \(.*(miscounted: 'n' is|misshapen: 'n' is)"):
        assert list(fed.run(landmark_distances, landmarks=MARKS)) == ["a", "b"]


def test_a_site_that_was_refused_is_among_those_who_may_have_lied():
    fed = changed(federation(), "c", lambda reply, number: {**reply, "n": -7})
    marks = replace(MARKS, n=50, sites=("a", "b", "c"))
    with (
        pytest.warns(UserWarning, match="numbers that were not true; by a or b or c"),
        pytest.warns(UserWarning, match=r"not on the map.*: c"),
    ):
        fed.run(landmark_distances, landmarks=marks)


def test_rows_that_were_in_no_sum_are_told():
    def two_more(reply, number):
        return {**reply, "n": 9, "distances": np.ones((9, 3), np.float32)}

    marks = replace(MARKS, n=58, sites=("a", "b", "c"))
    with pytest.warns(UserWarning, match="posted 60 rows, and said that they have 58"):
        changed(federation(), "c", two_more).run(landmark_distances, landmarks=marks)
    with warnings.catch_warnings():  # a site that was in no sum may have any rows
        warnings.simplefilter("error")
        changed(federation(), "c", two_more).run(landmark_distances, landmarks=replace(marks, n=51, sites=("a", "b")))
