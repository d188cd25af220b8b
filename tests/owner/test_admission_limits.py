"""Rounds, sizes and the privacy budget: no way of making a request evades or spends them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from fedspan.federation.site.transforms import Transform
from fedspan.owner import audit_log

from .owner_desk import NUMBERS, OFFER, SUMS, Desk

CENTRED = "sums.centred_sums"
COLUMNS = "sums.columns"
PULL = "landmarks.noisy_pull"
SCATTER = "maps.noisy_scatter"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
PRIVACY = 'ledger = "l"\nepsilon = 4.0\ndelta = 1e-6'
QUERY = {"Y": np.zeros((3, 2)), "gamma": 1.0, "multiplier": 6.0}
NOISY = Transform("privacy.noisy_rows", {"center": np.zeros(2), "clip": 1.0, "sigma": 2.5})


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    def set_to(when):
        monkeypatch.setattr(audit_log, "now", lambda: when)

    set_to(NOON)
    return set_to


def answers(found):
    return sum(isinstance(reply, dict) for reply in found)


def test_parts_are_those_of_secure_sums(tmp_path):
    desk = Desk(tmp_path / "a", "rounds_per_day = 1")
    found = [desk.ask(CENTRED, payload={"centre": np.full(2, float(part))}, part=part) for part in range(20)]
    assert answers(found) == 1
    assert found[1] == "a call of this step is part 0 to 0 of its call, not 1"
    offered = {"what": SUMS, "session": "r/0/x", **NUMBERS}
    assert desk.ask(OFFER, part=2, payload=offered) == "a call of this step is part 0 to 1 of its call, not 2"
    late = "secure_sum.unmask"
    assert "is part 4 to 9 of its call" in desk.ask(late, part=3, payload={"session": "x", "tags": np.zeros(1)})


def test_a_plain_call_and_the_beginning_of_a_sum_are_two_rounds(tmp_path):
    desk = Desk(tmp_path / "a", "rounds_per_day = 2")
    found = [desk.ask(), desk.ask(OFFER, payload={"what": SUMS, "session": "r/0/x", **NUMBERS})]
    found += [desk.ask(OFFER, part=1, payload={"what": SUMS, "session": "r/0/y", **NUMBERS})]
    assert answers(found) == 2
    assert "allows a user 2 rounds a day" in found[2]


def test_a_repeated_reply_is_no_round_and_another_request_under_its_number_is(tmp_path):
    desk = Desk(tmp_path / "a", "rounds_per_day = 1")
    first, again = desk.ask(), desk.ask()
    assert answers([first, again]) == 2
    np.testing.assert_equal(first, again)
    desk.open()  # the site's disk remembers
    assert answers([desk.ask()]) == 1
    assert [line["ran"] for line in desk.lines()] == [True, False, False]
    assert "allows a user 1 rounds a day" in desk.ask(CENTRED, payload={"centre": np.zeros(2)})
    assert "allows a user 1 rounds a day" in desk.ask(number=1)


def test_a_clock_that_goes_back_and_forth_gives_no_more_rounds(tmp_path, clock):
    desk = Desk(tmp_path / "a", "rounds_per_day = 1")
    found = []
    for k, days in enumerate((0, 1, 0, 1, -1, 1, 0)):
        clock(NOON + timedelta(days=days))
        found.append(desk.ask(run=f"r {k}"))
        desk.open()
    assert answers(found) == 2  # of two days


def test_a_reply_that_does_not_leave_counts_and_its_size_is_not_revealed(tmp_path):
    desk = Desk(tmp_path / "a", "largest_reply = 1\nrounds_per_day = 2")
    assert desk.ask(max_bytes=10) == "the reply has more than the 10 bytes allowed"
    assert desk.ask(run="r 2") == "the reply has more bytes than the 1 of this site's largest_reply"
    assert "allows a user 2 rounds a day" in desk.ask(run="r 3")
    first, second, third = desk.lines()
    assert [line["ran"] for line in (first, second, third)] == [True, True, False]
    assert first["why"].endswith("allowed; it has 120")
    assert second["why"].endswith("largest_reply; it has 120")


def test_a_step_that_fails_counts(tmp_path):
    desk = Desk(tmp_path / "a", "rounds_per_day = 1")
    assert "has no targets" in desk.ask("few_shot.task_totals", payload={"U": np.eye(2)})
    assert "rounds a day" in desk.ask(run="r 2")


def left(desk):
    return desk.owned.ledger.epsilon - desk.owned.ledger.spent


@pytest.mark.parametrize("step", [COLUMNS, "landmarks.rows"])
def test_where_nothing_is_allowed_no_transform_is_charged(tmp_path, step):
    desk = Desk(tmp_path / "a", "steps = []", privacy=PRIVACY)
    payload = {"text": False} if step == COLUMNS else {}
    assert "without transforms only" in desk.ask(step, payload=payload, transforms=(NOISY,))
    assert isinstance(desk.ask(step, payload=payload), dict)
    assert left(desk) == 4.0


def test_the_later_stages_of_a_sum_charge_nothing(tmp_path):
    desk = Desk(tmp_path / "a", privacy=PRIVACY)
    assert isinstance(desk.ask(OFFER, payload={"what": SUMS, "session": "r/0/x", **NUMBERS}), dict)
    payload = {"session": "r/0/x", "alive": np.ones(3, dtype=bool)}
    confirm = "secure_sum.confirm"
    why = desk.ask(confirm, part=3, payload=payload, transforms=(NOISY,))
    assert why == "only the first stage of a secure sum reads data, and may name transforms"
    assert left(desk) == 4.0


@pytest.mark.parametrize(
    ("step", "payload"),
    [
        (PULL, QUERY),
        (
            OFFER,
            {"what": PULL, "session": "r/0/x", **NUMBERS, **{f"with {key}": value for key, value in QUERY.items()}},
        ),
    ],
)
@pytest.mark.parametrize("limit", ["the user's", "the owner's"])
def test_nothing_is_charged_for_a_reply_that_is_too_large(tmp_path, step, payload, limit):
    rule, head = ("", {"max_bytes": 30}) if limit == "the user's" else ("largest_reply = 30", {})
    desk = Desk(tmp_path / "a", rule, privacy=PRIVACY)
    for run in ("r", "r 2"):
        sent = payload | ({"session": f"{run}/0/x"} if "session" in payload else {})
        why = desk.ask(step, run=run, payload=sent, **head)
        assert why == "the reply has more than the 30 bytes allowed, and the privacy budget is not charged"
    assert left(desk) == 4.0
    assert desk.lines()[-1]["budget_left"] == 4.0


def test_noisy_rows_are_charged_once_whatever_is_requested_of_them(tmp_path):
    desk = Desk(tmp_path / "a", privacy=PRIVACY)
    assert "more than the 30 bytes allowed" in desk.ask(SUMS, transforms=(NOISY,), max_bytes=30)
    once = left(desk)
    assert once < 4.0
    assert isinstance(desk.ask(SUMS, run="r 2", transforms=(NOISY,)), dict)
    assert left(desk) == once


def test_a_reply_that_fits_is_charged_once(tmp_path):
    desk = Desk(tmp_path / "a", "largest_reply = 100_000", privacy=PRIVACY)
    first = desk.ask(PULL, payload=QUERY)
    once = left(desk)
    assert once < 4.0
    again = desk.ask(PULL, run="r 2", payload=QUERY)
    np.testing.assert_array_equal(first["pull"], again["pull"])
    assert left(desk) == once
    larger = {**QUERY, "Y": np.zeros((7000, 2))}  # the size is that of this call, not of the one before
    assert "more than the 100,000 bytes" in desk.ask(PULL, run="r 3", payload=larger)
    assert left(desk) == once


def test_a_charged_reply_that_was_lost_can_be_fetched_again(tmp_path):
    desk = Desk(tmp_path / "a", privacy=PRIVACY)
    first = desk.ask(PULL, payload=QUERY)
    once = left(desk)
    desk.open()
    np.testing.assert_array_equal(desk.ask(PULL, payload=QUERY)["pull"], first["pull"])
    assert left(desk) == once
