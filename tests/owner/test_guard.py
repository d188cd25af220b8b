"""The owner's rules: each is enforced, says why, and is written down; also after a restart."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from fedspan.owner.owner_request import Ask

from fedspan.errors import BudgetError, FedspanError, PolicyError
from fedspan.federation.calls.call import Call
from fedspan.federation.site.site_host import SiteHost
from fedspan.federation.site.steps import find_step
from fedspan.owner import audit_log, read_owned_site
from fedspan.owner.allowed_steps import SINGLE_ROWS
from fedspan.wire import encode

SUMS = "sums.sums"
PULL = "landmarks.noisy_pull"


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Stop the site's clock, so that no test begins on one day and ends on the next."""
    monkeypatch.setattr(audit_log, "now", lambda: NOON)


def asked(step=SUMS, number=0, *, who="alice", how="ask", run="run-1", part=0, transforms=()):
    return Ask(who, "lead", run, number, part, step, transforms, how, number == 0)


def serve(owned, ask, **payload):
    """Do what a site's worker does with a call; return the reply."""
    ran, ask = False, replace(ask, payload=payload)
    try:
        owned.guard.admit(ask)
        ran = True
        owned.guard.look(ask)
        call = Call(ask.run, ask.number, 0, find_step(ask.step), payload, ("clinic",), how=ask.how)
        reply = SiteHost(owned.site).perform(call, payload, -1).reply
        owned.guard.release(ask, len(encode(reply)))
    except Exception as error:
        owned.guard.refused(ask, str(error), "refused" if isinstance(error, FedspanError) else "failed", ran)
        raise
    return reply


def lines(path):
    return [json.loads(line) for line in (path.parent / "audit.jsonl").read_text().splitlines()]


def test_what_is_allowed_is_answered_and_written_down(write_site, table):
    path = write_site()
    owned = read_owned_site(path)
    reply = serve(owned, asked())
    np.testing.assert_allclose(reply["sum"], table[["age", "weight"]].sum())
    (line,) = lines(path)
    assert line == {
        "when": "2026-03-01T12:00:00.000+00:00",
        "who": "alice",
        "role": "lead",
        "run": "run-1",
        "call": 0,
        "part": 0,
        "step": SUMS,
        "transforms": [],
        "how": "ask",
        "bytes": len(encode(reply)),
        "budget_left": None,
        "outcome": "answered",
        "ran": True,
        "why": "",
        "before": "",
    }
    assert stat.S_IMODE((path.parent / "audit.jsonl").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("rules", "ask", "why"),
    [
        ('users = ["bob"]', asked(), "this site's owner does not allow user 'alice' to ask anything"),
        ("users = []", asked(), "does not allow user 'alice'"),
        ('steps = ["fedspan.landmarks.feddl"]', asked(), f"this site's owner does not allow step '{SUMS}'"),
        ("steps = []", asked(), "does not allow step"),
        ("", asked("ourlab.local_all"), "does not allow step 'ourlab.local_all'"),
        ("", asked("landmarks.distances"), "it is in the group 'single rows'"),
        ("", asked("secure_sum.offer", how="secure offer"), "does not allow step"),
        ("", asked(transforms=("ourlab.zoom",)), "does not allow the transform 'ourlab.zoom'"),
        ("transforms = []", asked(transforms=("sums.standardize",)), "does not allow the transform"),
        ("least_rows = 31", asked(), r"fewer rows than its owner asks for \(31\), and answers nothing"),
        ("sums_only = true", asked(), "allows secure sums only, and .* was asked for a reply of its own"),
        ("sums_only = true", asked(how="sum"), "allows secure sums only"),
        ("rounds_per_day = 0", asked(), "allows a user 0 rounds a day"),
    ],
)
def test_each_rule_refuses_before_data_are_touched_and_says_why(write_site, rules, ask, why):
    path = write_site(rules=rules)
    owned = read_owned_site(path)
    with pytest.raises(PolicyError, match=why) as caught:
        owned.guard.admit(ask)
    owned.guard.refused(ask, str(caught.value), "refused")
    (line,) = lines(path)
    assert (line["outcome"], line["bytes"], line["step"]) == ("refused", 0, ask.step)
    assert line["why"] == str(caught.value)


@pytest.mark.parametrize(
    ("rules", "ask"),
    [
        ('users = ["alice"]', asked()),
        ('steps = ["fedspan.sums.moments"]', asked()),
        (f'steps = ["{SUMS}"]', asked()),
        ("", asked("landmarks.pull")),
        ('steps = ["single rows"]', asked("landmarks.distances")),
        ('steps = ["fedspan"]', asked("landmarks.distances")),
        ("steps = []", asked("sums.columns")),
        ("steps = []", asked("secure_sum.share", how="secure share")),
        ("least_rows = 30", asked()),
        ("sums_only = true", asked(how="secure offer")),
        ("sums_only = true", asked("sums.columns")),
        ("rounds_per_day = 1", asked()),
        ("", asked(transforms=("sums.standardize",))),
        ('transforms = ["fedspan.sums.row_transforms"]', asked(transforms=("sums.standardize",))),
    ],
)
def test_each_rule_lets_pass_what_it_allows(write_site, rules, ask):
    read_owned_site(write_site(rules=rules)).guard.admit(ask)


