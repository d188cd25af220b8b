"""Secure sums between sites that know each other by their certificates."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

import fedspan as fs
from fedspan.durable import append_file
from fedspan.engines.remote.messages import key_exchange
from fedspan.engines.remote.messages.envelope import Sealed
from fedspan.errors import PolicyError, QuorumError
from fedspan.pca.covariance import covariance_pca
from fedspan.secure_sum.sum_vault import Vault
from fedspan.wire import as_array

from .network import Network, three_sites
from .people import authority, certificate, identity, key, pem
from .steps import count, walk

SECURE = fs.Policy(secure_sum=True)
STRICT = fs.Policy(secure_sum=True, quorum="all", run_deadline=600.0)


@pytest.fixture
def net(tmp_path):
    network = Network(three_sites(), tmp_path / "sites")
    yield network
    network.close()


def walked(fed, rounds=3):
    """A protocol of sums that keeps state at the sites."""
    return [fed.sum(walk, pull=0.3)["position"] for _ in fed.rounds(rounds)]


def test_the_sum_is_that_of_the_embedded_engine(net):
    embedded = fs.LocalFederation(three_sites(), seed=1, policy=SECURE)
    with net.federation(SECURE) as fed:
        np.testing.assert_allclose(walked(fed), walked(embedded), rtol=1e-14)  # each site fills in bits of its own
        assert fed.sum(count)["n"] == 21
        assert fed.record.failures == []


def test_no_part_of_a_site_travels(net):
    net.keep_requests = True
    answers = []
    net.meddle = lambda site, what, data: answers.append(data) or data
    with net.federation(SECURE) as fed:
        fed.run(covariance_pca, rank=2)
    for site in three_sites():
        part = (site.X.T @ site.X).tobytes()
        assert not any(part[:16] in data for data in answers)


def test_the_owner_sees_which_step_is_summed(tmp_path):
    net, judged = Network(three_sites(), tmp_path), []
    net.workers["a"].admission.check_call = judged.append
    with net.federation(SECURE) as fed:
        fed.sum(count)
    assert {request.step for request in judged} == {"tests.engines.remote.steps.count"}
    assert [request.stage for request in judged] == ["offer", "share", "masked", "confirm", "unmask"]


def test_a_run_of_secure_sums_gives_no_single_reply(net):
    """Whatever the coordinator requests: the site knows that this run is one of secure sums."""
    fed = net.federation(SECURE)
    fed.sum(count)
    net.start("a")  # also after a restart
    for site in ("a", "b"):
        fed._root.policy = fs.Policy(quorum=1)
        with pytest.raises(QuorumError, match="takes part in secure sums only"):
            fed.ask(count, [site])
        fed._root.policy = SECURE
    with net.federation() as other:  # another run is not bound by it
        assert other.ask(count)["a"]["n"] == 6


@pytest.mark.parametrize("moment", range(1, 12))
def test_a_restarted_site_exchanges_keys_again(net, moment):
    """A site's key is lost with its process. With a quorum of all the sum is made again."""
    expected = walked(fs.LocalFederation(three_sites(), seed=1, policy=SECURE))
    fed = net.federation(STRICT)
    sends = [0]

    def after_send():
        sends[0] += 1
        if sends[0] == moment + 1:
            net.start("b")

    net.after_send = after_send
    with fed.begin("walked") as running:
        np.testing.assert_allclose(walked(running), expected, rtol=1e-14)


@pytest.mark.parametrize("moment", [1, 3, 5])
def test_a_run_waits_for_a_site_whose_disk_is_full(net, moment, monkeypatch):
    expected = walked(fs.LocalFederation(three_sites(), seed=1, policy=SECURE))
    write, sends, notices = append_file._write, [0], []

    def full(descriptor, parts, at):
        if moment < sends[0] < moment + 12 and f"{net.folder / 'b'}/" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(28, "No space left on device")
        write(descriptor, parts, at)

    def after_send():
        sends[0] += 1

    monkeypatch.setattr(append_file, "_write", full)
    net.after_send, net.workers["b"].notify = after_send, notices.append
    with net.federation(STRICT).begin("walked") as running:
        np.testing.assert_allclose(walked(running), expected, rtol=1e-14)
    assert all("can't be written: No space left on device" in notice for notice in notices)
    assert notices


def test_a_site_that_is_offline_at_first_joins_later(net):
    net.stop("c")
    with net.federation(SECURE) as fed:
        assert fed.sum(count).sites == ("a", "b")
        net.start("c")
        assert fed.sum(walk, pull=0.3).sites == ("a", "b", "c")
        assert fed.record.absences == ["site c was offline in call 0 and back in call 1"]


def test_a_site_whose_clock_was_ahead_is_in_sums_after_it_was_set_right(net, monkeypatch):
    with monkeypatch.context() as ahead:
        ahead.setattr("time.time_ns", lambda now=time.time_ns: now() + 2 * 86_400 * 10**9)
        net.start("a")
    for _ in range(2):
        assert net.federation(SECURE).sum(count).sites == ("a", "b", "c")
        net.start("a")


