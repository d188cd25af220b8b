"""Charges of one call: on disk before its reply leaves, and never for a reply that can't leave."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.errors import BudgetError, PolicyError, QuorumError
from fedspan.federation.calls.call import Call
from fedspan.federation.outcomes import FailureKind
from fedspan.federation.site.site_host import RunState, SiteHost
from fedspan.federation.site.steps import find_step
from fedspan.privacy import Ledger, normal


def site_with(ledger, name="a"):
    return fs.Site(name, np.ones((6, 2)), ledger=ledger)


def ledger_at(tmp_path, name="a", **options):
    return Ledger(tmp_path / f"{name}.ledger", epsilon=50.0, delta=1e-5, **options)


@fs.step
def noisy_sums(site, size=2, times=1):
    keys = [site.charged(mu2=0.01) for _ in range(times)]
    return {"x": site.X.sum() + sum(normal(key, (size,)) for key in keys)}


@fs.step
def charge_then_fail(site):
    site.charged(mu2=0.01)
    raise ValueError(f"no sum of {site.X[0, 0]}")


@fs.step
def plain_sum(site):
    return {"x": float(site.X.sum())}


class Records:
    """Where a site writes its replies; notes what the ledger held when each was written."""

    def __init__(self, ledger, state):
        self.ledger, self.state, self.charges = ledger, state, []

    def load(self, run):
        return self.state

    def answered(self, call, after, delivery):
        self.charges.append(("answered", len(self.ledger.charges)))

    def failed(self, call, after):
        self.charges.append(("failed", len(self.ledger.charges)))


@pytest.fixture
def host(tmp_path):
    ledger = ledger_at(tmp_path)
    return SiteHost(site_with(ledger), records=Records(Ledger(ledger.path, read_only=True), RunState()))


def perform(host, step, number=0, **payload):
    return host.perform(Call("run", number, 0, find_step(step), payload, ("a",)), payload, number - 1)


def test_a_charge_is_on_disk_before_the_reply_leaves(host):
    perform(host, noisy_sums)
    perform(host, noisy_sums, number=1, times=2)
    perform(host, noisy_sums, number=2, times=2)  # a repeated query costs nothing
    assert host._records.charges == [("answered", 1), ("answered", 3), ("answered", 3)]


def test_a_step_that_fails_after_a_charge_is_charged(host):
    with pytest.raises(ValueError, match="no sum"):
        perform(host, charge_then_fail)
    assert host._records.charges == [("failed", 1)]


@pytest.mark.parametrize(("size", "charges"), [(100, 1), (101, 0)])
def test_nothing_is_charged_for_an_oversize_reply(host, size, charges):
    host.largest = 24 + 8 + 100 * 8  # head, key and shape, 100 numbers
    if charges:
        perform(host, noisy_sums, size=size)
    else:
        with pytest.raises(PolicyError, match="more than the 832 bytes allowed, and the privacy budget is not charged"):
            perform(host, noisy_sums, size=size)
    assert host._records.charges == [("answered" if charges else "failed", charges)]


def test_a_reply_without_noise_may_be_of_any_size_here(host):
    """The coordinator's policy, or the site's worker, refuses it: no budget depends on it."""
    host.largest = 10
    assert perform(host, plain_sum).reply["x"] == 12.0


def test_an_embedded_site_is_not_charged_for_what_its_policy_refuses(tmp_path):
    sites = [site_with(ledger_at(tmp_path, name), name) for name in "abc"]
    fed = fs.LocalFederation(sites, policy=fs.Policy(max_bytes=1000, quorum=1))
    with pytest.raises(QuorumError, match="0 of 3") as caught:
        fed.ask(noisy_sums, size=200)
    assert {failure.kind for failure in caught.value.failed.values()} == {FailureKind.OVERSIZE}
    assert [len(site.ledger.charges) for site in sites] == [0, 0, 0]
    assert len(fed.ask(noisy_sums, size=100).ok) == 3
    assert [len(site.ledger.charges) for site in sites] == [1, 1, 1]


@pytest.mark.parametrize("wire", [False, True])
def test_nothing_is_charged_for_an_oversize_part_of_a_secure_sum(tmp_path, wire):
    sites = [site_with(ledger_at(tmp_path, name), name) for name in "abc"]
    policy = fs.Policy(max_bytes=3000, secure_sum=True)
    fed = fs.LocalFederation(sites, policy=policy, wire=wire)
    with pytest.raises(QuorumError, match="the privacy budget is not charged"):
        fed.sum(noisy_sums, size=500)
    assert [len(site.ledger.charges) for site in sites] == [0, 0, 0]
    fed.sum(noisy_sums, size=20)
    assert [len(site.ledger.charges) for site in sites] == [1, 1, 1]


def test_a_secure_sum_that_a_failing_step_spoils_is_charged(tmp_path):
    """The charge covers what the failure reveals."""
    sites = [site_with(ledger_at(tmp_path, name), name) for name in "abc"]
    with pytest.raises(fs.errors.FedspanError):
        fs.LocalFederation(sites, policy=fs.Policy(secure_sum=True)).sum(charge_then_fail)
    assert [len(site.ledger.charges) for site in sites] == [1, 1, 1]


def test_a_charge_beyond_the_budget_lets_no_reply_leave(tmp_path):
    """The second charge of the call fits the budget alone, and not with the first."""
    ledger = Ledger(tmp_path / "poor", epsilon=0.45, delta=1e-5)
    host = SiteHost(site_with(ledger))
    with pytest.raises(BudgetError, match="privacy budget"):
        perform(host, noisy_sums, times=2)
    assert host.given_before(Call("run", 0, 0, find_step(noisy_sums), {"times": 2}, ("a",))) is None
    assert len(ledger.charges) == 1


@fs.step
def read_then_charge(site):
    return {"x": site.X.sum() + normal(site.charged(mu2=0.01), ())}


def test_a_strict_ledger_shows_no_data_before_a_charge(tmp_path):
    host = SiteHost(site_with(ledger_at(tmp_path, strict=True)))
    for step in (plain_sum, read_then_charge):
        with pytest.raises(PolicyError, match="strict ledger of site 'a' lets no reply leave"):
            perform(host, step)
    assert not host.site.ledger.charges
    perform(host, noisy_sums)
    assert len(host.site.ledger.charges) == 1
