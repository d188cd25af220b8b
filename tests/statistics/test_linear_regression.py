from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import fedspan as fs
from fedspan.errors import InputError

from .regression_examples import SPLITS, close, unlike_columns

X = unlike_columns()
Y = X @ [1.0, 0.1, 1e-3, 100.0, 0.5] + np.random.default_rng(1).normal(size=len(X))
SITES = SPLITS["seven"](len(X))


def parameters(model):
    return np.concatenate([np.ravel(model.intercept_), np.ravel(model.coef_)])


@pytest.mark.parametrize("split", SPLITS)
def test_the_numbers_are_those_of_the_pooled_rows(split):
    model = fs.FedLinearRegression().fit(X, Y, sites=SPLITS[split](len(X)))
    pooled = sm.OLS(Y, sm.add_constant(X)).fit()
    close(parameters(model), pooled.params)
    close(model.bse_, pooled.bse)
    close(model.tvalues_, pooled.tvalues)
    close(model.pvalues_, pooled.pvalues, 1e-7)
    close(model.conf_int_, pooled.conf_int(), 1e-7)
    for ours, theirs in {"loglik_": "llf", "rsquared_": "rsquared", "fvalue_": "fvalue", "aic_": "aic"}.items():
        close(getattr(model, ours), getattr(pooled, theirs))
    close(model.scale_, pooled.scale)
    close(model.predict(X), pooled.fittedvalues)
    assert len(model.run_.calls) <= 5


def test_ill_conditioned_columns_cost_fewer_digits_than_the_condition_number():
    """Rational arithmetic has the exact result; ten digits stay where a sum of raw products would leave none."""
    A = X[:60].copy()
    A[:, 4] = A[:, 0] + 1e-5 * np.random.default_rng(2).normal(size=60)
    y = Y[:60]
    exact = rational_least_squares(np.column_stack([np.ones(60), A]), y)
    model = fs.FedLinearRegression().fit(A, y, sites=np.arange(60) % 4)
    close(model.coef_, exact[1:], 1e-10)


def rational_least_squares(A, y):
    rows = [[Fraction(float(cell)) for cell in row] for row in A]
    q = len(rows[0])
    M = [[sum(row[a] * row[b] for row in rows) for b in range(q)] for a in range(q)]
    for a in range(q):
        M[a].append(sum(row[a] * Fraction(float(target)) for row, target in zip(rows, y, strict=True)))
    for a in range(q):
        M[a] = [value / M[a][a] for value in M[a]]
        for b in range(q):
            if b != a:
                M[b] = [u - M[b][a] * v for u, v in zip(M[b], M[a], strict=True)]
    return np.array([float(row[-1]) for row in M])


@pytest.mark.parametrize("cov_type", ["HC0", "HC1", "HC2", "HC3", "cluster"])
def test_sandwich_standard_errors(cov_type):
    groups = {"cov_kwds": {"groups": SITES}} if cov_type == "cluster" else {}
    pooled = sm.OLS(Y, sm.add_constant(X)).fit(cov_type=cov_type, **groups)
    model = fs.FedLinearRegression(cov_type=cov_type).fit(X, Y, sites=SITES)
    close(model.bse_, pooled.bse, 1e-7 if cov_type == "cluster" else 1e-8)
    assert "z" in model.summary()


def test_a_fixed_effect_of_sites_is_a_column_for_each_but_the_first():
    D = (SITES[:, None] == np.arange(1, 7)).astype(float)
    pooled = sm.OLS(Y, np.column_stack([np.ones(len(X)), X, D])).fit()
    model = fs.FedLinearRegression(site_effect="fixed").fit(X, Y, sites=SITES)
    close(np.concatenate([parameters(model), model.site_effects_[1:]]), pooled.params)
    close(np.concatenate([model.bse_, model.site_effects_bse_[1:]]), pooled.bse)
    close(model.predict(X, site=SITES), pooled.fittedvalues)
    assert "site 3" in model.summary()


