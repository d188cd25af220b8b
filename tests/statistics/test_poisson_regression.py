from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm
from sklearn.exceptions import ConvergenceWarning

import fedspan as fs
from fedspan.errors import InputError

from .regression_examples import SPLITS, close, standard, unlike_columns

X = unlike_columns()
S = standard(X)
Y = np.random.default_rng(4).poisson(np.exp(1.0 + S[:, :4] @ [0.3, -0.2, 0.1, 0.05]))
SITES = SPLITS["seven"](len(X))


def parameters(model):
    return np.concatenate([np.ravel(model.intercept_), np.ravel(model.coef_)])


def pooled(A, **more):
    return sm.GLM(Y, sm.add_constant(A), family=sm.families.Poisson(), **more)


@pytest.mark.parametrize("split", SPLITS)
def test_the_numbers_are_those_of_the_pooled_rows(split):
    model = fs.FedPoissonRegression().fit(X[:, :4], Y, sites=SPLITS[split](len(X)))
    reference = pooled(X[:, :4]).fit(tol=1e-14)
    close(parameters(model), reference.params)
    close(model.bse_, reference.bse)
    figures = {"loglik_": "llf", "null_loglik_": "llnull", "deviance_": "deviance", "pearson_chi2_": "pearson_chi2"}
    for ours, theirs in figures.items():
        close(getattr(model, ours), getattr(reference, theirs))
    assert model.n_iter_ <= 8
    assert "Model Family:" in model.summary()


def test_offset_and_robust_errors():
    A = np.column_stack([S[:, :3], np.log(1 + np.arange(len(S)) % 5)])
    reference = pooled(S[:, :3], offset=A[:, 3])
    model = fs.FedPoissonRegression(offset=3, cov_type="HC0").fit(A, Y, sites=SITES)
    close(parameters(model), reference.fit(tol=1e-14).params)
    close(model.bse_, reference.fit(tol=1e-14, cov_type="HC0").bse)
    close(model.null_loglik_, reference.fit(tol=1e-14).llnull, 1e-7)
    close(model.predict(A), reference.fit(tol=1e-14).fittedvalues)


def test_large_counts_and_means_far_from_one():
    y = Y * 100_000
    model = fs.FedPoissonRegression().fit(S, y, sites=SITES)
    reference = sm.GLM(y, sm.add_constant(S), family=sm.families.Poisson()).fit(tol=1e-14)
    close(parameters(model), reference.params)


def test_a_group_without_counts_is_separated():
    some = np.arange(len(X)) < 40
    y = np.where(some, 0, Y)
    with pytest.warns(ConvergenceWarning, match="perfect separation by x2: "):
        model = fs.FedPoissonRegression().fit(np.column_stack([S[:, 0], some]), y, sites=SITES)
    assert model.n_iter_ <= 12


def test_counts_below_zero_are_refused():
    with pytest.raises(InputError, match="1 values below 0"):
        fs.FedPoissonRegression().fit(S, np.where(np.arange(len(S)) == 3, -1, Y))
    with pytest.raises(InputError, match="1 values below 0"):
        fs.FedPoissonRegression().fit(fs.federate(S, np.where(np.arange(len(S)) == 3, -1, Y), sites=SITES))
    with pytest.raises(InputError, match="all counts in y are 0"):
        fs.FedPoissonRegression().fit(S, np.zeros(len(S)))
