from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm
from lifelines import CoxPHFitter
from lifelines.datasets import load_lung
from lifelines.statistics import proportional_hazard_test
from sklearn.exceptions import ConvergenceWarning

import fedspan as fs
from fedspan.errors import InputError, PolicyError

from .lung_patients import COLUMNS, institutions, lung, target
from .regression_examples import close

FRAME = lung()
X, Y, SITES = FRAME[COLUMNS], target(FRAME), institutions(FRAME)
EXACT = {"precision": 1e-14, "step_size": 1.0, "max_steps": 100}


def pooled(frame=FRAME, **more):
    used = frame[["time", "status", *COLUMNS, *more.values()]]
    return CoxPHFitter().fit(used, "time", "status", fit_options=EXACT, **more)


@pytest.mark.parametrize("times", [None, range(1, 1100)], ids=["all", "days"])
def test_the_numbers_are_those_of_the_pooled_rows(times):
    model = fs.FedCoxRegression(times=times).fit(X, Y, sites=SITES)
    theirs = pooled()
    close(model.coef_, theirs.params_)
    close(model.bse_, theirs.standard_errors_)
    close(model.pvalues_, theirs.summary["p"])
    close(model.loglik_, theirs.log_likelihood_)
    close(model.baseline_hazard_, theirs.baseline_hazard_.loc[model.times_].to_numpy()[:, 0])
    close(model.predict(X), theirs.predict_partial_hazard(X))
    survival = theirs.predict_survival_function(X.iloc[:3], times=[100.0, 400.0]).to_numpy().T
    close(model.predict_survival(X.iloc[:3], [100.0, 400.0]), survival)
    assert model.n_iter_ <= 8
    assert len(model.run_.calls) <= 12
    assert model.n_events_ == Y[:, 1].sum()


@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize("unit", [1, 90])
def test_ties_and_strata(ties, unit):
    """In units of 90 days most events are tied."""
    y = np.column_stack([np.ceil(Y[:, 0] / unit), Y[:, 1]])
    reference = sm.PHReg(y[:, 0], X.to_numpy(), status=y[:, 1], ties=ties).fit(disp=0)
    model = fs.FedCoxRegression(ties=ties).fit(X, y, sites=SITES)
    close(model.coef_, reference.params)
    close(model.bse_, reference.bse)
    close(model.loglik_, reference.llf)
    reference = sm.PHReg(y[:, 0], X.to_numpy(), status=y[:, 1], ties=ties, strata=SITES).fit(disp=0)
    model = fs.FedCoxRegression(ties=ties, strata="site").fit(X, y, sites=SITES)
    close(model.coef_, reference.params)
    close(model.bse_, reference.bse)
    assert model.times_.size == 0


def test_the_check_of_proportional_hazards():
    model, theirs = fs.FedCoxRegression().fit(X, Y, sites=SITES), pooled()
    assert model.ph_transforms_ == ("km", "rank", "identity", "log")
    for name in ("km", "identity", "log"):
        found = proportional_hazard_test(theirs, FRAME[["time", "status", *COLUMNS]], time_transform=name)
        at = model.ph_transforms_.index(name)
        close(model.ph_statistics_[at], found.test_statistic)
        close(model.ph_pvalues_[at], found.p_value)
    assert "Proportional hazards" in model.summary()


def test_weights_and_rows_with_missing_values():
    frame = load_lung().dropna(subset=["inst"])
    weights = 1.0 + np.arange(len(FRAME)) % 3
    weighted = fs.FedCoxRegression().fit(X, Y, sites=SITES, sample_weight=weights)
    theirs = pooled(FRAME.assign(w=weights), weights_col="w")
    close(weighted.coef_, theirs.params_)
    close(weighted.bse_, theirs.standard_errors_)
    fed = fs.federate(frame[COLUMNS], target(frame), sites=institutions(frame))
    with pytest.raises(InputError, match=r"feature ph\.ecog at site"):
        fs.FedCoxRegression().fit(fed)
    close(fs.FedCoxRegression(missing="drop").fit(fed).coef_, pooled().params_)


