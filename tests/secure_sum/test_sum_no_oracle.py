"""Nothing that one site says depends on the values of its rows: only the total does."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pandas as pd
import pytest

import fedspan as fs
from fedspan.engines.local.embedded import LocalEngine
from fedspan.errors import InputError, PolicyError, QuorumError
from fedspan.federation.outcomes import FailureKind
from fedspan.federation.site.call_context import CallContext
from fedspan.maps.parts.map_centres import along_axes
from fedspan.secure_sum import sum_layout as layouts
from fedspan.secure_sum.sum_fixed_point import subtract
from fedspan.sums.moments import local_sums

from .players import NUMBERS, Players, sites_of

SECURE = fs.Policy(secure_sum=True)


@fs.step
def axes_of(site):
    """Fails for rows that are not finite, and for a matrix without an inverse."""
    site.state["calls"] = site.state.get("calls", 0) + 1
    return {"inverse": np.linalg.inv(np.linalg.svd(site.X)[1][:, None] * np.eye(3)), "n": len(site)}


@fs.step
def target_sum(site):
    if not np.isfinite(site.y).all():
        raise ValueError(f"bad values: {site.y}")
    return {"y": float(site.y.sum()), "words": int((site.task == "a").sum())}


@fs.step
def of_frame(site):
    if site.frame["x"].max() > 10:
        raise ValueError("too large")
    return {"x": site.frame["x"].sum(), "n": int((site.frame["word"] == "a").sum())}


@fs.step
def below(site, bound):
    site.state["calls"] = site.state.get("calls", 0) + 1
    if site.X.max() > bound:
        raise ValueError("too large")
    return {"calls": site.state["calls"]}


@fs.step
def never(site):
    raise ValueError(f"this step always fails, here for {site.X[0, 0]}")


@fs.step
def in_range_alone(site):
    return {"x": site.X.sum(axis=0) * (1.0 if site.name == "s02" else 1e30), "n": 7 if site.name == "s02" else 2**60}


@pytest.fixture
def seen(monkeypatch):
    """All that each site says, as far as a coordinator can tell it from what is drawn at random."""
    reported, whole = {}, LocalEngine.call

    def shown(outcome):
        reply = getattr(outcome, "reply", None)
        if reply is None:
            return str(outcome)
        return {key: value if isinstance(value, str) else (value.shape, value.dtype) for key, value in reply.items()}

    def call(self, call, to, *args):
        outcomes = whole(self, call, to, *args)
        for name, outcome in outcomes.items():
            reported.setdefault(name, []).append((call.step.id, call.part, shown(outcome)))
        return outcomes

    monkeypatch.setattr(LocalEngine, "call", call)
    return reported


def rows_of(largest, n=5):
    sites = sites_of(n)
    rows = sites[1].X.copy()
    rows[0, 0] = largest
    return [*sites[:1], fs.Site("s01", rows), *sites[2:]]


@pytest.mark.parametrize("step", [local_sums, axes_of])
@pytest.mark.parametrize("scale", [1.0, 1e30, 1e305])
def test_what_a_site_says_is_the_same_whatever_its_rows(step, scale, seen):
    """Also through a transform that scales them up, so that some overflow and others do not."""
    found = []
    for largest in (0.5, 1e12):
        fed = fs.LocalFederation(rows_of(largest), policy=SECURE)
        seen.clear()
        with suppress(InputError):  # of the total, if at all
            fed.apply(along_axes, mean=np.zeros(3), axes=scale * np.eye(3)).sum(step)
        found.append(dict(seen))
    assert found[0] == found[1]
    assert [part for _, part, _ in found[0]["s01"]] == list(range(5))


def test_a_step_that_fails_for_some_rows_fails_the_sum_and_names_nobody(seen, caplog):
    fed = fs.LocalFederation(rows_of(np.nan), policy=SECURE)
    with pytest.raises(InputError, match=r"step '.*axes_of' is refused: .* or the step fails for its rows"):
        fed.sum(axes_of)
    assert "site 's01' has no part to give" in caplog.text
    assert "LinAlgError" in caplog.text
    assert all(isinstance(shown, dict) for reported in seen.values() for *_, shown in reported)


def test_a_step_that_fails_for_any_rows_costs_its_site_alone():
    """As at empty sites. What is reported comes of invented rows, not of the site's own."""
    sites = [*sites_of(4), fs.Site("s04", np.zeros((0, 3)))]
    total = fs.LocalFederation(sites, policy=SECURE).sum(axes_of)
    assert total.sites == ("s00", "s01", "s02", "s03")
    assert "LinAlgError" in total.failed["s04"] or "ValueError" in total.failed["s04"]
    sites = sites_of(4)
    with pytest.raises(QuorumError, match="this step always fails, here for") as reported:
        fs.LocalFederation(sites, policy=SECURE).sum(never)
    assert not [site for site in sites if str(site.X[0, 0]) in str(reported.value)]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_targets_and_tasks_are_invented_too(bad, seen):
    def federation(value):
        y = np.arange(12.0)
        y[0] = value
        return fs.federate(np.eye(12), y, sites=np.arange(12) % 4, task=np.array(["a", "b"] * 6), policy=SECURE)

    assert federation(5.0).sum(target_sum)["words"] == 6
    expected = dict(seen)
    seen.clear()
    with pytest.raises(InputError, match="at one or more of the 4 sites"):
        federation(bad).sum(target_sum)
    assert seen == expected


