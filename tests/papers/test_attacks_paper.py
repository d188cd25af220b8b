"""The attacks of the reproductions change what they should, and only that."""

from __future__ import annotations

import numpy as np
import pytest

from fedspan.aggregation import Mean
from fedspan.federation import AttackedCall
from fedspan.linalg import subspace_distance
from fedspan.papers.attacks_paper import Collude, JustBelow, OuterProduct, Rotated
from fedspan.papers.few_shot_beyond_paper import ATTACKS
from fedspan.papers.few_shot_runs_paper import FewShotSetting, curve
from fedspan.sums.row_moments import packed, unpacked

CALL = AttackedCall("any.step", 0)


def basis(seed):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(8, 2)))[0]


def attacked(attack, replies):
    return attack(replies, ("a",), np.random.default_rng(7), CALL)


def test_a_rotated_basis_is_at_its_angle_from_what_the_honest_sites_agree_on():
    replies = {"a": {"basis": basis(1)}, "b": {"basis": basis(0)}, "c": {"basis": basis(0)}}
    sent = attacked(Rotated(0.3), replies)["a"]["basis"]
    np.testing.assert_allclose(np.linalg.svd(basis(0).T @ sent, compute_uv=False), np.cos(0.3))


def test_an_outer_product_is_the_covariance_of_what_the_attack_sends():
    replies = {site: {"phi": packed(basis(i) @ basis(i).T), "n": 5} for i, site in enumerate("abc")}
    found = attacked(OuterProduct(lambda bases, *_: {"a": {"basis": -3.0 * bases["a"]["basis"]}}, 2), replies)
    np.testing.assert_allclose(unpacked(found["a"]["phi"]), 9.0 * basis(0) @ basis(0).T, atol=1e-12)
    assert found["a"]["n"] == 5


@pytest.mark.parametrize("fixed", [False, True])
def test_gradients_stay_just_below_the_threshold(fixed):
    replies = {site: {"gradient": (i + 1.0) * basis(0), "rows": 4} for i, site in enumerate("abcd")}
    sent = attacked(JustBelow(fixed=fixed, keys=("gradient",)), replies)["a"]
    assert np.linalg.norm(sent["gradient"]) == pytest.approx(9.9 * 3.0 * np.sqrt(2))
    assert (np.vdot(sent["gradient"], basis(0)) < -10) is not fixed
    assert sent["rows"] == 4


def test_gradients_just_below_the_threshold_defeat_the_mean():
    made, fed = FewShotSetting(30, 30, 2, 12, 6).data(0)
    bad = fed.corrupt(ATTACKS["just below the threshold, reversed"], sites=fed.sites[:2])
    plain, spoilt = (curve(some, made.basis, aggregator=Mean(), iterations=10)[-1] for some in (fed, bad))
    assert plain < 0.01
    assert spoilt > 0.5


def test_colluding_sites_claim_a_cluster_only_if_they_should():
    replies = {site: {"part": np.array([0.0, 1.0]), "change": np.full((2, 3), 2.0), "n": 7} for site in "abc"}
    quiet, loud = (attacked(Collude(claim=claim, length=0.5), replies)["a"] for claim in (False, True))
    assert quiet["part"].tolist() == [0.0, 1.0]
    assert loud["part"].tolist() == [1.0, 0.0]
    assert np.linalg.norm(loud["change"]) == pytest.approx(0.5 * np.linalg.norm(replies["b"]["change"]))
    early = {site: {"basis": basis(0)} for site in "abc"}
    late = Collude(claim=True, late=True)
    assert subspace_distance(attacked(late, early)["a"]["basis"], basis(0)) < 1e-12
    assert attacked(late, replies)["a"]["part"].tolist() == [1.0, 0.0]
