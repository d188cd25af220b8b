"""A coordinator that speaks for a user: in the user's name, for a while, and with its own key."""

from __future__ import annotations

import time

import numpy as np
import pytest

import fedspan as fs
from fedspan.engines.remote.messages.identity import Delegate, make_delegation
from fedspan.errors import InputError, MessageError, QuorumError
from fedspan.wire import decode, encode

from .network import Network, three_sites
from .people import authority, identity, user
from .steps import count, wander


@pytest.fixture
def net(tmp_path):
    network = Network(three_sites(), tmp_path / "sites")
    yield network
    network.close()


def delegate(to="server", by=None, signer=None, federation="clinics", seconds=60.0):
    return Delegate(identity(signer or to), make_delegation(by or user(), to, federation, seconds), authority())


def test_a_delegate_runs_what_the_user_could(net):
    expected = fs.LocalFederation(three_sites(), seed=1).run(wander)
    np.testing.assert_array_equal(net.federation(who=delegate()).run(wander), expected)
    assert delegate().participant == user().participant


def test_a_run_of_a_delegate_is_the_users(net, tmp_path):
    """The user goes on with what the delegate began."""
    expected = fs.LocalFederation(three_sites(), seed=1).run(wander)
    sends = []

    def after_send():
        sends.append(1)
        if len(sends) == 4:
            raise KeyboardInterrupt

    net.after_send = after_send
    with pytest.raises(KeyboardInterrupt):
        net.federation(None, tmp_path / "run", who=delegate()).run(wander)
    np.testing.assert_array_equal(net.federation(None, tmp_path / "run").run(wander), expected)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: delegate(signer="other"), "'alice' has not delegated anything to 'other'"),
        (lambda: delegate(federation="banks"), "the delegation is of another federation"),
        (lambda: Delegate(identity("server"), b"nonsense", authority()), "not a fedspan message|fewer than"),
        (lambda: Delegate(identity("server"), encode({"head": 1}), authority()), "cannot be read"),
    ],
    ids=["another user", "another federation", "nonsense", "no words"],
)
def test_delegations_that_do_not_fit_are_refused(make, reason):
    with pytest.raises(MessageError, match=reason):
        make()


def test_a_site_checks_a_delegation_itself(net, monkeypatch):
    good = delegate()
    with net.federation(who=good) as fed:
        assert fed.sum(count)["n"] == 21
        signed = decode(good.delegation)
        later = decode(signed["head"].tobytes()) | {"until": time.time() + 1e6}
        good.delegation = encode(signed | {"head": np.frombuffer(encode(later), dtype=np.uint8)})
        with pytest.raises(QuorumError, match="the signature is not one of 'alice' on this message"):
            fed.ask(count)
        good.delegation = make_delegation(user(), "another", "clinics", 60.0)
        with pytest.raises(QuorumError, match="'alice' has not delegated anything to 'server'"):
            fed.ask(count)
        good.delegation = make_delegation(user(), "server", "clinics", 60.0)
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 61.0)
        with pytest.raises(QuorumError, match="the delegation of 'alice' to 'server' has expired"):
            fed.ask(count)


def test_the_role_is_the_users(net):
    with (
        net.federation(who=delegate(by=user("mia", "member"))) as fed,
        pytest.raises(QuorumError, match="role 'member'"),
    ):
        fed.ask(count)


def test_only_users_delegate_and_not_for_ever():
    with pytest.raises(InputError, match="'a' is not a user"):
        make_delegation(identity("a"), "server", "clinics", 60.0)
    for seconds in (0.0, float("inf"), 1e9):
        with pytest.raises(InputError, match="at most 30 days"):
            make_delegation(user(), "server", "clinics", seconds)
    # A user does not pass on what another one has delegated.
    with pytest.raises(MessageError, match="has not delegated anything to 'bob'"):
        Delegate(user("bob"), make_delegation(user(), "bob", "clinics", 60.0), authority())