def test_frames_are_invented_too(seen):
    def federation(largest):
        frame = pd.DataFrame({"x": np.arange(8) % 4, "word": ["a", "b"] * 4})
        frame.loc[0, "x"] = largest
        return fs.federate(frame, sites=np.arange(8) % 4, policy=SECURE)

    assert federation(5).sum(of_frame)["n"] == 4
    expected = dict(seen)
    seen.clear()
    with pytest.raises(InputError, match="at one or more of the 4 sites"):
        federation(50).sum(of_frame)
    assert seen == expected


def test_the_sum_with_a_site_that_spoils_it_tells_nothing(monkeypatch):
    """All sites but one are out of range: were their parts left out, the total would be that one's part."""
    totals, whole = [], layouts.unpacked

    def noted(*args):
        totals.append([words.copy() for words in args[:2]])
        return whole(*args)

    monkeypatch.setattr("fedspan.secure_sum.sum_layout.unpacked", noted)
    sites = sites_of(5)
    fed = fs.LocalFederation(sites, policy=SECURE)
    for _ in range(2):
        with pytest.raises(InputError, match="at one or more of the 5 sites"):
            fed.sum(in_range_alone)
    reply = {"x": sites[2].X.sum(axis=0), "n": 7}
    part = layouts.packed(reply, layouts.layout_of_reply(reply), NUMBERS, bytes(32))
    for which in (0, 1):
        first, second = totals[0][which], totals[1][which]
        assert np.all(first != part[which])
        assert np.all(first != second)  # random, and different each time
        subtract(first, part[which])
        assert np.all(first > 2**32)  # nor is it near


def test_a_spoilt_sum_takes_nothing_with_it():
    """No site's state changes, and the next call is as if it had not been."""
    fed = fs.LocalFederation(rows_of(9.0), policy=SECURE)
    with pytest.raises(InputError, match="at one or more of the 5 sites"):
        fed.sum(below, bound=8.0)
    assert fed.sum(below, bound=10.0)["calls"] == 5
    assert fed.sum(below, bound=10.0)["calls"] == 10


def test_small_rows_are_invented_where_others_fail():
    fed = fs.LocalFederation(rows_of(9.0), policy=SECURE)
    with pytest.raises(InputError, match="at one or more of the 5 sites"):
        fed.sum(below, bound=0.001)


def test_rules_and_accounts_are_told_in_the_open(tmp_path):
    """They say nothing of rows, and the owner of a site wants them known."""
    ledger = fs.privacy.Ledger(tmp_path / "ledger", epsilon=0.01, delta=1e-5)

    @fs.step
    def dear(site):
        site.charged(mu2=100.0)
        return {"n": 1}

    sites = [*sites_of(4), fs.Site("s04", np.zeros((2, 3)), ledger=ledger)]
    total = fs.LocalFederation(sites, policy=SECURE).sum(dear)
    assert total["n"] == 4
    assert total.failed["s04"].kind is FailureKind.BUDGET_SPENT


@pytest.fixture
def at_offer():
    players = Players(5)
    site = players.hosts["s00"].site.in_call(CallContext({}, vault=players.hosts["s00"].vault))
    site.now_runs("a", {})
    return site


def test_shares_of_noise_are_among_sites_that_are_known(at_offer):
    """More sharers than there can be would be less noise than was charged: refused before the step reads anything."""
    at_offer.hidden_among(5, deviation=1.0)
    assert at_offer.context.least == 5
    for sites in (6, 10**16, float("inf"), float("nan")):
        with pytest.raises(PolicyError, match="knows 5 sites, itself included, and is to add a share of noise"):
            at_offer.hidden_among(sites, deviation=1.0)


def test_shares_of_noise_that_would_be_rounded_away_are_refused(at_offer):
    at_offer.context.vault.take(fs.SecureSum(resolution=2.0**-10))
    at_offer.hidden_among(5, deviation=1.0)
    with pytest.raises(PolicyError, match=r"which a secure sum to 0\.000976562 would round away"):
        at_offer.hidden_among(5, deviation=0.99)
    with pytest.raises(PolicyError, match="round away"):
        at_offer.hidden_among(5, deviation=float("nan"))