class Forger:
    """An attacker between the sites, with its own key."""

    def __init__(self, site="b", signer=None, federation="clinics", made=2**60, says=None):
        head = {"federation": federation, "site": says or site, "made": made, "key": as_array(Vault().public)}
        self.key = Sealed(signer or identity("b"), "key", head, {}).to("")
        self.site = site


def foreign(name):
    """Return an identity under another root."""
    from fedspan.engines.remote.messages.identity import Identity

    return Identity(certificate(name, "", key(0).public_key(), root_key=key(6)), pem(key(0)))


@pytest.mark.parametrize(
    ("forger", "reason"),
    [
        (lambda: Forger(signer=identity("c")), "the key of site 'b' is refused: 'c' has signed it"),
        (lambda: Forger(signer=identity("b", "analyst")), "the key of site 'b' is refused: 'b' has signed it"),
        (lambda: Forger(signer=foreign("b")), "was not issued by the root"),
        (lambda: Forger(federation="banks"), "of another federation"),
        (lambda: Forger(says="c"), "the key of site 'b' is refused: 'b' has signed it"),
        (lambda: Forger("x", signer=identity("x")), "there is no such site in this federation"),
        (lambda: Forger(made=1), "the key of site 'b' is refused: a newer one is known"),
    ],
    ids=["another site", "a user", "another root", "another federation", "another name", "no site", "an old one"],
)
def test_a_forged_key_is_refused_by_the_site(net, forger, reason):
    fed = net.federation(SECURE)
    assert fed.sum(count)["n"] == 21
    forged = forger()
    vault = net.workers["a"].host.vault
    known = dict(vault._known)
    with pytest.raises(PolicyError, match=reason):
        net.workers["a"].keys.accept({forged.site: forged.key})
    assert vault._known == known


def test_a_coordinator_that_forges_keys_gets_no_sum(net):
    fed = net.federation(SECURE)
    fed.engine.reports()
    forged = Forger(signer=identity("c")).key
    object.__setattr__(fed.engine.directory.reports["b"], "key", forged)
    with pytest.raises(QuorumError, match="refused: the key of site 'b' is refused: 'c' has signed it"):
        fed.sum(count)


def test_a_site_does_not_go_below_the_least_of_its_run(net):
    fed = net.federation(fs.Policy(secure_sum=fs.SecureSum(least=3)))
    fed.sum(count)
    fed.engine.directory._secure = fs.SecureSum(least=2)
    fed.engine.directory.exchange_keys(fed.engine.directory.open_runs)
    assert "over at least 3 sites, not 2" in fed.engine.directory.objection("a")


AGREED = fs.SecureSum(threshold=0.9, least=3)


def test_a_run_has_the_federations_settings(tmp_path):
    net = Network(three_sites(), tmp_path, secure_sum=AGREED)
    with net.federation(SECURE) as fed:
        assert fed.policy.secure_sum == AGREED
        assert fed.sum(count)["n"] == 21
        with pytest.raises(PolicyError, match="over 2 sites cannot be a secure one: that takes from 3"):
            fed.subset(["a", "b"]).sum(count)
    with net.federation(fs.Policy(secure_sum=fs.SecureSum(threshold=1.0, least=2))) as fed:
        assert (fed.policy.secure_sum.threshold, fed.policy.secure_sum.least) == (1.0, 3)


@pytest.mark.parametrize("named", [fs.SecureSum(threshold=0.6, least=2), fs.SecureSum(threshold=0.6, least=3)])
def test_sites_refuse_a_coordinator_that_names_less(tmp_path, named):
    """Whatever the coordinator's process sends: the settings are in the sites' own kits."""
    net = Network(three_sites(), tmp_path, secure_sum=AGREED)
    net.authority = authority(net.sites, secure_sum=fs.SecureSum(threshold=0.6))
    fed = net.federation(fs.Policy(secure_sum=named))
    fed._root.summation.settings = fs.SecureSum(threshold=0.6)
    with pytest.raises(QuorumError, match="a threshold of 2 of 3 sites is below the 3 that this site demands"):
        fed.sum(count)


def test_an_owner_may_demand_more_sites(tmp_path):
    from fedspan.owner.admission import Admission
    from fedspan.owner.allowed_steps import AllowedSteps
    from fedspan.owner.rules import Rules

    net = Network(three_sites(), tmp_path)
    rules = Rules(AllowedSteps(("installed",)), least_rows=1, least_sites=3)
    net.workers["a"].admission = Admission(three_sites()[0], rules)
    fed = net.federation(SECURE)
    total = fed.sum(count)  # two of three would have sufficed
    assert total.sites == ("b", "c")
    assert "a threshold of 2 of 3 sites is below the 3 that this site demands" in total.failed["a"]
    with net.federation(fs.Policy(secure_sum=fs.SecureSum(least=3))) as other:
        assert other.sum(count)["n"] == 21


def test_a_signed_key_is_small(net):
    assert len(net.workers["a"].keys.own) < key_exchange._LARGEST
