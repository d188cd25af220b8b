"""Distances to landmarks as sites post them, and how many true neighbours they find."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import fedspan as fs
from fedspan.errors import QuorumError
from fedspan.landmarks.feddl import Landmarks
from fedspan.landmarks.landmark_distances import (
    distances_to,
    landmark_distances,
    local_neighbor_hits,
    neighbor_hits,
)
from fedspan.landmarks.parts.card_rows import CardDistances

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


def test_distances_along_axes_have_the_part_of_a_row_outside_of_them():
    rng = np.random.default_rng(0)
    X, centre = rng.normal(size=(40, 9)), rng.normal(size=9)
    axes, Y = np.linalg.qr(rng.normal(size=(9, 3)))[0].T, rng.normal(size=(5, 3))
    expected = cdist(X - centre, Y @ axes)
    np.testing.assert_allclose(distances_to(X, Y, centre, 2.0, axes), expected, rtol=1e-12)
    np.testing.assert_allclose(2.0 * CardDistances(Y, centre, 2.0, axes, None)(X), expected, rtol=1e-12)
    inside = Y[:2] @ axes + centre  # no part outside, and rounding is no distance
    np.testing.assert_allclose(distances_to(inside, Y, centre, 2.0, axes), cdist(Y[:2], Y), atol=1e-7)


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


def test_a_site_that_answers_later_is_requested_again():
    def late(replies, bad, rng, call):
        return {name: ({} if call.number < 2 else replies[name]) for name in bad}

    found = federation().corrupt(late, ["b"]).run(landmark_distances, landmarks=MARKS)
    assert list(found) == ["a", "b", "c"]


@pytest.mark.parametrize("change", [lambda D: D[:, :-1], lambda D: D[:-1], lambda D: -1 - D, lambda D: D * np.nan])
def test_wrong_distances_are_refused(change):
    def corrupted(replies, bad, rng, call):
        return {name: {**replies[name], "distances": change(replies[name]["distances"])} for name in bad}

    with pytest.warns(UserWarning, match=": c"):
        found = federation().corrupt(corrupted, ["c"]).run(landmark_distances, landmarks=MARKS)
    assert list(found) == ["a", "b"]


def test_an_offset_costs_no_digits():
    rng = np.random.default_rng(1)
    X, points = rng.normal(size=(20, 2)), rng.normal(size=(5, 2))
    marks = Landmarks(points + 1e7, 1.0, 0.0, np.full(2, 1e7), 1.0, "double")
    found = fs.LocalFederation([fs.Site("a", X + 1e7)]).run(landmark_distances, landmarks=marks)["a"]
    np.testing.assert_allclose(found, cdist(X, points), rtol=1e-5)


def changed(fed, site, change):
    """Return the federation with one site whose replies are changed from their number in the run on."""

    def corrupted(replies, bad, rng, call):
        return {name: change(dict(replies[name]), call.number) for name in bad}

    return fed.corrupt(corrupted, [site])


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
    with pytest.warns(UserWarning, match=r"c \(.*requested unit"):
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
    with fed.begin("run") as running, pytest.warns(UserWarning, match="it reports 51 rows, and reported 50 before"):
        assert list(landmark_distances(running, landmarks=MARKS)) == ["b", "c"]
    assert len(running.record.calls) == 2


def test_more_rows_than_all_sites_had_are_not_requested():
    marks = replace(MARKS, n=58, sites=("a", "b", "c"))
    full = 2**9 // (2 * 4 * 3)

    def endless(reply, number):
        return {**reply, "n": 10**9, "distances": np.ones((full, 3), np.float32)}

    fed = changed(federation(policy=fs.Policy(max_bytes=2**9)), "c", endless)
    with fed.begin("run") as running, pytest.warns(UserWarning, match="1000000000 rows, and all had 58"):
        assert list(landmark_distances(running, landmarks=marks)) == ["a", "b"]
    assert [call.asked for call in running.record.calls][-2:] == [("a",), ("a",)]


@pytest.mark.parametrize("n", [-7, 7.0, "seven", None])
def test_an_impossible_number_of_rows_is_refused(n):
    fed = changed(federation(), "c", lambda reply, number: {**reply, "n": n})
    with pytest.warns(UserWarning, match=r"c \(.*(miscounted: 'n' is|misshapen: 'n' is)"):
        assert list(fed.run(landmark_distances, landmarks=MARKS)) == ["a", "b"]


def test_the_warning_names_a_refused_site_as_well():
    fed = changed(federation(), "c", lambda reply, number: {**reply, "n": -7})
    marks = replace(MARKS, n=50, sites=("a", "b", "c"))
    with (
        pytest.warns(UserWarning, match="false numbers; by a or b or c"),
        pytest.warns(UserWarning, match=r"not on the map.*: c"),
    ):
        fed.run(landmark_distances, landmarks=marks)


def test_rows_that_were_in_no_sum_are_reported():
    def two_more(reply, number):
        return {**reply, "n": 9, "distances": np.ones((9, 3), np.float32)}

    marks = replace(MARKS, n=58, sites=("a", "b", "c"))
    with pytest.warns(UserWarning, match="posted 60 rows, and reported 58"):
        changed(federation(), "c", two_more).run(landmark_distances, landmarks=marks)
    with warnings.catch_warnings():  # a site that was in no sum may have any rows
        warnings.simplefilter("error")
        changed(federation(), "c", two_more).run(landmark_distances, landmarks=replace(marks, n=51, sites=("a", "b")))


#: Landmarks on a line: distances to them determine a place along the line, and not the side of it.
LINE = Landmarks(np.array([[0.0, 0.0], [10.0, 0.0]]), 1.0, 0.0, np.zeros(2), 1.0, "double")


SETTINGS = {"landmarks": LINE, "method": "coordinates", "residuals": False, "precision": "double"}


def hits_of(sites, **more):
    return fs.LocalFederation(sites).run(neighbor_hits, **{**SETTINGS, **more})


def test_neighbours_by_hand(monkeypatch):
    monkeypatch.setattr("fedspan.landmarks.landmark_distances.NEIGHBORS", 1)
    # (0, 0) and (0, 5) look alike from the line; truly the nearest of (0, 0) is (2, 0), and that of (0, 5) is it, too
    rows = np.array([[0.0, 0.0], [0.0, 5.0], [2.0, 0.0], [20.0, 0.0]])
    # found: the two of one another, (2, 0) finds one of them, (20, 0) finds (2, 0)
    share, of = hits_of([fs.Site("a", rows)])
    assert of == 4
    assert share in (0.5, 0.75)  # of the two that look alike (2, 0) finds either
    assert hits_of([fs.Site("a", rows[[0, 2, 3]])]) == (1.0, 3)


def test_all_are_found_where_landmarks_span_all_columns():
    rng = np.random.default_rng(0)
    marks = Landmarks(rng.normal(size=(6, 3)), 1.0, 0.0, np.zeros(3), 1.0, "double")
    sites = [fs.Site(name, rng.normal(size=(n, 3))) for name, n in (("a", 70), ("b", 1), ("c", 5))]
    assert hits_of(sites, landmarks=marks) == (1.0, 50 * 10 + 5 * 4)


def test_only_two_counts_leave_a_site():
    settings = {"landmarks": LINE.points, "centre": LINE.centre, "scale": 1.0, "method": "coordinates"}
    reply = local_neighbor_hits(fs.Site("a", np.ones((4, 2))), **settings, residuals=False, precision="single")
    assert reply == {"hits": 12, "of": 12}


@pytest.mark.parametrize("reply", [{}, {"hits": 9, "of": 0}, {"hits": -1000, "of": 5}, {"hits": 1, "of": 10**9}])
def test_impossible_counts_are_ignored_and_fail_no_map(reply):
    def corrupted(replies, bad, rng, call):
        return dict.fromkeys(bad, reply)

    sites = [fs.Site(name, np.random.default_rng(0).normal(size=(9, 2))) for name in "ab"]
    share, of = (
        fs.LocalFederation(sites).corrupt(corrupted, ["a", "b"] if not reply else ["a"]).run(neighbor_hits, **SETTINGS)
    )
    assert math.isnan(share)
    assert of == 0
