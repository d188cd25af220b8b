"""What sites report about their tasks: agreement on labels, malformed reports, sites that are left out."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import fedspan as fs
from fedspan.errors import InputError
from fedspan.few_shot.altgdmin import altgdmin
from fedspan.few_shot.byz_altgdmin import byz_altgdmin
from fedspan.few_shot.parts.task_coefs import median_coefs, pooled_coefs
from fedspan.few_shot.parts.tasks import agree_on_tasks, feature_spread, merged_labels

from .few_shot_examples import SITES, N, Q, R, by_rows, by_tasks, error, learn, rewriting


def test_sites_with_and_without_tasks_do_not_mix():
    X, y = np.ones((4, 2)), np.ones(4)
    fed = fs.LocalFederation([fs.Site("a", X, y, [0, 0, 1, 1]), fs.Site("b", X, y)])
    with pytest.raises(InputError, match="site 'b' have no task"):
        fed.run(agree_on_tasks)
    three = fs.LocalFederation([fs.Site(name, X, y, [0, 0, 1, 1]) for name in "acd"] + [fs.Site("b", X, y)])
    assert three.run(agree_on_tasks).strange == ("b",)
    with pytest.warns(UserWarning, match="rows have no task, or have one where most sites' have none, or .*: b"):
        found = three.run(altgdmin, rank=1, n_columns=2, iterations=1)
    assert set(found.weights) == {"a", "c", "d"}


def test_labels_may_be_numbers_at_some_sites_and_text_at_others(data):
    sites = []
    for i in range(SITES):
        mine = data.sites == f"site-{i:02d}"
        task = data.task[mine].astype(str) if i % 2 else data.task[mine]
        sites.append(fs.Site(str(i), data.X[mine], data.y[mine], task))
    fed = fs.LocalFederation(sites, seed=1)
    assert fed.run(agree_on_tasks).labels.dtype.kind == "U"  # as many have text as numbers
    most = fs.LocalFederation(sites[:-1])
    assert most.run(agree_on_tasks).labels.tolist() == list(range(Q))
    assert most.run(median_coefs, U=data.basis).tasks.tolist() == list(range(Q))
    odd = fs.LocalFederation([sites[0], *sites[2:-1], fs.Site("x", data.X[:9], data.y[:9], np.repeat("own", 9))])
    assert odd.run(agree_on_tasks).labels.tolist() == sorted([*map(str, range(Q)), "own"])
    outvoted = odd.run(agree_on_tasks, resilient=True)
    assert outvoted.labels.tolist() == list(range(Q))
    assert outvoted.strange == ("x",)
    for protocol in (altgdmin, byz_altgdmin):
        assert error(learn(fed, protocol), data) < 1e-4
    coefs = fed.run(pooled_coefs, U=data.basis, tasks=np.sort(np.arange(Q).astype(str)))
    np.testing.assert_allclose(coefs.loadings, data.loadings[coefs.tasks.astype(int)], atol=1e-9)


def test_impossible_ranks_are_refused(data):
    for rank in (0, N + 1):
        with pytest.raises(InputError, match=f"rank={rank} must be between 1 and"):
            learn(by_rows(data), rank=rank)
        with pytest.raises(InputError, match=f"rank={rank} must be between 1 and"):
            learn(by_rows(data), altgdmin, rank=rank)
    with pytest.raises(InputError, match="init='median_of_means'"):
        learn(by_tasks(data, sites=32), init="subspace_median")


def test_no_site_meddles_where_all_have_rows_of_all_tasks_or_neighbours_share(data):
    assert not by_rows(data).run(agree_on_tasks, resilient=True).meddling
    assert not by_tasks(data).run(agree_on_tasks, resilient=True).meddling
    pairs = fs.federate(data.X, data.y, sites=(data.task + np.arange(len(data.y)) % 2) % SITES, task=data.task)
    assert not pairs.run(agree_on_tasks, resilient=True).meddling


def test_the_spread_of_features_is_distinguished_from_chance():
    rng = np.random.default_rng(0)
    white = rng.standard_normal((1500, 200))
    assert feature_spread(white, False) == pytest.approx((1.0, 1.0), abs=0.02)
    largest, mean = feature_spread(3.0 * white * np.r_[4.0, np.ones(199)], False)
    assert largest == pytest.approx(144.0, rel=0.1)
    assert mean == pytest.approx(9.0 * (1 + 15 / 200), rel=0.1)
    assert feature_spread(white + 50.0, True)[0] == pytest.approx(1.0, abs=0.02)
    assert feature_spread(white + 50.0, False)[0] > 1e5
    assert feature_spread(np.zeros((5, 3)), False) == (0.0, 0.0)


def test_silent_sites_are_requested_again_and_then_left_out(data):
    fed = by_tasks(data)

    def silent(first, last):
        return lambda replies, bad, rng, call: dict.fromkeys(bad) if first <= call.number <= last else {}

    once = fed.corrupt(silent(0, 1), sites=["3"])
    assert len(once.run(agree_on_tasks).labels) == Q
    assert len(once.run(median_coefs, U=data.basis).tasks) == Q
    assert len(once.run(pooled_coefs, U=data.basis, tasks=np.arange(Q)).tasks) == Q
    gone = fed.corrupt(silent(0, 99), sites=["3"])
    for coefs in (gone.run(median_coefs, U=data.basis), gone.run(pooled_coefs, U=data.basis, tasks=np.arange(Q))):
        assert coefs.tasks.tolist() == [k for k in range(Q) if k % SITES != 3]


MALFORMED = {
    "none": {"task": None},
    "empty": {"task": np.zeros(0, dtype=int), "rows": np.zeros(0, dtype=int)},
    "twice": {"task": np.array([1, 1]), "rows": np.array([5, 5])},
    "floats": {"task": np.array([1.5]), "rows": np.array([5])},
    "no rows": {"rows": np.array([0])},
    "short": {"rows": np.array([9])},
    "fake": {"task": np.array([9999]), "rows": np.array([10**9])},
    "text": {"task": np.array(["x"]), "rows": np.array([7])},
    "power": {"power": np.ones(3)},
    "no names": {"named": False},
    "spread": {"spread": 1e300, "power": -1e300, "offset": 5.0, "uneven": 1e300},
    "huge": {"spread": 1.7e308, "power": 1.7e308, "offset": 1.7e308, "uneven": 1.7e308},
    "beyond floats": {"power": 10**400},
    "power is text": {"power": "x"},
    "power is nothing": {"power": None},
    "power is true": {"power": True},
    "power is complex": {"power": 1j},
    "named is text": {"named": "yes"},
    "named is a list": {"named": np.ones(3, dtype=bool)},
    "named is nothing": {"named": None},
    "more rows than there are atoms": {"task": np.array([1]), "rows": np.array([2**63 + 5], dtype=np.uint64)},
    "beyond 64 bits": {"task": np.array([2**63 + 5], dtype=np.uint64), "rows": np.array([5])},
    "a matrix": {"task": np.ones((2, 2), dtype=int)},
    "one name": {"task": 7, "rows": 5},
    "long": {"task": np.array(["x" * 300]), "rows": np.array([5])},
    "nan": {"power": np.nan},
}


@pytest.mark.parametrize("what", MALFORMED)
def test_malformed_lists_of_tasks_cost_their_site_and_never_the_run(data, what):
    attack = rewriting("few_shot.tasks", lambda reply: reply | MALFORMED[what])
    fed = by_tasks(data).corrupt(attack, sites=["2"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert error(learn(fed), data) < 1e-6


@pytest.mark.parametrize("key", ["task", "rows", "named", "power", "offset", "spread", "uneven"])
@pytest.mark.parametrize("split", [by_rows, by_tasks])
def test_a_report_with_a_missing_key_fails_its_site_with_one_sentence(data, split, key):
    attack = rewriting("few_shot.tasks", lambda reply: {k: v for k, v in reply.items() if k != key})
    fed = split(data)
    with fed.corrupt(attack, sites=[fed.sites[2]]).begin("test") as run:
        with pytest.warns(UserWarning, match="1 of 8 sites .* did not report their tasks: "):
            tasks = agree_on_tasks(run, resilient=True)
        assert fed.sites[2] not in tasks.held
        reason = run.record.calls[0].failed[fed.sites[2]]
    assert "\n" not in reason
    assert "Error" not in reason


def test_a_site_that_invents_a_great_many_tasks_is_left_out(data):
    many = {"task": np.arange(50_000), "rows": np.full(50_000, 9)}
    fed = by_tasks(data).corrupt(rewriting("few_shot.tasks", lambda reply: reply | many), sites=["2"])
    tasks = fed.run(agree_on_tasks, resilient=True)
    assert tasks.strange == ("2",)
    assert len(tasks.labels) == Q - SITES
    with pytest.warns(UserWarning, match="left out, .*: 2"):
        assert error(learn(fed, init="median_of_means"), data) < 1e-6


def test_a_site_without_rows_is_a_failed_site(data):
    sites = [fs.Site(str(i), *(column[data.task % 7 == i] for column in (data.X, data.y, data.task))) for i in range(7)]
    fed = fs.LocalFederation([*sites, fs.Site("empty", data.X[:0], data.y[:0], data.task[:0])])
    for protocol in (altgdmin, byz_altgdmin):
        with fed.begin("test") as run, pytest.warns(UserWarning, match="sites have no rows.*: empty"):
            assert error(protocol(run, rank=R, n_columns=N, iterations=40), data) < 1e-6
        assert "this site has no rows" in run.record.calls[0].failed["empty"]


def test_labels_of_sites_are_merged_as_numbers_where_most_have_numbers():
    own = {"a": np.array([2, 1]), "b": np.array([1, 3]), "c": np.array(["x"])}
    assert merged_labels(own, outvoted=False)[0].tolist() == ["1", "2", "3", "x"]
    labels, places = merged_labels(own, outvoted=True)
    assert labels.tolist() == [1, 2, 3]
    assert {site: place.tolist() for site, place in places.items()} == {"a": [1, 0], "b": [0, 2]}
