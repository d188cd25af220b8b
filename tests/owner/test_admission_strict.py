"""A strict ledger refuses what carries no noise first, in the same words: no rule on row sets is an oracle."""

from __future__ import annotations

import numpy as np
import pytest

from fedspan.atlases.new_batches import harmonized
from fedspan.federation.site.site import Site
from fedspan.federation.site.transforms import Transform

from .owner_desk import Desk, numbers

START = "few_shot.start_own_product"
PAYLOAD = {"U": np.eye(3), "intercept": False, "parts": 1}
STRICT = 'ledger = "ledger"\nepsilon = 1.0\ndelta = 1e-5\nstrict = true'


@pytest.fixture
def desk(tmp_path):
    frame = numbers(60, "abcy")
    frame["y"] = np.linspace(1.0, 2.0, 60)
    return Desk(tmp_path / "a", "", frame, 'target = "y"', privacy=STRICT)


def test_a_threshold_search_gets_one_answer_and_reads_no_rows(desk, monkeypatch):
    def read(self):
        raise AssertionError("rows were read")

    monkeypatch.setattr(Site, "y", property(read))
    replies = {desk.ask(START, run=f"r {alpha}", payload=PAYLOAD | {"alpha": alpha}) for alpha in (0.5, 1.01, 4.0, 9.0)}
    assert len(replies) == 1
    assert "lets no reply leave that carries no noise" in replies.pop()
    assert desk.owned.ledger.spent == 0.0


def test_what_is_wrong_with_a_payload_is_reported_before_the_ledger_is_asked(desk):
    assert "alpha must be a finite number" in desk.ask(START, payload=PAYLOAD | {"alpha": np.array(1, np.uint8)})


def test_a_step_that_keeps_something_of_the_rows_is_no_oracle(desk):
    """Whether it fails, by a centre that has no cluster, would say whether any row is nearest to that centre."""
    centres = np.array([[0.0, 0.0, 0.0], [1e3, 0.0, 0.0]])
    for far in (1e3, 1e-3):
        payload = {"centres": centres * far / 1e3, "of_centre": np.array([0])}
        reply = desk.ask("atlases.keep_clusters", run=f"r {far}", payload=payload)
        assert "lets no reply leave that carries no noise" in reply


def test_a_transform_that_some_rows_make_fail_is_no_oracle(tmp_path):
    """With noise of a million deviations a call costs nothing. Whether it failed showed whether a code was there."""
    frame = numbers(60, "ab")
    frame["code"] = np.arange(60) % 5 + 100
    frame.loc[7, "code"] = 977
    desk = Desk(tmp_path / "a", 'level = "private"', frame, privacy=STRICT)
    bounds = {"center": np.zeros(2), "width": np.ones(2), "box": False}
    listed = ["100", "101", "102", "103", "104"]
    for names in (listed, [*listed, "976"], [*listed, "977"]):
        given = {"column": 2, "names": np.array(names), "Y": np.zeros((0, 1, 2)), "sigma": 0.1, "starts": 1}
        given |= {"penalties": np.zeros((0, len(names), 1)), "effects": np.zeros((0, len(names), 2))}
        view = Transform.of(harmonized, given)
        noise = {"multiplier": 2.0**20, "sharers": 1, "colluding": 0}
        reply = desk.ask("sums.noisy_sums", run=f"r {names}", payload=bounds | noise, transforms=(view,))
        assert not isinstance(reply, str), reply
