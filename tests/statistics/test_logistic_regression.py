from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm
from sklearn.exceptions import ConvergenceWarning

import fedspan as fs
from fedspan.errors import InputError, PolicyError

from .regression_examples import SPLITS, close, standard, unlike_columns

X = unlike_columns()
S = standard(X)
RNG = np.random.default_rng(1)
Y = (RNG.uniform(size=len(X)) < 1 / (1 + np.exp(0.5 - S[:, :4] @ [1.0, -0.5, 0.3, 0.2]))).astype(int)
SITES = SPLITS["seven"](len(X))
A = sm.add_constant(X)


def parameters(model):
    return np.concatenate([np.ravel(model.intercept_), np.ravel(model.coef_)])


def pooled(**settings):
    return sm.Logit(Y, sm.add_constant(X[:, :4])).fit(disp=0, tol=1e-13, **settings)


@pytest.mark.parametrize("split", SPLITS)
def test_the_numbers_are_those_of_the_pooled_rows(split):
    model = fs.FedLogisticRegression().fit(X, Y, sites=SPLITS[split](len(X)))
    reference = sm.Logit(Y, A).fit(disp=0, tol=1e-13)
    close(parameters(model), reference.params)
    close(model.bse_, reference.bse, 1e-7)  # statsmodels inverts a matrix of condition 1e16
    close(model.loglik_, reference.llf)
    close(model.null_loglik_, reference.llnull)
    close(model.predict_proba(X)[:, 1], reference.predict(A))
    assert model.n_iter_ <= 8
    assert len(model.run_.calls) <= 12


def test_standard_errors():
    for cov_type, more in (("nonrobust", {}), ("HC0", {}), ("cluster", {"cov_kwds": {"groups": SITES}})):
        model = fs.FedLogisticRegression(cov_type=cov_type).fit(X[:, :4], Y, sites=SITES)
        close(model.bse_, pooled(cov_type=cov_type, **more).bse, 1e-8)
    more = fs.FedLogisticRegression(cov_type="HC1").fit(X[:, :4], Y, sites=SITES).bse_
    close(more, pooled(cov_type="HC0").bse * np.sqrt(len(X) / (len(X) - 5)))


def test_multinomial():
    y = np.digitize(S[:, 0] + RNG.normal(size=len(X)), [-0.5, 0.5])
    model = fs.FedLogisticRegression().fit(S[:, :3], y, sites=SITES)
    reference = sm.MNLogit(y, sm.add_constant(S[:, :3])).fit(disp=0, tol=1e-13)
    close(np.column_stack([model.intercept_, model.coef_]), reference.params.T)
    close(model.bse_, reference.bse.T)
    close(model.loglik_, reference.llf)
    close(model.predict_proba(S[:, :3]), reference.predict(sm.add_constant(S[:, :3])))
    assert model.summary().count("y=") == 2
    names = np.array(["low", "middle", "up"])[y]
    close(fs.FedLogisticRegression().fit(S[:, :3], names, sites=SITES).coef_, model.coef_)


def test_offset_fixed_effects_and_ridge():
    model = fs.FedLogisticRegression(offset=0).fit(S[:, :4], Y, sites=SITES)
    B = sm.add_constant(S[:, 1:4])
    reference = sm.GLM(Y, B, family=sm.families.Binomial(), offset=S[:, 0]).fit(tol=1e-14)
    close(parameters(model), reference.params)
    close(model.bse_, reference.bse)
    D = (SITES[:, None] == np.arange(1, 7)).astype(float)
    effects = fs.FedLogisticRegression(site_effect="fixed").fit(S[:, :4], Y, sites=SITES)
    reference = sm.Logit(Y, np.column_stack([np.ones(len(X)), S[:, :4], D])).fit(disp=0, tol=1e-13)
    close(np.concatenate([parameters(effects), effects.site_effects_[1:]]), reference.params)
    from sklearn.linear_model import LogisticRegression

    shrunk = fs.FedLogisticRegression(ridge=2.0).fit(S, Y, sites=SITES)
    reference = LogisticRegression(C=0.5, tol=1e-12, max_iter=1000, solver="newton-cholesky").fit(S, Y)
    close(parameters(shrunk), np.concatenate([reference.intercept_, reference.coef_[0]]), 1e-7)


def test_weights_repeat_rows():
    weights = np.random.default_rng(6).integers(0, 4, size=len(X))
    model = fs.FedLogisticRegression().fit(S[:, :4], Y, sites=SITES, sample_weight=weights.astype(float))
    B = sm.add_constant(S[:, :4])
    reference = sm.GLM(Y, B, family=sm.families.Binomial(), freq_weights=weights).fit(tol=1e-14)
    close(parameters(model), reference.params)
    close(model.bse_, reference.bse)
    close(model.loglik_, reference.llf)