def test_a_module_is_not_the_beginning_of_another_ones_name(write_site):
    guard = read_owned_site(write_site(rules='steps = ["fedspan.protocols.fedp"]'.replace("fedp", "power"))).guard
    with pytest.raises(PolicyError, match="does not allow step"):
        guard.admit(asked("fedspan.protocols.power_of_others.local_all"))


def test_a_reply_that_is_too_large_does_not_leave(write_site):
    path = write_site(rules="largest_reply = 100")
    owned = read_owned_site(path)
    owned.guard.release(asked(), 100)
    with pytest.raises(
        PolicyError, match="the reply has more bytes than the 100 of this site's largest_reply"
    ) as caught:
        owned.guard.release(asked(), 101)
    owned.guard.refused(asked(), str(caught.value), "refused")
    assert [line["outcome"] for line in lines(path)] == ["answered", "refused"]
    with pytest.raises(PolicyError, match="the reply has"):
        serve(read_owned_site(write_site(rules="largest_reply = 10")), asked())


def test_rounds_are_counted_by_user_and_day_and_survive_a_restart(write_site, monkeypatch):
    path = write_site(rules="rounds_per_day = 2")
    serve(read_owned_site(path), asked(number=0))
    owned = read_owned_site(path)  # the site was started again
    serve(owned, asked(number=1))
    with pytest.raises(PolicyError, match="allows a user 2 rounds a day"):
        serve(owned, asked(number=2))
    with pytest.raises(PolicyError, match="allows a user 2 rounds a day"):
        serve(owned, asked(number=0, run="run-2"))
    serve(owned, asked(number=2, who="bob"))
    with pytest.raises(PolicyError, match="rounds a day"):
        serve(read_owned_site(path), asked(number=3))
    monkeypatch.setattr(audit_log, "now", lambda: NOON + timedelta(hours=12))
    serve(owned, asked(number=2))
    serve(read_owned_site(path), asked(number=3))
    with pytest.raises(PolicyError, match="rounds a day"):
        serve(read_owned_site(path), asked(number=4))


def test_a_clock_that_is_set_back_lifts_no_limit(write_site, monkeypatch):
    path = write_site(rules="rounds_per_day = 1")
    owned = read_owned_site(path)
    serve(owned, asked(number=0))
    monkeypatch.setattr(audit_log, "now", lambda: NOON - timedelta(days=2))
    for site in (owned, read_owned_site(path)):
        with pytest.raises(PolicyError, match="rounds a day"):
            serve(site, asked(number=2))


def test_parts_of_a_secure_sum_are_one_round_and_a_second_answer_is_another(write_site):
    owned = read_owned_site(write_site(rules="rounds_per_day = 2"))
    for part, stage in enumerate(("offer", "share", "masked", "confirm", "unmask")):
        ask = asked(part=part, how=f"secure {stage}")
        owned.guard.admit(ask)
        owned.guard.release(ask, 10)
    serve(owned, asked())  # the same number, asked again, with whatever payload
    with pytest.raises(PolicyError, match="rounds a day"):
        serve(owned, asked())
    with pytest.raises(PolicyError, match="rounds a day"):
        serve(owned, asked(number=1))


def test_a_step_that_fails_counts_as_a_round_and_a_refused_one_does_not(write_site):
    path = write_site(rules='rounds_per_day = 1\nusers = ["alice", "bob"]')
    owned = read_owned_site(path)
    for step in ("tables.category_names", "ourlab.step"):
        with pytest.raises(PolicyError):
            serve(owned, asked(step))
    with pytest.raises(TypeError):
        serve(owned, asked("sums.centred_sums"))  # without a centre
    with pytest.raises(PolicyError, match="rounds a day"):
        serve(owned, asked(number=1))
    assert [line["outcome"] for line in lines(path)] == ["refused", "refused", "failed", "refused"]


def test_two_processes_share_a_log(write_site):
    path = write_site(rules="rounds_per_day = 2")
    one, other = read_owned_site(path), read_owned_site(path)
    serve(one, asked(number=0))
    serve(other, asked(number=1))
    for owned in (one, other):
        with pytest.raises(PolicyError, match="rounds a day"):
            serve(owned, asked(number=2))
    assert len(list(audit_log.read_lines(path.parent / "audit.jsonl"))) == 4


