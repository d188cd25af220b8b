"""Secure sums between sites that know each other by their certificates."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.engines.remote.messages import key_exchange as introduction
from fedspan.engines.remote.messages.envelope import Sealed
from fedspan.errors import PolicyError, QuorumError
from fedspan.pca.covariance import covariance_pca
from fedspan.secure_sum.sum_vault import Vault
from fedspan.wire import as_array

from .network import Network, three_sites
from .people import certificate, identity, key, pem
from .steps import count, walk

SECURE = fs.Policy(secure_sum=True)
STRICT = fs.Policy(secure_sum=True, quorum="all", run_deadline=20.0)


@pytest.fixture
def net(tmp_path):
    network = Network(three_sites(), tmp_path / "sites")
    yield network
    network.close()


class Log:
    """A guard that allows everything and remembers it."""

    def __init__(self):
        self.asks = []

    largest_reply = None

    def welcome(self, ask):
        pass

    def look(self, ask):
        pass

    def admit(self, ask):
        self.asks.append(ask)

    def release(self, ask, size):
        pass

    def refused(self, ask, why, outcome, ran):
        pass


def walked(fed, rounds=3):
    """A protocol of sums that keeps state at the sites."""
    return [fed.sum(walk, pull=0.3)["position"] for _ in fed.rounds(rounds)]


def test_the_sum_is_that_of_the_embedded_engine(net):
    embedded = fs.LocalFederation(three_sites(), seed=1, policy=SECURE)
    with net.federation(SECURE) as fed:
        np.testing.assert_array_equal(walked(fed), walked(embedded))
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
    log = Log()
    with Network(three_sites(), tmp_path, guard=log).federation(SECURE) as fed:
        fed.sum(count)
    mine = log.asks[:: len(three_sites())]
    assert {ask.step for ask in mine} == {"tests.engines.remote.steps.count"}
    assert [ask.how for ask in mine] == [f"secure {what}" for what in ("offer", "share", "masked", "confirm", "unmask")]


def test_a_run_of_secure_sums_gives_no_single_reply(net):
    """Whatever the coordinator says: the site has been told that this run is one of sums, and keeps to it."""
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
def test_a_restarted_site_is_introduced_again(net, moment):
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
        np.testing.assert_array_equal(walked(running), expected)


def test_a_site_that_is_away_at_first_joins_later(net):
    net.stop("c")
    with net.federation(SECURE) as fed:
        assert fed.sum(count).sites == ("a", "b")
        net.start("c")
        assert fed.sum(count).sites == ("a", "b", "c")
        assert fed.record.absences == ["site c was away in call 0, and there again in call 1"]


class Forger:
    """Somebody between the sites, with a key of his own."""

    def __init__(self, site="b", signer=None, federation="clinics", made=2**60, says=None):
        head = {"federation": federation, "site": says or site, "made": made, "key": as_array(Vault().public)}
        self.introduction = Sealed(signer or identity("b"), "introduction", head, {}).to("")
        self.site = site


def foreign(name):
    """Return an identity under another root."""
    from fedspan.engines.remote.messages.identity import Identity

    return Identity(certificate(name, "", key(0).public_key(), root_key=key(6)), pem(key(0)))


@pytest.mark.parametrize(
    ("forger", "reason"),
    [
        (lambda: Forger(signer=identity("c")), "the key of site 'b' is not believed: 'c' has signed it"),
        (lambda: Forger(signer=identity("b", "lead")), "the key of site 'b' is not believed: 'b' has signed it"),
        (lambda: Forger(signer=foreign("b")), "was not issued by the root"),
        (lambda: Forger(federation="banks"), "of another federation"),
        (lambda: Forger(says="c"), "the key of site 'b' is not believed: 'b' has signed it"),
        (lambda: Forger("x", signer=identity("x")), "there is no such site in this federation"),
        (lambda: Forger(made=1), "the key of site 'b' is not believed: there is a newer one"),
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
        net.workers["a"].introductions.take({forged.site: forged.introduction})
    assert vault._known == known


def test_a_coordinator_that_forges_keys_gets_no_sum(net):
    fed = net.federation(SECURE)
    fed.engine.about()
    forged = Forger(signer=identity("c")).introduction
    about = fed.engine._meeting.about
    object.__setattr__(about["b"], "introduction", forged)
    with pytest.raises(QuorumError, match="refused: the key of site 'b' is not believed: 'c' has signed it"):
        fed.sum(count)


def test_a_site_does_not_go_below_the_least_it_was_told(net):
    fed = net.federation(fs.Policy(secure_sum=fs.SecureSum(least=3)))
    fed.sum(count)
    fed.engine._meeting._secure = fs.SecureSum(least=2)
    fed.engine._meeting.introduce(list(fed.engine._pinned))
    assert "over at least 3 sites, not 2" in fed.engine._meeting.objection("a")


def test_an_introduction_is_small(net):
    assert len(net.workers["a"].introductions.own) < introduction._LARGEST
