"""The site's side of a call: its state changes only with accepted calls."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.federation.calls.call import Call, Delivery
from fedspan.federation.site import site_host
from fedspan.federation.site.site_host import RunState
from fedspan.federation.site.steps import find_step

from .conftest import count, make_sites, walk


def test_a_part_of_a_sum_continues_the_pending_call_alone():
    def part(number, part, session):
        return Call("run", number, 0, find_step(count), {"session": session}, ("a",), part=part)

    run = RunState(number=2, pending=[(part(3, 0, "x"), Delivery(3, {}))], pending_number=3)
    parts = [part(3, 1, "x"), part(3, 0, "x"), part(2, 1, "x"), part(4, 1, "x"), part(3, 1, "y"), part(4, 0, "x")]
    assert [run.continues(call) for call in parts] == [True, False, False, False, False, False]


@pytest.mark.parametrize("wire", [False, True])
def test_a_reply_that_was_not_accepted_leaves_no_trace_in_the_state(wire):
    """A site whose replies are lost goes back to the state of the last accepted call, every time."""
    from .conftest import walk

    fed = fs.LocalFederation(make_sites(), wire=wire, policy=fs.Policy(quorum=1))
    plan = fs.FaultPlan(seed=2, drop=0.1, delay=0.1, stale=0.05, nonfinite=0.05, malformed=0.05, duplicate=0.2)
    accepted = dict.fromkeys(fed.sites, 0)
    with fed.begin("run") as run:
        faulty = run.with_faults(plan)
        for _ in range(30):
            for name, reply in faulty.ask(walk, pull=0.1).ok.items():
                accepted[name] += 1
                assert reply["steps"] == accepted[name]
    assert min(accepted.values()) > 5
    assert max(accepted.values()) < 30


def test_the_coordinator_cannot_change_what_a_site_keeps(fed):
    position = fed.ask(walk, pull=0.0)["s0"]["position"]
    with pytest.raises(ValueError, match="read-only"):
        position[0] = 99.0
    kept = np.array([1.0, 2.0])

    @fs.step
    def lend(site):
        return {"x": kept}

    lent = fed.ask(lend)["s0"]["x"]
    kept[0] = 50.0
    assert lent[0] == 1.0


def test_states_of_two_runs_do_not_mix():
    from .conftest import walk

    fed = fs.LocalFederation(make_sites())
    with fed.begin("one") as one:
        one.ask(walk, pull=0.0)
        one.ask(walk, pull=0.0)
        with fed.begin("two") as two:
            assert two.ask(walk, pull=0.0).stack("steps").tolist() == [1] * 7
        assert one.ask(walk, pull=0.0).stack("steps").tolist() == [3] * 7


def test_a_step_that_reads_rows_alone_makes_no_context(monkeypatch):
    """Ledger, generator and state are made for the calls that use them: thousands of sites call for none."""
    made = []
    contexts = site_host.CallContext
    monkeypatch.setattr(site_host, "CallContext", lambda *args, **more: made.append(args) or contexts(*args, **more))
    fed = fs.LocalFederation(make_sites())
    fed.sum(count)
    assert not made
    fed.ask(walk, pull=0.0)
    assert len(made) == 7
