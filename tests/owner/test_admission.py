"""Admission: what each rule refuses and allows, before data are read, and the line about it."""

from __future__ import annotations

import json
import stat
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from fedspan.errors import BudgetError, FedspanError, PolicyError
from fedspan.federation.calls.call import Call
from fedspan.federation.site.site_host import SiteHost
from fedspan.federation.site.steps import find_step, installed_steps
from fedspan.owner import audit_log, read_owned_site
from fedspan.owner.admission import OwnerRequest
from fedspan.wire import encode

SUMS = "sums.sums"
PULL = "landmarks.noisy_pull"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Stop the site's clock, so that no test begins on one day and ends on the next."""
    monkeypatch.setattr(audit_log, "now", lambda: NOON)


def call(step=SUMS, number=0, *, user="alice", how="ask", stage="", run="run-1", part=0, transforms=()):
    return OwnerRequest(user, "analyst", "call", run, number, part, step, transforms, how, stage)


def judge(owned, request):
    owned.admission.check_user(request)
    owned.admission.check_call(request)


def serve(owned, request, **payload):
    """Do what a site's worker does with a call; return the reply."""
    request.payload = payload
    try:
        judge(owned, request)
        made = Call(request.run, request.number, 0, find_step(request.step), payload, ("clinic",), how=request.how)
        reply = SiteHost(owned.site).perform(made, payload, -1).reply
        owned.admission.release(request, len(encode(reply)))
    except Exception as error:
        owned.admission.refused(request, "refused" if isinstance(error, FedspanError) else "failed", str(error))
        raise
    return reply


def lines(path):
    return [json.loads(line) for line in (path.parent / "audit.jsonl").read_text().splitlines()]


def test_an_allowed_call_is_answered_and_logged(write_site, table):
    path = write_site()
    owned = read_owned_site(path)
    reply = serve(owned, call())
    np.testing.assert_allclose(reply["sum"], table[["age", "weight"]].sum())
    (line,) = lines(path)
    assert len(line.pop("chain")) == 32
    assert line == {
        "when": "2026-03-01T12:00:00.000+00:00",
        "who": "alice",
        "role": "analyst",
        "run": "run-1",
        "call": 0,
        "part": 0,
        "step": SUMS,
        "transforms": [],
        "how": "ask",
        "stage": "",
        "bytes": len(encode(reply)),
        "budget_left": None,
        "outcome": "answered",
        "ran": True,
        "why": "",
    }
    assert stat.S_IMODE((path.parent / "audit.jsonl").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("rules", "request_", "why"),
    [
        ('users = ["bob"]', call(), "you are not among this site's users: its owner does not list 'alice'"),
        ("users = []", call(), "does not list 'alice'"),
        ('steps = ["landmarks"]', call(), f"this site's owner does not allow step '{SUMS}'"),
        ("steps = []", call(), "does not allow step"),
        ("", call("ourlab.local_all"), "does not allow step 'ourlab.local_all'"),
        ("", call("landmarks.distances"), "it is in the group 'single rows'"),
        ("", call("secure_sum.offer", stage="offer"), "does not allow step"),
        ("", call(transforms=("ourlab.zoom",)), "does not allow the transform 'ourlab.zoom'"),
        ("transforms = []", call(transforms=("sums.standardize",)), "does not allow the transform"),
        ("least_rows = 31", call(), r"fewer rows than its owner requires \(31\), and is silent"),
        ("sums_only = true", call(), "allows secure sums only, and this is a request for a single reply"),
        ("sums_only = true", call(how="sum"), "allows secure sums only"),
        ("rounds_per_day = 0", call(), "allows a user 0 rounds a day"),
    ],
)
def test_each_rule_refuses_before_data_are_read(write_site, rules, request_, why):
    path = write_site(rules=rules)
    owned = read_owned_site(path)
    with pytest.raises(PolicyError, match=why) as caught:
        judge(owned, request_)
    owned.admission.refused(request_, "refused", str(caught.value))
    (line,) = lines(path)
    assert (line["outcome"], line["ran"], line["bytes"], line["step"]) == ("refused", False, 0, request_.step)
    assert line["why"] == str(caught.value)