def test_a_grid_moves_events_up_and_censored_rows_down():
    model = fs.FedCoxRegression(times=np.arange(7, 1100, 7), ties="breslow").fit(X, Y, sites=SITES)
    moved = np.where(Y[:, 1] == 1, np.ceil(Y[:, 0] / 7) * 7, np.floor(Y[:, 0] / 7) * 7)
    close(model.coef_, sm.PHReg(moved, X.to_numpy(), status=Y[:, 1]).fit(disp=0).params)


def test_secure_sums_carry_sums_on_a_grid():
    fed = fs.federate(X, Y, sites=SITES, policy=fs.Policy(secure_sum=True))
    with pytest.raises(PolicyError, match="times=None"):
        fs.FedCoxRegression().fit(fed)
    grid = np.arange(30, 1100, 30)
    secure, plain = fs.FedCoxRegression(times=grid).fit(fed), fs.FedCoxRegression(times=grid).fit(X, Y, sites=SITES)
    close(secure.coef_, plain.coef_)
    close(secure.bse_, plain.bse_)


def test_sites_without_events_and_dependent_columns():
    y = Y.copy()
    y[np.isin(SITES, [1, 12]), 1] = 0
    A = X.assign(copy=2 * X["age"] + X["sex"], constant=3.3)
    with pytest.warns(UserWarning, match="have the coefficient 0: copy, constant"):
        model = fs.FedCoxRegression().fit(A, y, sites=SITES)
    reference = sm.PHReg(y[:, 0], X.to_numpy(), status=y[:, 1], ties="efron").fit(disp=0)
    close(model.coef_[:5], reference.params)
    assert model.dependent_columns_.tolist() == [5, 6]
    with pytest.raises(InputError, match="needs events"):
        fs.FedCoxRegression(times=[10.0]).fit(X, y * [1, 0], sites=SITES)
    with pytest.raises(InputError, match="needs events"):
        fs.FedCoxRegression(strata="site").fit(X, y * [1, 0], sites=SITES)


def test_a_likelihood_without_maximum_is_said_and_a_ridge_helps(recwarn):
    early = np.arange(60) % 2
    y = np.column_stack([np.where(early, 1.0 + 0.01 * np.arange(60), 100.0 + np.arange(60)), np.ones(60)])
    A = np.column_stack([early, np.random.default_rng(0).normal(size=60)])
    with pytest.warns(ConvergenceWarning, match="a combination of x1 puts all early events first"):
        assert fs.FedCoxRegression().fit(A, y, sites=np.arange(60) % 4).n_iter_ <= 12
    assert fs.FedCoxRegression(ridge=0.1).fit(A, y, sites=np.arange(60) % 4).converged_


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ties": "exact"}, "ties='exact' must be one of"),
        ({"strata": "sex"}, "strata='sex' must be one of"),
        ({"times": [np.nan]}, "finite numbers"),
        ({"ridge": -1}, "ridge=-1 must"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, words):
    with pytest.raises(InputError, match=words):
        fs.FedCoxRegression(**settings).fit(X, Y)


@pytest.mark.parametrize("settings", [{}, {"times": range(0, 1100, 7)}, {"strata": "site"}])
def test_times_below_zero_are_refused(settings):
    y = np.where(np.arange(len(Y))[:, None] == 3, [[-1.0, 0.0]], Y)
    with pytest.raises(InputError, match="y has 1 rows whose time is below 0"):
        fs.FedCoxRegression(**settings).fit(X, y)


def test_columns_of_categories():
    frame = X.assign(sex=np.where(X["sex"] == 1, "male", "other"))
    model = fs.FedCoxRegression(categorical=["sex"]).fit(fs.federate(frame, Y, sites=SITES))
    close(model.coef_, pooled().params_)
    assert model.coefficient_names()[1] == "sex[T.other]"
    close(model.predict(frame), pooled().predict_partial_hazard(X))