def test_a_random_effect_of_sites_is_that_of_restricted_likelihood():
    A, y = X[:, :4], Y + np.random.default_rng(5).normal(size=7)[SITES]
    model = fs.FedLinearRegression(site_effect="random").fit(A, y, sites=SITES)
    pooled = sm.MixedLM(y, sm.add_constant(A), SITES).fit(reml=True, gtol=1e-10)
    close(parameters(model), pooled.fe_params, 1e-6)
    close(model.random_variance_, pooled.cov_re[0, 0], 1e-6)
    close(model.scale_, pooled.scale, 1e-8)
    close(model.loglik_, pooled.llf, 1e-10)
    close(model.site_effects_, [float(pooled.random_effects[k].iloc[0]) for k in range(7)], 1e-6)
    V = model.scale_ * np.eye(len(y)) + model.random_variance_ * (SITES[:, None] == SITES)
    C = sm.add_constant(A)
    close(model.bse_, np.sqrt(np.diag(np.linalg.inv(C.T @ np.linalg.solve(V, C)))))
    assert "Mixed Linear Model" in model.summary()


def test_sites_that_do_not_differ_have_no_random_variance():
    model = fs.FedLinearRegression(site_effect="random").fit(X[:, :4], Y, sites=np.arange(len(X)) % 2)
    assert model.random_variance_ >= 0
    with pytest.raises(InputError, match="two sites or more"):
        fs.FedLinearRegression(site_effect="random").fit(X, Y)


def test_a_ridge_shrinks_features_alone():
    from sklearn.linear_model import Ridge

    A = (X - X.mean(axis=0)) / X.std(axis=0)
    model = fs.FedLinearRegression(ridge=3.0).fit(A, Y, sites=SITES)
    reference = Ridge(alpha=3.0, solver="svd").fit(A, Y)
    close(parameters(model), np.concatenate([[reference.intercept_], reference.coef_]))
    wide = np.random.default_rng(0).normal(size=(6, 10))
    close(fs.FedLinearRegression(ridge=1.0).fit(wide, Y[:6]).coef_, Ridge(solver="svd").fit(wide, Y[:6]).coef_)


def test_an_offset_has_no_coefficient():
    model = fs.FedLinearRegression(offset=1).fit(X, Y, sites=SITES)
    pooled = sm.OLS(Y - X[:, 1], sm.add_constant(np.delete(X, 1, axis=1))).fit()
    close(parameters(model), pooled.params)
    close(model.predict(X), pooled.fittedvalues + X[:, 1])
    with pytest.raises(InputError, match="offset='dose' is the name of no column"):
        fs.FedLinearRegression(offset="dose").fit(X, Y)