@pytest.mark.parametrize(
    ("rules", "request_"),
    [
        ('users = ["alice"]', call()),
        ('steps = ["sums"]', call()),
        (f'steps = ["{SUMS}"]', call()),
        ("", call("landmarks.pull")),
        ('steps = ["single rows"]', call("landmarks.distances")),
        ('steps = ["fedspan"]', call("landmarks.distances")),
        ("steps = []", call("sums.columns")),
        ("steps = []", call("secure_sum.share", stage="share")),
        ("least_rows = 30", call()),
        ("sums_only = true", call(stage="offer")),
        ("sums_only = true", call("sums.columns")),
        ("rounds_per_day = 1", call()),
        ("", call(transforms=("sums.standardize",))),
        ('transforms = ["sums"]', call(transforms=("sums.standardize",))),
    ],
)
def test_each_rule_allows_what_it_names(write_site, rules, request_):
    judge(read_owned_site(write_site(rules=rules)), request_)
    assert request_.ran


def test_the_beginning_of_an_id_ends_at_a_dot(write_site):
    owned = read_owned_site(write_site(rules='steps = ["pca"]'))
    judge(owned, call("pca.gram"))
    with pytest.raises(PolicyError, match="does not allow step"):
        judge(owned, call("pca_of_others.local_all"))


def test_other_roles_than_analysts_run_nothing(write_site):
    owned = read_owned_site(write_site())
    request = call()
    request.role = "viewer"
    with pytest.raises(PolicyError, match="'alice' has the role 'viewer', which may not run steps"):
        owned.admission.check_user(request)


def test_a_reply_that_is_too_large_does_not_leave(write_site):
    path = write_site(rules="largest_reply = 100")
    owned = read_owned_site(path)
    owned.admission.release(call(), 100)
    with pytest.raises(
        PolicyError, match="the reply has more bytes than the 100 of this site's largest_reply"
    ) as caught:
        owned.admission.release(call(), 101)
    owned.admission.refused(call(), "refused", str(caught.value))
    assert [line["outcome"] for line in lines(path)] == ["answered", "refused"]
    with pytest.raises(PolicyError, match="the reply has"):
        serve(read_owned_site(write_site(rules="largest_reply = 10")), call())


def test_rounds_are_counted_by_user_and_day_and_survive_a_restart(write_site, monkeypatch):
    path = write_site(rules="rounds_per_day = 2")
    serve(read_owned_site(path), call(number=0))
    owned = read_owned_site(path)  # the site has restarted
    serve(owned, call(number=1))
    with pytest.raises(PolicyError, match="allows a user 2 rounds a day"):
        serve(owned, call(number=2))
    with pytest.raises(PolicyError, match="allows a user 2 rounds a day"):
        serve(owned, call(number=0, run="run-2"))
    serve(owned, call(number=2, user="bob"))
    with pytest.raises(PolicyError, match="rounds a day"):
        serve(read_owned_site(path), call(number=3))
    monkeypatch.setattr(audit_log, "now", lambda: NOON + timedelta(hours=12))
    serve(owned, call(number=2))
    serve(read_owned_site(path), call(number=3))
    with pytest.raises(PolicyError, match="rounds a day"):
        serve(read_owned_site(path), call(number=4))


def test_a_clock_that_is_set_back_lifts_no_limit(write_site, monkeypatch):
    path = write_site(rules="rounds_per_day = 1")
    owned = read_owned_site(path)
    serve(owned, call(number=0))
    monkeypatch.setattr(audit_log, "now", lambda: NOON - timedelta(days=2))
    for site in (owned, read_owned_site(path)):
        with pytest.raises(PolicyError, match="rounds a day"):
            serve(site, call(number=2))


def test_the_stages_of_a_secure_sum_are_one_round_and_a_second_reply_is_another(write_site):
    owned = read_owned_site(write_site(rules="rounds_per_day = 2"))
    for part, stage in enumerate(("offer", "share", "masked", "confirm", "unmask")):
        request = call(part=part, stage=stage)
        judge(owned, request)
        owned.admission.release(request, 10)
    serve(owned, call())  # the same number again, with any payload
    with pytest.raises(PolicyError, match="rounds a day"):
        serve(owned, call())
    with pytest.raises(PolicyError, match="rounds a day"):
        serve(owned, call(number=1))


