"""The warning where sites' values form two groups of nearly equal size."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import fedspan as fs
from fedspan import attacks
from fedspan.aggregation.vote_groups import warn_of_groups
from fedspan.datasets import make_subspace_sites

NAMES = tuple(f"s{i:02d}" for i in range(19))


def values(seed):
    return np.random.default_rng(seed).normal(size=(19, 6))


@pytest.mark.parametrize("seed", range(5))
def test_values_of_one_kind_are_no_two_groups(seed):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_groups("the votes", values(seed), NAMES)
        warn_of_groups("the votes", np.zeros((19, 6)), NAMES)


@pytest.mark.parametrize("false", [5.0, 1e300, "copies of an honest one"])
def test_nearly_half_that_agree_are_named(false):
    made = values(0)
    made[:9] = made[12] if isinstance(false, str) else false
    named = "[79] of 19 sites .*s09, s10" if isinstance(false, str) else "9 of 19 sites .*s00, s01"
    with pytest.warns(UserWarning, match=f"the votes form two groups, and {named}"):  # of ten equal ones, the others
        warn_of_groups("the votes", made, NAMES)


@pytest.mark.parametrize("solver", ["resilient_power", "resilient_covariance"])
@pytest.mark.parametrize("attack", [attacks.Ones(1e300), attacks.Mimic()], ids=["huge", "copies"])
def test_a_baseline_warns_near_half(solver, attack):
    """Its error was 3.86 times that of a site alone, without a word."""
    made = make_subspace_sites(20, 3, 19, 100, spike=40.0, tail=1.0, seed=3)
    fed = fs.federate(made.X, sites=made.sites, seed=1)
    model = fs.FedPCA(3, solver=solver, center=False)
    with pytest.warns(UserWarning, match=r"(products|second moments) form two groups, and 9 of 19 sites"):
        model.fit(fed.corrupt(attack, sites=fed.sites[:9]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(fed)
        model.fit(fed.corrupt(attacks.RandomNoise(100.0), sites=fed.sites[:3]))
