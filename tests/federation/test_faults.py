"""Seeded faults."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.errors import InputError
from fedspan.federation.calls.faults import KINDS

from .conftest import make_sites, walk, wander

REASONS = {
    "drop": "lost",
    "delay": "late",
    "error": "raised RuntimeError",
    "malformed": "malformed",
    "nonfinite": "non-finite",
    "shape": "misshapen",
    "stale": "stale: a reply to call",
}


@pytest.mark.parametrize("kind", sorted(REASONS))
def test_each_fault_makes_the_site_fail_with_its_reason(kind, wire):
    fed = fs.LocalFederation(make_sites(20), wire=wire, policy=fs.Policy(quorum=1))
    faulty = fed.with_faults(fs.FaultPlan(seed=1, **{kind: 0.2}))
    for _ in range(5):
        faulty.ask(walk, pull=0.1)
        faulty.sum(walk, pull=0.1)
    reasons = [why for _, _, why in fed.record.failures]
    assert 20 < len(reasons) < 60  # 200 replies, 40 expected
    assert all(REASONS[kind] in why for why in reasons)


def test_a_duplicated_call_changes_nothing(wire):
    expected = fs.LocalFederation(make_sites()).run(wander)
    fed = fs.LocalFederation(make_sites(), wire=wire)
    np.testing.assert_array_equal(fed.with_faults(fs.FaultPlan(duplicate=1.0)).run(wander), expected)


def test_faults_depend_on_seed_site_and_call_alone(wire):
    def failures(**options):
        fed = fs.LocalFederation(make_sites(), policy=fs.Policy(quorum=1), **options)
        faulty = fed.with_faults(fs.FaultPlan(seed=4, drop=0.2, shape=0.1))
        result = faulty.run(wander)
        return result.tobytes()

    assert failures(wire=wire) == failures(n_jobs=3)


def test_faults_below_the_quorum_end_the_run():
    fed = fs.LocalFederation(make_sites())
    with pytest.raises(fs.errors.QuorumError, match="lost"):
        fed.with_faults(fs.FaultPlan(drop=1.0)).run(wander)


def test_a_fault_finds_something_to_spoil_in_any_reply(wire):
    @fs.step
    def odd(site, what):
        return {"empty": {}, "text": {"a": "x"}, "none": {"a": None}, "int": {"n": 3}, "void": {"x": np.zeros(0)}}[what]

    for kind in ("nonfinite", "shape", "malformed"):
        for what in ("text", "none", "int", "void"):
            fed = fs.LocalFederation(make_sites(5), wire=wire, policy=fs.Policy(quorum=1))
            assert fed.with_faults(fs.FaultPlan(seed=3, **{kind: 0.3})).ask(odd, what=what).failed


def test_impossible_plans_are_refused():
    with pytest.raises(InputError, match=r"drop=1\.5"):
        fs.FaultPlan(drop=1.5)
    with pytest.raises(InputError, match="add up"):
        fs.FaultPlan(drop=0.6, error=0.6)


def test_every_kind_has_a_test():
    assert set(KINDS) == {*REASONS, "duplicate"}
