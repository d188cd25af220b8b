"""A result is the same bit for bit whatever the order, the threads and the wire; seeds decide everything."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs

from .conftest import make_sites, wander


def result(seed=3, reverse=False, **options):
    sites = make_sites()
    fed = fs.LocalFederation(sites[::-1] if reverse else sites, seed=seed, **options)
    return fed.run(wander).tobytes()


def test_order_threads_and_wire_change_nothing():
    expected = result()
    assert result(reverse=True) == expected
    assert result(n_jobs=4) == expected
    assert result(wire=True) == expected
    assert result(wire=True, n_jobs=3, reverse=True) == expected


def test_the_seed_decides():
    assert result(seed=3) != result(seed=4)


def test_a_run_begins_anew_with_the_same_seed():
    fed = fs.LocalFederation(make_sites(), seed=5)
    first, second = fed.run(wander), fed.run(wander)
    np.testing.assert_array_equal(first, second)
    other = fed.run(wander, random_state=6)
    assert not np.array_equal(first, other)
    np.testing.assert_array_equal(fed.run(wander, random_state=5), first)


def test_protocols_called_on_the_federation_itself_share_one_run():
    fed = fs.LocalFederation(make_sites())
    first = wander(fed)
    np.testing.assert_array_equal(first, fs.LocalFederation(make_sites()).run(wander))
    wander(fed)
    assert [call.number for call in fed.record.calls] == list(range(20))


def test_a_site_draws_by_seed_name_and_call_whoever_else_is_there():
    @fs.step
    def draw(site):
        return {"x": site.rng.random()}

    whole = fs.LocalFederation(make_sites(), seed=1)
    part = fs.LocalFederation(make_sites()[2:4], seed=1)
    assert whole.ask(draw)["s3"]["x"] == part.ask(draw)["s3"]["x"]
    assert whole.ask(draw, ["s3"])["s3"]["x"] == part.ask(draw)["s3"]["x"]
    draws = [reply["x"] for _ in range(3) for reply in whole.ask(draw).values()]
    assert len(set(draws)) == len(draws)


def test_views_share_the_run():
    fed = fs.LocalFederation(make_sites())
    with fed.begin("test") as run:
        run.subset(["s0"]).log(a=1)
        run.sample(0.5).log(b=1)
        run.corrupt(lambda *_: {}, sites=["s0"]).log(c=1)
        run.with_faults(fs.FaultPlan()).log(d=1)
        assert [sorted(entry.values) for entry in run.record.metrics] == [["a"], ["b"], ["c"], ["d"]]
        with run.begin("inner") as inner:
            assert inner.record is run.record


def test_states_of_two_runs_do_not_mix():
    from .conftest import walk

    fed = fs.LocalFederation(make_sites())
    with fed.begin("one") as one:
        one.ask(walk, pull=0.0)
        one.ask(walk, pull=0.0)
        with fed.begin("two") as two:
            assert two.ask(walk, pull=0.0).stack("steps").tolist() == [1] * 7
        assert one.ask(walk, pull=0.0).stack("steps").tolist() == [3] * 7


@pytest.mark.parametrize("wire", [False, True])
def test_a_reply_nobody_took_leaves_no_trace_in_the_state(wire):
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