@pytest.mark.parametrize("split", SPLITS)
def test_complete_and_partial_separation_are_found_and_named(split):
    sites = SPLITS[split](len(X))
    with pytest.warns(ConvergenceWarning, match="perfect separation by x2: "):
        model = fs.FedLogisticRegression().fit(S[:, :4], (S[:, 1] > 0.1).astype(int), sites=sites)
    assert model.separated_columns_.tolist() == [1]
    assert model.n_iter_ <= 12
    assert "Perfect separation by x2" in model.summary()
    some, y = np.arange(len(X)) < 40, Y.copy()
    y[some] = 1
    with pytest.warns(ConvergenceWarning, match="perfect separation by x2: "):
        fs.FedLogisticRegression().fit(np.column_stack([S[:, 0], some]), y, sites=sites)
    with pytest.warns(ConvergenceWarning, match="perfect separation by x1: "):
        fs.FedLogisticRegression().fit(S[:, 1:3], np.digitize(S[:, 1], [-0.5, 0.5]), sites=sites)


def test_a_ridge_makes_separated_rows_harmless(recwarn):
    model = fs.FedLogisticRegression(ridge=1.0).fit(S[:, :4], (S[:, 1] > 0.1).astype(int), sites=SITES)
    assert model.converged_
    assert len(recwarn) == 0


def test_zeros_and_ones_need_sums_alone():
    fed = fs.federate(S, Y, sites=SITES, policy=fs.Policy(secure_sum=True))
    close(
        parameters(fs.FedLogisticRegression().fit(fed)), parameters(fs.FedLogisticRegression().fit(S, Y, sites=SITES))
    )
    words = np.array(["no", "yes"])[Y]
    fed = fs.federate(S, words, sites=SITES, policy=fs.Policy(secure_sum=True))
    with pytest.raises(PolicyError, match="classes="):
        fs.FedLogisticRegression().fit(fed)
    model = fs.FedLogisticRegression(classes=["no", "yes"]).fit(fed)
    assert set(model.predict(S)) == {"no", "yes"}


def test_a_site_with_one_class_alone_is_like_any_other():
    sites = np.where(Y == 1, np.where(np.arange(len(X)) % 2, "one", "mixed"), "mixed")
    model = fs.FedLogisticRegression().fit(S, Y, sites=sites)
    close(parameters(model), parameters(fs.FedLogisticRegression().fit(S, Y)), 1e-9)


def test_targets_that_cannot_be_classes_are_refused():
    with pytest.raises(InputError, match="one class, 0"):
        fs.FedLogisticRegression().fit(S, np.zeros(len(S)))
    with pytest.raises(InputError, match="values of other classes than 0"):
        fs.FedLogisticRegression(classes=[0, 1]).fit(fs.federate(S, Y + 1, sites=SITES))
    with pytest.raises(InputError, match="more than 100 classes"):
        fs.FedLogisticRegression().fit(fs.federate(S, S[:, 0], sites=SITES))


def test_columns_of_categories_are_coded_as_in_r(tmp_path):
    import pandas as pd
    import statsmodels.formula.api as smf

    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {"stage": rng.choice(["I", "II", "III"], len(X)), "age": X[:, 1], "code": rng.choice([1, 2], len(X))}
    )
    frame.loc[[3, 50], "age"] = np.nan
    frame.loc[7, "stage"] = None
    fed = fs.federate(frame, Y, sites=SITES)
    settings = {"categorical": ["code", "stage"], "missing": "drop"}
    model = fs.FedLogisticRegression(**settings).fit(fed)
    used = frame.assign(y=Y).dropna()
    reference = smf.logit("y ~ C(stage) + age + C(code)", used).fit(disp=0, tol=1e-13)
    order = ["C(stage)[T.II]", "C(stage)[T.III]", "age", "C(code)[T.2]"]
    close(np.ravel(model.coef_), reference.params[order])
    close(model.bse_[1:], reference.bse[order])
    assert model.coefficient_names() == ["stage[T.II]", "stage[T.III]", "age", "code[T.2]"]
    assert "stage[T.III]" in model.summary()
    close(model.predict_proba(used[["stage", "age", "code"]])[:, 1], reference.predict(used))
    model.save(tmp_path / "model")
    rows = used[["stage", "age", "code"]]
    np.testing.assert_array_equal(fs.load(tmp_path / "model").predict_proba(rows), model.predict_proba(rows))
    with pytest.raises(InputError, match="categories that the model was not fitted on"):
        model.predict(rows.assign(stage="IV"))
    secure = fs.federate(frame, Y, sites=SITES, policy=fs.Policy(secure_sum=True))
    with pytest.raises(PolicyError, match="categories="):
        fs.FedLogisticRegression(**settings).fit(secure)
    named = {"stage": ["III", "I", "II"], "code": ["1", "2"]}
    turned = fs.FedLogisticRegression(**settings, categories=named).fit(secure)
    close(turned.coef_[0, 0], -model.coef_[0, 1])
