"""FedX for classes: it maximises the likelihood of the clusters."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

import fedspan as fs
from fedspan.aggregation import Mean
from fedspan.errors import InputError
from fedspan.linalg import matched_share
from fedspan.mixed_regression.logistic_fedx import local_held_back_loss, logistic_fedx

from .mixtures import classes


def logistic_fit(X, y):
    def loss(theta):
        t = X @ theta
        return np.logaddexp(0.0, np.where(y > 0.5, -t, t)).sum(), X.T @ (expit(t) - y)

    return minimize(loss, np.zeros(X.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-8}).x


def test_one_logistic_step_leads_to_the_maximum_of_the_likelihood():
    X, y, sites, labels, models = classes()
    fed = fs.federate(X, y, sites=sites)
    found = logistic_fedx(fed, models=models, local_steps=1, rate=2.0, max_rounds=400, tol=1e-10, acceleration=5)
    assert found.converged
    # The cluster of each site under these models, of which some are not the true ones.
    t = (X @ found.models.T).reshape(40, 30, 2)
    chosen = np.logaddexp(0.0, np.where(y.reshape(40, 30, 1) > 0.5, -t, t)).sum(axis=1).argmin(axis=1)
    assert matched_share(chosen, labels) > 0.7
    rows = np.repeat(chosen, 30)
    expected = np.stack([logistic_fit(X[rows == j], y[rows == j]) for j in range(2)])
    np.testing.assert_allclose(found.models, expected, atol=1e-6)


def test_logistic_options():
    X, y, sites, _, models = classes(1)
    fed = fs.federate(X, y, sites=sites)
    plain = logistic_fedx(fed, models=models, max_rounds=30)
    by_mean = logistic_fedx(fed, models=models, max_rounds=30, aggregator=Mean())
    np.testing.assert_allclose(by_mean.models, plain.models, atol=1e-8)
    soft = logistic_fedx(fed, models=models, max_rounds=30, assignment="soft")
    assert 0.0 < np.linalg.norm(soft.models - plain.models) < 0.5
    train = logistic_fedx(fed, models=models, max_rounds=30, part="train")
    kept = np.arange(len(y)) % 30 % 4 != 3
    same = logistic_fedx(fs.federate(X[kept], y[kept], sites=sites[kept]), models=models, max_rounds=30)
    assert np.linalg.norm(train.models - same.models) < 0.05  # the same rows, at the rate of all of them
    for options, words in (
        ({"part": "half"}, "part='half'"),
        ({"local_steps": 0}, "local_steps=0"),
        ({"rate": 0.0}, "rate=0.0"),
    ):
        with pytest.raises(InputError, match=words):
            logistic_fedx(fed, models=models, **options)


def test_held_back_rows_are_every_fourth():
    X, y, _, _, models = classes(2, sizes=(9,))
    reply = local_held_back_loss(fs.Site("a", X, y), models)
    train, held = np.arange(9) % 4 != 3, np.arange(9) % 4 == 3
    t = X @ models.T
    losses = np.logaddexp(0.0, np.where(y[:, None] > 0.5, -t, t))
    assert reply["n"] == 2
    assert reply["loss"] == pytest.approx(losses[held][:, losses[train].sum(axis=0).argmin()].sum())


def test_other_classes_are_refused():
    X, y, sites, _, models = classes(4)
    fed = fs.federate(X, y + 1.0, sites=sites)
    with pytest.raises(fs.errors.QuorumError, match="classes 0 and 1"):
        logistic_fedx(fed, models=models, rate=1.0, max_rounds=1)