def test_a_step_that_fails_counts_as_a_round_and_a_refused_one_does_not(write_site):
    path = write_site(rules='rounds_per_day = 1\nusers = ["alice", "bob"]')
    owned = read_owned_site(path)
    for step in ("tables.category_names", "ourlab.step"):
        with pytest.raises(PolicyError):
            serve(owned, call(step))
    with pytest.raises(TypeError):
        serve(owned, call("sums.centred_sums"))  # without a centre
    with pytest.raises(PolicyError, match="rounds a day"):
        serve(owned, call(number=1))
    assert [line["outcome"] for line in lines(path)] == ["refused", "refused", "failed", "refused"]


def test_two_processes_share_a_log(write_site):
    path = write_site(rules="rounds_per_day = 2")
    one, other = read_owned_site(path), read_owned_site(path)
    serve(one, call(number=0))
    serve(other, call(number=1))
    for owned in (one, other):
        with pytest.raises(PolicyError, match="rounds a day"):
            serve(owned, call(number=2))
    assert len(audit_log.read_lines(path.parent / "audit.jsonl")) == 4


def test_a_spent_budget_refuses_and_is_logged(write_site):
    path = write_site(privacy='ledger = "clinic.ledger"\nepsilon = 1.0\ndelta = 1e-5')
    owned = read_owned_site(path)
    payload = {"Y": np.zeros((2, 2)), "gamma": 1.0, "multiplier": 6.0}
    serve(owned, call(PULL, 0), **payload)
    with pytest.raises(BudgetError, match="budget is epsilon=1"):
        serve(owned, call(PULL, 1), **payload | {"multiplier": 4.0})
    restarted = read_owned_site(path)
    with pytest.raises(BudgetError):
        serve(restarted, call(PULL, 2), **payload | {"multiplier": 4.0})
    serve(restarted, call(PULL, 3), **payload)  # the same query again costs nothing
    first, second, third, last = lines(path)
    assert [line["outcome"] for line in (first, second, third, last)] == ["answered", "refused", "refused", "answered"]
    assert 0 < first["budget_left"] < 1.0
    assert first["budget_left"] == second["budget_left"] == third["budget_left"] == last["budget_left"]
    assert first["budget_left"] == pytest.approx(1.0 - owned.ledger.spent, abs=1e-6)
    assert "budget is epsilon=1" in second["why"]


def test_a_strict_ledger_refuses_and_is_logged(write_site):
    path = write_site(privacy='ledger = "clinic.ledger"\nepsilon = 1.0\ndelta = 1e-5\nstrict = true')
    with pytest.raises(PolicyError, match="the strict ledger of site 'clinic' lets no reply leave"):
        serve(read_owned_site(path), call())
    assert lines(path)[0]["outcome"] == "refused"


def test_a_long_reason_is_one_short_line(write_site):
    path = write_site()
    admission = read_owned_site(path).admission
    admission.refused(call(), "refused", "a stale message")
    admission.refused(call(number=-1), "failed", "two\nlines " + "x" * 5000)
    found = lines(path)
    assert [line["outcome"] for line in found] == ["refused", "failed"]
    assert found[1]["why"].startswith("two lines x")
    assert len(found[1]["why"]) == 500


def test_no_row_is_in_a_log_or_a_refusal(write_site, table):
    path = write_site('file = "rows.csv"')
    owned = read_owned_site(path)
    steps = [SUMS, *(id for id, step in installed_steps().items() if step.reveals == "rows" and "." in id)]
    for step in steps:
        with pytest.raises(Exception):  # noqa: B017, PT011
            serve(owned, call(step))  # a column of text is in the way, or a rule
    text = (path.parent / "audit.jsonl").read_text()
    assert len(lines(path)) == len(steps) > 5
    assert not [value for value in table["age"] if str(value)[:10] in text]
