"""A Byzantine set that changes from call to call."""

from __future__ import annotations

import numpy as np

from fedspan.attacks import (
    InnerProduct,
    Ones,
    Redrawn,
    SignFlip,
)
from tests.laws.attack_examples import honest_replies

from .attacked_federation import federation, outcomes
from .replies_by_hand import REPLIES, sent


def test_every_malicious_site_is_drawn_at_some_time_and_the_others_stay_honest() -> None:
    replies = honest_replies()
    bad = ("a", "c", "d", "e")
    drawn = [frozenset(sent(Redrawn(SignFlip(), 2), replies, bad, seed)) for seed in range(100)]
    assert all(len(names) == 2 for names in drawn)
    assert len(set(drawn)) == 6  # all pairs of four
    assert set(sent(Redrawn(SignFlip(), 9), replies, bad)) == set(bad)


def test_to_a_redrawn_attack_the_others_are_good_sites() -> None:
    drawn = sent(Redrawn(InnerProduct(1), 1), REPLIES, ("c", "d"))
    (site,) = drawn
    good = [REPLIES[name]["x"] for name in REPLIES if name != site]
    np.testing.assert_allclose(drawn[site]["x"], -np.mean(good, axis=0))


def test_a_redrawn_set_differs_from_call_to_call_and_is_repeatable() -> None:
    def bad_sites() -> list[list[str]]:
        fed = federation().corrupt(Redrawn(Ones(keys=["trace"]), 2), sites=list("abcdefg"))
        return [[site for site, reply in ok.items() if reply["trace"] == 100.0] for ok, _ in outcomes(fed, 6)]

    turns = bad_sites()
    assert all(len(turn) == 2 for turn in turns)
    assert len({tuple(turn) for turn in turns}) > 1
    assert turns == bad_sites()
