"""Rolling upgrades: neighbouring versions work together, but for steps that differ, which are named."""

from __future__ import annotations

import warnings

import pytest

import fedspan as fs
from fedspan.engines.remote.coordinator import site_directory
from fedspan.engines.remote.coordinator.remote_federation import RemoteFederation
from fedspan.engines.remote.messages.environment import fedspan_version
from fedspan.errors import QuorumError
from fedspan.federation.site import step_digests
from tests.owner.owner_desk import Desk, Wires

from .people import authority, user

NEXT = f"{fedspan_version().rpartition('.')[0].rpartition('.')[0]}.{int(fedspan_version().split('.')[1]) + 1}.0"


@pytest.fixture
def desks(tmp_path):
    made = [Desk(tmp_path / name, name=name) for name in "abc"]
    yield made
    for one in made:
        one.worker.close()


@pytest.fixture
def newer(monkeypatch):
    """Let the user's side be of the next version."""
    for module in ("site_directory", "signed_requests"):
        monkeypatch.setattr(f"fedspan.engines.remote.coordinator.{module}.fedspan_version", lambda: NEXT)


def federation(desks):
    return RemoteFederation(Wires(*desks), user(), authority(["a", "b", "c"]))


def test_the_next_version_gets_the_same_answers(desks, newer):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with federation(desks) as fed:
            assert fs.FedPCA(1).fit(fed).run_.failures == []


def test_a_step_that_differs_is_named_and_not_requested(desks, newer, monkeypatch):
    mine = step_digests.digests() | {"sums.moments": "changed"}
    monkeypatch.setattr(step_digests, "digests", lambda: mine)
    monkeypatch.setattr(site_directory, "digests", lambda: mine)
    with federation(desks) as fed:
        with (
            pytest.warns(UserWarning, match=r"these steps differ.*: sums\.moments"),
            pytest.raises(QuorumError, match=r"in which 'sums\.moments' differs: use one version"),
        ):
            fs.FedPCA(1).fit(fed)
        assert not any("sums.moments" in line["step"] for desk in desks for line in desk.lines())


def test_a_step_that_differs_in_another_checkout_of_the_same_version_is_named(desks, monkeypatch):
    mine = step_digests.digests() | {"sums.moments": "changed"}
    monkeypatch.setattr(step_digests, "digests", lambda: mine)
    with federation(desks) as fed:
        with (
            pytest.warns(UserWarning, match=r"site 'a' has another checkout.*these steps differ.*: sums\.moments"),
            pytest.raises(QuorumError, match=r"another checkout of fedspan .*, in which 'sums\.moments' differs"),
        ):
            fs.FedPCA(1).fit(fed)
        assert not any("sums.moments" in line["step"] for desk in desks for line in desk.lines())


def test_versions_that_are_further_apart_are_refused(desks, monkeypatch):
    far = NEXT.replace(f".{NEXT.split('.')[1]}.", f".{int(NEXT.split('.')[1]) + 5}.")
    for module in ("site_directory", "signed_requests"):
        monkeypatch.setattr(f"fedspan.engines.remote.coordinator.{module}.fedspan_version", lambda: far)
    with federation(desks) as fed, pytest.raises(QuorumError, match="use one version"):
        fs.FedPCA(1).fit(fed)
