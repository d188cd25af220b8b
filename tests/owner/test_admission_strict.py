"""A strict ledger refuses what carries no noise first, in the same words: no rule on row sets is an oracle."""

from __future__ import annotations

import numpy as np
import pytest

from fedspan.federation.site.site import Site

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