def test_a_spent_budget_refuses_and_is_written_down(write_site):
    path = write_site(privacy='ledger = "clinic.ledger"\nepsilon = 1.0\ndelta = 1e-5')
    owned = read_owned_site(path)
    question = {"Y": np.zeros((2, 2)), "gamma": 1.0, "multiplier": 6.0}
    serve(owned, asked(PULL, 0), **question)
    with pytest.raises(BudgetError, match="this site refuses: its privacy budget is epsilon=1"):
        serve(owned, asked(PULL, 1), **question | {"multiplier": 4.0})
    restarted = read_owned_site(path)
    with pytest.raises(BudgetError, match="this site refuses"):
        serve(restarted, asked(PULL, 2), **question | {"multiplier": 4.0})
    serve(restarted, asked(PULL, 3), **question)  # the same question again costs nothing
    first, second, third, last = lines(path)
    assert [line["outcome"] for line in (first, second, third, last)] == ["answered", "refused", "refused", "answered"]
    assert 0 < first["budget_left"] < 1.0
    assert first["budget_left"] == second["budget_left"] == third["budget_left"] == last["budget_left"]
    assert first["budget_left"] == pytest.approx(1.0 - owned.ledger.spent, abs=1e-6)
    assert second["why"].startswith("this site refuses: its privacy budget is epsilon=1")


def test_a_strict_ledger_refuses_and_is_written_down(write_site):
    path = write_site(privacy='ledger = "clinic.ledger"\nepsilon = 1.0\ndelta = 1e-5\nstrict = true')
    with pytest.raises(PolicyError, match="the strict ledger of site 'clinic' lets no reply leave"):
        serve(read_owned_site(path), asked())
    assert lines(path)[0]["outcome"] == "refused"


def test_who_refuses_may_say_so(write_site):
    path = write_site()
    guard = read_owned_site(path).guard
    guard.refused(asked(), "a stale message", "refused")
    guard.refused(asked(), "step failed", "failed")
    guard.refused(asked(number=-1), "two\nlines " + "x" * 5000, "failed")
    found = lines(path)
    assert [line["outcome"] for line in found] == ["refused", "failed", "failed"]
    assert found[2]["why"].startswith("two lines x")
    assert len(found[2]["why"]) == 500


@pytest.mark.parametrize("spoil", ["gone", "shorter", "open", "folder"])
def test_nothing_leaves_unlogged(write_site, spoil):
    path = write_site()
    owned = read_owned_site(path)
    log = path.parent / "audit.jsonl"
    serve(owned, asked())
    why = {"gone": "cannot be opened", "shorter": "has become shorter", "open": "can be read by others"}
    if spoil == "gone":
        log.unlink()
    elif spoil == "shorter":
        os.truncate(log, 3)
    elif spoil == "open":
        log.chmod(0o644)
    else:
        log.unlink()
        log.mkdir()
    for refuse in (lambda: owned.guard.admit(asked(number=1)), lambda: owned.guard.release(asked(number=1), 5)):
        with pytest.raises(
            PolicyError, match=f"audit log {why.get(spoil, 'cannot be opened')}.*nothing leaves it unlogged"
        ):
            refuse()
    owned.guard.refused(asked(number=1), "no log", "refused")  # and there is nothing more to be done


def test_a_full_disk_refuses_and_leaves_whole_lines(write_site, monkeypatch):
    path = write_site()
    owned = read_owned_site(path)
    serve(owned, asked())
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: write(file, data[:20], at))
    with pytest.raises(
        PolicyError, match="audit log cannot be written: the disk is full, and nothing leaves it unlogged"
    ):
        serve(owned, asked(number=1))
    monkeypatch.setattr(os, "pwrite", write)
    serve(owned, asked(number=2))
    assert [line["call"] for line in lines(path)] == [0, 2]


def test_a_line_that_a_crash_cut_off_is_dropped(write_site):
    path = write_site()
    serve(read_owned_site(path), asked())
    log = path.parent / "audit.jsonl"
    log.write_bytes(log.read_bytes() + b'{"when": "20')
    serve(read_owned_site(path), asked(number=1))
    assert [line["call"] for line in lines(path)] == [0, 1]


@pytest.mark.parametrize(
    "change",
    [
        lambda found: [found[0].replace("alice", "mallory"), *found[1:]],
        lambda found: [found[0], found[2]],
        lambda found: [found[1], found[0], found[2]],
        lambda found: [found[0], "{}", *found[1:]],
        lambda found: [found[0], "no JSON", *found[1:]],
    ],
)
def test_an_altered_log_is_noticed(write_site, change):
    path = write_site()
    owned = read_owned_site(path)
    for number in range(3):
        serve(owned, asked(number=number))
    log = path.parent / "audit.jsonl"
    log.write_text("\n".join(change(log.read_text().splitlines())) + "\n")
    with pytest.raises(PolicyError, match=r"audit log was altered at line \d .*, and nothing leaves it unlogged"):
        read_owned_site(path)
    with pytest.raises(PolicyError, match=r"was altered at line \d"):
        list(audit_log.read_lines(log))


def test_no_row_is_in_a_log_or_a_refusal(write_site, table):
    path = write_site('file = "rows.csv"')
    owned = read_owned_site(path)
    for step in (SUMS, *SINGLE_ROWS):
        with pytest.raises(Exception):  # noqa: B017, PT011
            serve(owned, asked(step))  # a column of text is in the way, or a rule
    text = (path.parent / "audit.jsonl").read_text()
    assert len(lines(path)) == 7
    assert not [value for value in table["age"] if str(value)[:10] in text]
