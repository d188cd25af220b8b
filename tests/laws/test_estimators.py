"""Every estimator of the package, found by itself, on every engine, and with a site that goes away.

What else all of them keep is among scikit-learn's conventions, in ``tests/test_base.py``: a table is its federation,
files are exact, a killed fit goes on, bad input gets a sentence.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from functools import cache

import numpy as np
import pytest
from sklearn.base import clone

import fedspan as fs
from fedspan.errors import FedspanError
from tests.engines.remote.network import Network

from .discovery import check_exported
from .estimator_examples import CLASSES, FOUND, assert_same_fit, fitted, make, table, target_of

every_estimator = pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)


def sites(kind):
    X, labels = table()
    Y = target_of(kind)
    return [fs.Site(str(i), X[labels == i], Y[labels == i]) for i in range(4)]


def test_every_estimator_is_exported():
    assert len(FOUND) >= 14
    assert set(FOUND) == set(fs.ESTIMATORS)
    check_exported(FOUND, fs)


@cache
def plain_fit(kind):
    """The model that others are compared with."""
    return make(kind, random_state=3).fit(fs.LocalFederation(sites(kind)))


@pytest.fixture(scope="module")
def network_of(tmp_path_factory):
    """Sites that are reached by bytes; their processes start once for all estimators that have these targets."""
    networks = {}

    def find(kind):
        targets = target_of(kind).tobytes()
        if targets not in networks:
            networks[targets] = Network(sites(kind), tmp_path_factory.mktemp("sites"), processes=True)
        return networks[targets]

    yield find
    for network in networks.values():
        network.close()


@every_estimator
def test_threads_wire_and_site_order_change_nothing(kind):
    plain = plain_fit(kind)
    for fed in (fs.LocalFederation(sites(kind)[::-1], wire=True), fs.LocalFederation(sites(kind), n_jobs=3)):
        assert_same_fit(make(kind, random_state=3).fit(fed), plain)


@every_estimator
def test_sites_that_are_reached_by_bytes_change_nothing(kind, network_of):
    near = plain_fit(kind)
    far = make(kind, random_state=3).fit(network_of(kind).federation())
    assert_same_fit(far, near)
    assert far.run_.failures == []
    assert far.run_.bytes_up == near.run_.bytes_up


@every_estimator
def test_a_clone_is_unfitted_and_fits_the_same(kind):
    model = plain_fit(kind)
    again = clone(model)
    assert not fitted(again)
    assert not hasattr(again, "run_")
    assert_same_fit(again.fit(fs.LocalFederation(sites(kind))), model)


@every_estimator
def test_the_record_says_who_took_part_and_why_it_stopped(kind):
    run = plain_fit(kind).run_
    assert run.sites == ("0", "1", "2", "3")
    assert run.what == kind.__name__
    assert run.stopped
    assert run.calls
    assert run.bytes_up > 0
    assert [call for call in run.calls if call.failed or not call.step] == []


@every_estimator
def test_a_site_that_goes_away_is_missed_and_named(kind):
    """From its second call on, or in the one that is all, a site is silent: the majority is enough, and it is named."""

    def silent(replies, bad, rng, call):
        return dict.fromkeys(bad) if call.number > 0 or call.step == "sums.moments" else {}

    fed = fs.LocalFederation(sites(kind)).corrupt(silent, sites=["2"])
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        model = make(kind, random_state=3).fit(fed)
    assert {site for _, site, _ in model.run_.failures} == {"2"}
    assert all(why for _, _, why in model.run_.failures), "a failure has no reason"
    for name, value in fitted(model).items():
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            assert np.isfinite(value).all(), name


@every_estimator
@pytest.mark.parametrize("wrong", [2.5, "x", (3,), {"x": 1}, object()], ids=lambda wrong: type(wrong).__name__)
def test_a_parameter_of_a_wrong_kind_is_refused(kind, wrong):
    """Or it is taken; but no error of Python's own leaves a fit."""
    X, names = table()
    for name in make(kind).get_params(deep=False):
        with warnings.catch_warnings(), suppress(FedspanError):
            warnings.simplefilter("ignore")
            make(kind, **{name: wrong}).fit(X, target_of(kind), sites=names)
