"""How many true neighbours landmarks find: counted at the sites, and only counts leave them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fedspan.landmarks.parts.neighbor_hits import local_neighbor_hits, neighbor_hits

import fedspan as fs
from fedspan.landmarks.feddl import Landmarks

#: Of points on a line and one beside it: along the line all is seen, across it nothing.
LINE = Landmarks(np.array([[0.0, 0.0], [10.0, 0.0]]), 1.0, 0.0, np.zeros(2), 1.0, "double")
SETTINGS = {"landmarks": LINE, "method": "coordinates", "residuals": False, "precision": "double"}


def run(sites, **more):
    return fs.LocalFederation(sites).run(neighbor_hits, **{**SETTINGS, **more})


def test_a_case_by_hand(monkeypatch):
    monkeypatch.setattr("fedspan.landmarks.parts.neighbor_hits.NEIGHBORS", 1)
    # (0, 0) and (0, 5) look alike from the line; truly the nearest of (0, 0) is (2, 0), and that of (0, 5) is it, too
    rows = np.array([[0.0, 0.0], [0.0, 5.0], [2.0, 0.0], [20.0, 0.0]])
    # found: the two of one another, (2, 0) finds one of them, (20, 0) finds (2, 0)
    share, of = run([fs.Site("a", rows)])
    assert of == 4
    assert share in (0.5, 0.75)  # of the two that look alike (2, 0) finds either
    assert run([fs.Site("a", rows[[0, 2, 3]])]) == (1.0, 3)


def test_all_are_found_where_landmarks_span_all_columns():
    rng = np.random.default_rng(0)
    marks = Landmarks(rng.normal(size=(6, 3)), 1.0, 0.0, np.zeros(3), 1.0, "double")
    sites = [fs.Site(name, rng.normal(size=(n, 3))) for name, n in (("a", 70), ("b", 1), ("c", 5))]
    assert run(sites, landmarks=marks) == (1.0, 50 * 10 + 5 * 4)


def test_only_two_counts_leave_a_site():
    settings = {"landmarks": LINE.points, "centre": LINE.centre, "scale": 1.0, "method": "coordinates"}
    reply = local_neighbor_hits(fs.Site("a", np.ones((4, 2))), **settings, residuals=False, precision="single")
    assert reply == {"hits": 12, "of": 12}


@pytest.mark.parametrize("reply", [{}, {"hits": 9, "of": 0}, {"hits": -1000, "of": 5}, {"hits": 1, "of": 10**9}])
def test_what_cannot_be_is_not_counted_and_no_map_fails_for_it(reply):
    def liar(replies, bad, rng, call):
        return dict.fromkeys(bad, reply)

    sites = [fs.Site(name, np.random.default_rng(0).normal(size=(9, 2))) for name in "ab"]
    share, of = (
        fs.LocalFederation(sites).corrupt(liar, ["a", "b"] if not reply else ["a"]).run(neighbor_hits, **SETTINGS)
    )
    assert math.isnan(share)
    assert of == 0
