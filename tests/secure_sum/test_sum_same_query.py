"""What is added up is the same request to all: sites that received different ones give no masked reply."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fedspan as fs
from fedspan.engines.local.embedded import LocalEngine
from fedspan.errors import FedspanError, QuorumError
from fedspan.federation.site.call_context import CallContext
from fedspan.federation.site.steps import find_step
from fedspan.federation.site.transforms import Transform
from fedspan.maps.parts.map_centres import along_axes
from fedspan.maps.parts.noisy_centres import local_noisy_scatter
from fedspan.sums.moments import local_sums

from .players import NUMBERS, Players, numbers_of, sites_of

EVERYBODY = fs.Policy(secure_sum=fs.SecureSum(least=5, threshold=1.0))
NOT_SEALED = "not what its sender sealed for this set of sites"


@fs.step
def other_numbers_of(site, factor):
    return numbers_of(site, 0.0 * factor)


def axes(matrix):
    return Transform.of(along_axes, {"mean": np.zeros(3), "axes": matrix})


@pytest.mark.parametrize(
    "other",
    [
        {"factor": 0.0},
        {"transforms": [axes(np.zeros((3, 3)))]},
        {"what": f"{__name__}.other_numbers_of"},
    ],
    ids=["payload", "transform", "step"],
)
@pytest.mark.parametrize("wrong", [["s02"], ["s00", "s01", "s03", "s04"]], ids=["one", "all but one"])
def test_no_masked_reply_where_sites_were_told_different_things(other, wrong):
    players = Players(5)
    players.threshold = 5
    sent = {"transforms": [axes(np.eye(3))]}
    offers = {name: players.offer(name, **(sent | other if name in wrong else sent)) for name in players.names}
    shares = players.shared(players.group(offers))
    for name in players.names:
        with pytest.raises(FedspanError, match=NOT_SEALED):
            players.masked(name, shares)


def test_the_seed_and_the_range_are_part_of_the_question():
    """What a step draws goes by the run's seed."""
    found = {CallContext({}, "run", 0, seed).request_digest("a", {}) for seed in (0, 1)}
    found |= {CallContext({}, "run", number, 0).request_digest("a", {}) for number in (0, 1)}
    assert len(found) == 3
    players = Players(5)
    players.hosts["s02"].vault.take(fs.SecureSum(largest=1e6))
    sent = {"s02": {"largest": 1e6}}
    offers = {name: players.offer(name, **sent.get(name, {})) for name in players.names}
    shares = players.shared(players.group(offers))
    with pytest.raises(FedspanError, match=NOT_SEALED):
        players.masked("s00", shares)
    assert players.hosts["s00"].vault.numbers == NUMBERS


@pytest.fixture
def told_apart(monkeypatch):
    """Tell some sites something else than the others, in the first question of a sum: ``{site: changes}``."""
    changes, whole = {}, LocalEngine.call

    def call(self, call, to, accepted, policy):
        outcomes = {}
        for name in to:
            mine = call
            if call.step is find_step("secure_sum.offer") and name in changes:
                mine = replace(call, **{key: change(getattr(call, key)) for key, change in changes[name].items()})
            outcomes |= whole(self, mine, [name], accepted, policy)
        return outcomes

    monkeypatch.setattr(LocalEngine, "call", call)
    return changes


def test_a_transform_that_hides_all_sites_but_one(told_apart):
    fed = fs.LocalFederation(sites_of(5), policy=EVERYBODY).apply(along_axes, mean=np.zeros(3), axes=np.eye(3))
    np.testing.assert_allclose(fed.sum(local_sums)["sum"], sum(site.X.sum(axis=0) for site in sites_of(5)))
    for name in ("s00", "s01", "s03", "s04"):
        told_apart[name] = {"transforms": lambda _: (axes(np.zeros((3, 3))),)}
    with pytest.raises(QuorumError, match=NOT_SEALED):
        fed.sum(local_sums)


def test_others_with_less_noise(told_apart):
    """The ledger is charged for noise that all sites were requested to add."""
    fed = fs.LocalFederation(sites_of(5), policy=EVERYBODY)
    sent = {"center": np.zeros(3), "clip": 1.0, "multiplier": 3.0, "sharers": 5, "colluding": 0}
    fed.sum(local_noisy_scatter, **sent)
    for name in ("s00", "s01", "s03", "s04"):
        told_apart[name] = {"payload": lambda payload: payload | {"with multiplier": 1e-9}}
    with pytest.raises(QuorumError, match=NOT_SEALED):
        fed.sum(local_noisy_scatter, **sent)
