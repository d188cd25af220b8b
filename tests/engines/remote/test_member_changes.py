"""The list of participants changes during a run of secure sums: the run goes on, and who was removed is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fedspan as fs
from fedspan.engines.members.member_list import Member
from fedspan.engines.remote.messages import identity as identities
from fedspan.engines.remote.messages.identity import Identity
from fedspan.federation.outcomes import FailureKind

from .network import Network
from .people import certificate, identity, key, member_list, pem

NAMES = "abcd"


@fs.step
def weighed(site, weight):
    return {"total": weight * site.X.sum(axis=0)}


def sites(names=NAMES):
    return [fs.Site(name, np.full((6, 2), float(2**i))) for i, name in enumerate(names)]


@pytest.fixture
def network(tmp_path, monkeypatch):
    monkeypatch.setattr(identities, "_KNOWN_TO_ALL", 0.0)
    made = Network(sites(), tmp_path, members=member_list(1, NAMES))
    yield made
    made.close()


def study(network, change, rounds=6, quorum="majority", at=17):
    """Run secure sums, and `change` something amid the third or fourth of them; return the totals."""
    network.sends.clear()

    def after_send():
        if len(network.sends) == at:
            change()

    network.after_send = after_send
    fed = network.federation(fs.Policy(secure_sum=True, quorum=quorum))

    def protocol(fed):
        return [float(fed.sum(weighed, weight=float(t + 1))["total"][0] / (t + 1)) for t in fed.rounds(rounds)]

    return fed.run(protocol)


def listed(network, **changes):
    """Hand out the next version of the list."""
    now = network.authority.members
    network.authority.take(now.changed(members={**now.members, **changes}))


@pytest.mark.parametrize("at", [16, 18, 19])
def test_a_site_that_is_removed_is_in_no_further_sum_and_the_run_goes_on(network, at):
    def remove():
        network.authority.take(network.authority.members.without("d", "removed"))

    totals = study(network, remove, at=at)
    everyone, rest = 6.0 * (1 + 2 + 4 + 8), 6.0 * (1 + 2 + 4)
    assert totals[:2] == [everyone, everyone]
    assert totals[-2:] == [rest, rest]
    assert set(totals) == {everyone, rest}
    for name in "abc":  # a coordinator that goes on with the site is refused by the others
        assert "d" not in network.workers[name].host.vault._known
    fed = network.federation()
    replies = fed.ask(weighed, weight=1.0)
    assert replies.failed["d"].kind is FailureKind.REFUSED
    assert "was removed from the federation" in str(replies.failed["d"])


def test_a_run_that_needs_all_sites_ends_with_a_sentence(network):
    def remove():
        network.authority.take(network.authority.members.without("d", "removed"))

    with pytest.raises(fs.errors.QuorumError, match="site 'd' was removed from the federation"):
        study(network, remove, quorum="all")


def test_a_certificate_is_renewed_and_the_old_one_ends(network):
    new = certificate("b", "", identity("b")._key.public_key()).decode()
    old = identity("b").certificate.decode()
    own = Identity(identity("b").certificate, pem(identity("b")._key))
    network.identities["b"] = own
    network.start("b")

    def renew():
        listed(network, b=Member("site", "", (new, old)))

    totals = study(network, renew, quorum="all")
    assert totals == [6.0 * 15] * 6
    assert own.certificate == new.encode()
    listed(network, b=Member("site", "", (new,)))
    assert study(network, lambda: None, quorum="all") == [6.0 * 15] * 6


def test_a_key_is_replaced_and_the_old_one_is_refused(network):
    def other_key():
        made = Identity(certificate("b", "", key(7).public_key()), pem(key(7)))
        listed(network, b=Member("site", "", (made.certificate.decode(),)))
        network.identities["b"] = made
        network.start("b")

    totals = study(network, other_key)
    assert totals[-1] == 6.0 * 15
    network.identities.clear()
    network.start("b")
    answer = network.federation().ask(weighed, weight=1.0).failed["b"]
    assert "is not on the federation's list" in str(answer)


def test_a_run_that_needs_all_sites_waits_for_one_whose_key_is_replaced(network):
    def other_key():
        made = Identity(certificate("b", "", key(7).public_key()), pem(key(7)))
        listed(network, b=Member("site", "", (made.certificate.decode(),)))
        network.after_send = lambda: restarted(made)  # the process with the old key has answered once more

    def restarted(made):
        network.after_send = lambda: None
        network.identities["b"] = made
        network.start("b")

    assert study(network, other_key, quorum="all") == [6.0 * 15] * 6


def test_a_replaced_site_that_is_offline_does_not_stop_the_others(network):
    other = Identity(certificate("d", "", key(7).public_key()), pem(key(7)))
    old = network.workers["d"].keys.own

    def replaced():
        listed(network, d=Member("site", "", (other.certificate.decode(),)))
        network.stop("d")

    totals = study(network, replaced)
    assert totals[-2:] == [6.0 * 7] * 2
    for name in "abc":  # a user that does not have the list yet sends the old key: it is left out
        network.workers[name].keys.accept({"d": old})
        assert "d" not in network.workers[name].host.vault._known
    fed = network.federation(fs.Policy(secure_sum=True, quorum="majority"))
    assert fed.run(lambda fed: float(fed.sum(weighed, weight=1.0)["total"][0])) == 6.0 * 7
    network.identities["d"] = other
    network.start("d")
    assert study(network, lambda: None, quorum="all") == [6.0 * 15] * 6


def test_a_new_site_is_in_the_next_study_without_a_restart_of_the_others(network):
    def add():
        network.data["e"] = fs.Site("e", np.full((6, 2), 16.0))
        listed(network, e=Member("site", "", (identity("e").certificate.decode(),)))
        network.start("e")

    totals = study(network, add, quorum="all")
    assert totals == [6.0 * 15] * 6
    network.sites = tuple("abcde")
    assert study(network, lambda: None, quorum="all") == [6.0 * 31] * 6


def test_a_removed_user_is_refused_by_sites(network):
    fed = network.federation()
    assert fed.ask(weighed, weight=1.0).ok.keys() == set(NAMES)
    now = network.authority.members
    network.authority.take(replace(now.without("alice", "removed on a Monday")))
    with pytest.raises(fs.errors.QuorumError, match="the certificate of 'alice' was revoked: removed on a Monday"):
        fed.ask(weighed, weight=1.0)
