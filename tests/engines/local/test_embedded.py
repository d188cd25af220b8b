"""The embedded engine: sites of this process, their deadlines, and tables that become sites."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import fedspan as fs
from fedspan.errors import (
    InputError,
    QuorumError,
)
from tests.federation.conftest import count, make_sites

release = threading.Event()


@fs.step
def late(site):
    """Wait at one of the sites until the test releases it."""
    if site.name == "s2":
        release.wait(60)
    return {"n": 1}


def test_federate_splits_rows_by_label():
    X, y = np.arange(12.0).reshape(6, 2), np.arange(6)
    fed = fs.federate(X, y, sites=[10, 9, 10, 9, 9, 2], task=y % 2)

    @fs.step
    def everything(site):
        return {"X": site.X, "y": site.y, "task": site.task}

    replies = fed.ask(everything)
    assert fed.sites == ("10", "2", "9")  # as text
    np.testing.assert_array_equal(replies["9"]["X"], X[[1, 3, 4]])
    np.testing.assert_array_equal(replies["9"]["y"], [1, 3, 4])
    np.testing.assert_array_equal(replies["10"]["task"], [0, 0])


@pytest.mark.parametrize("bad", [{"seed": -1}, {"seed": 1.5}, {"seed": True}, {"n_jobs": 0}, {"n_jobs": 1.5}])
def test_bad_federation_parameters_are_refused(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        fs.LocalFederation(make_sites(), **bad)
    with pytest.raises(InputError, match="at least one site"):
        fs.LocalFederation([])
    with pytest.raises(InputError, match=r"use fedspan\.Site"):
        fs.LocalFederation([np.eye(2)])  # type: ignore[list-item]


@pytest.mark.parametrize("wire", [False, True])
def test_a_hung_site_costs_one_deadline_and_comes_back(wire):
    release.clear()
    fed = fs.LocalFederation(make_sites(), wire=wire, policy=fs.Policy(deadline=2.0))
    assert list(fed.ask(late).failed) == ["s2"]
    assert fed.ask(count).failed == {"s2": "late: still busy with call 0"}
    release.set()
    for _ in range(1000):
        if not fed.ask(count).failed:
            break
    else:
        pytest.fail("the site never came back")


def test_many_hung_sites_cost_two_deadlines_not_one_each():
    release.clear()

    @fs.step
    def hang(site):
        release.wait(300)
        return {}

    fed = fs.LocalFederation(make_sites(12), policy=fs.Policy(deadline=2.0))
    with pytest.raises(QuorumError, match="0 of 12"):
        fed.ask(hang)
    release.set()
    assert fed.record.calls[0].seconds < 12 * 2.0