def test_an_offset_may_stand_behind_columns_of_categories():
    """Such a column becomes several ones, or none, and so moves those behind it."""
    kind = np.arange(len(X)) % 4
    last = fs.FedLinearRegression(categorical=[1, 2], offset=3)
    first = fs.FedLinearRegression(categorical=[2, 3], offset=0)
    behind = np.column_stack([X[:, 0], kind, kind // 2, X[:, 1]])
    before = np.column_stack([X[:, 1], X[:, 0], kind, kind // 2])
    close(last.fit(behind, Y, sites=SITES).coef_, first.fit(before, Y, sites=SITES).coef_)
    close(last.predict(behind), first.predict(before))


def test_weights_are_those_of_weighted_least_squares():
    weights = np.random.default_rng(6).uniform(0.1, 5.0, size=len(X))
    pooled = sm.WLS(Y, sm.add_constant(X), weights=weights).fit()
    model = fs.FedLinearRegression().fit(X, Y, sites=SITES, sample_weight=weights)
    close(parameters(model), pooled.params)
    close(model.bse_, pooled.bse)
    close(model.loglik_, pooled.llf)
    close(model.rsquared_, pooled.rsquared)
    robust = fs.FedLinearRegression(cov_type="HC3").fit(X, Y, sites=SITES, sample_weight=weights)
    close(robust.bse_, sm.WLS(Y, sm.add_constant(X), weights=weights).fit(cov_type="HC3").bse)


def test_without_an_intercept():
    pooled = sm.OLS(Y, X).fit()
    model = fs.FedLinearRegression(fit_intercept=False).fit(X, Y, sites=SITES)
    close(model.coef_, pooled.params)
    close(model.bse_, pooled.bse)
    close(model.rsquared_, pooled.rsquared)


def test_columns_in_line_with_others_have_no_coefficient_and_are_named():
    A = np.column_stack([X[:, :2], X[:, 0] - 2 * X[:, 1], np.full(len(X), 7.7)])
    with pytest.warns(UserWarning, match="depend on the ones before them, and have the coefficient 0: x3, x4"):
        model = fs.FedLinearRegression().fit(A, Y, sites=SITES)
    close(parameters(model)[:3], sm.OLS(Y, sm.add_constant(X[:, :2])).fit().params)
    assert np.isnan(model.bse_[3:]).all()
    assert model.df_resid_ == len(X) - 3
    assert "in line" in model.summary()


def test_rows_with_missing_values_are_refused_or_left_out():
    A, y = X.copy(), Y.copy()
    A[3, 1], A[11, 0], y[20] = np.nan, np.inf, np.nan
    whole = np.isfinite(A).all(axis=1) & np.isfinite(y)
    fed = fs.federate(A, y, sites=SITES)
    with pytest.raises(InputError, match=r"feature number 0 at site '4' \(1 values\)"):
        fs.FedLinearRegression().fit(fed)
    for cls in (fs.FedLinearRegression, fs.FedPoissonRegression):
        with pytest.raises(InputError, match=r"y contains NaN or infinity in 1 rows; .*missing='drop'"):
            cls().fit(X, np.abs(y), sites=SITES)
    model = fs.FedLinearRegression(missing="drop").fit(fed)
    close(parameters(model), sm.OLS(y[whole], sm.add_constant(A[whole])).fit().params)
    assert model.n_obs_ == len(A) - 3


def test_text_is_refused_without_showing_a_cell():
    rows = pd.DataFrame(X).add_prefix("x").assign(ward="secret")
    with pytest.raises(InputError, match=r"^X holds text in column 'ward', and .* name it in categorical=\[...\]"):
        fs.FedLinearRegression().fit(rows, Y, sites=SITES)
    with pytest.raises(InputError, match=r"^y holds text, and FedLinearRegression takes numbers$"):
        fs.FedLinearRegression().fit(X, np.full(len(X), "secret"), sites=SITES)


def test_secure_sums_carry_it():
    plain = fs.FedLinearRegression().fit(fs.federate(X, Y, sites=SITES))
    secure = fs.FedLinearRegression().fit(fs.federate(X, Y, sites=SITES, policy=fs.Policy(secure_sum=True)))
    close(parameters(secure), parameters(plain))
    close(secure.bse_, plain.bse_)


def test_noise_is_charged_and_standard_errors_allow_for_it():
    rng = np.random.default_rng(3)
    A = rng.uniform(-1, 1, size=(20_000, 3))
    y = A @ [0.5, -0.2, 0.1] + 0.1 * rng.normal(size=len(A))
    privacy = fs.privacy.GaussianMoments(4.0, 1e-6, lower=-1.0, upper=1.0)
    model = fs.FedLinearRegression(privacy=privacy).fit(A, y, sites=np.arange(len(A)) % 4)
    assert np.abs((model.coef_ - [0.5, -0.2, 0.1]) / model.bse_[1:]).max() < 4
    assert model.bse_[1:].max() < 0.1
    assert model.rsquared_ == pytest.approx(fs.FedLinearRegression().fit(A, y).rsquared_, abs=0.05)
    assert set(model.privacy_.epsilon.values()) == {4.0}
    assert "noise" in model.summary()
    with pytest.raises(InputError, match="cov_type='HC0' does not go with privacy"):
        fs.FedLinearRegression(privacy=privacy, cov_type="HC0").fit(A, y)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ridge": -1}, "ridge=-1 must"),
        ({"cov_type": "HC9"}, "cov_type='HC9' must be one of"),
        ({"site_effect": "none"}, "site_effect='none' must be one of"),
        ({"missing": "fill"}, "missing='fill' must be one of"),
        ({"confidence": 95}, "confidence=95 must"),
        ({"offset": 9}, "offset=9 must"),
        ({"site_effect": "random", "ridge": 1.0}, "goes without ridge"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, words):
    with pytest.raises(InputError, match=words):
        fs.FedLinearRegression(**settings).fit(X, Y)


def test_the_summary_has_the_numbers_of_statsmodels():
    lines = fs.FedLinearRegression().fit(X[:, :3], Y, sites=SITES).summary().splitlines()
    theirs = str(sm.OLS(Y, sm.add_constant(X[:, :3])).fit().summary()).splitlines()
    assert lines[0].split() == theirs[0].split()
    ours, wanted = (
        [line.split()[3:] for line in text if line.startswith(("const", "x1", "x2"))] for text in (lines, theirs)
    )
    assert ours == wanted
    assert any("Log-Likelihood:" in line for line in lines)
