"""Residuals by sums are those of statsmodels, between the same edges."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import fedspan as fs
from fedspan.errors import InputError, QuorumError
from fedspan.federation import Federation
from fedspan.report.models.picture import pictures_of

from ..owner.owner_desk import Desk

RNG = np.random.default_rng(0)
N = 2000
X = RNG.normal(size=(N, 3))
ETA = X @ [0.5, -0.3, 0.0]
SITES = np.arange(N) % 4
WEIGHTS = RNG.uniform(0.5, 2.0, N)
CASES = {
    "linear": (fs.FedLinearRegression, 2 + ETA + RNG.normal(size=N), None, "fixed"),
    "logistic": (
        fs.FedLogisticRegression,
        np.where(RNG.uniform(size=N) < 1 / (1 + np.exp(-ETA)), "yes", "no"),
        sm.families.Binomial(),
        None,
    ),
    "poisson": (fs.FedPoissonRegression, RNG.poisson(np.exp(ETA)), sm.families.Poisson(), None),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("secure", [False, True])
def test_they_are_those_of_the_pooled_rows(name, secure):
    kind, y, family, effect = CASES[name]
    fed = fs.federate(X, y, sites=SITES, sample_weight=WEIGHTS, policy=fs.Policy(secure_sum=secure))
    given = {"classes": ["no", "yes"]} if name == "logistic" else {}
    model = kind(residuals=True, site_effect=None if secure else effect, **given).fit(fed)
    plain = kind(site_effect=None if secure else effect, **given).fit(fed)
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-12)
    assert len(model.run_.calls) == len(plain.run_.calls) + 2
    A = sm.add_constant(X)
    if effect and not secure:
        A = np.column_stack([A, SITES[:, None] == [1, 2, 3]])
    target = (y == "yes").astype(float) if name == "logistic" else y
    if family is None:
        pooled = sm.WLS(target, A, weights=WEIGHTS).fit()
        left, eta = pooled.resid_pearson, pooled.fittedvalues
    else:
        pooled = sm.GLM(target, A, family=family, var_weights=WEIGHTS).fit(tol=1e-13)
        left, eta = pooled.resid_pearson, pooled.predict(which="linear")
    counts = np.histogram(left, np.r_[-np.inf, model.residual_edges_, np.inf])[0]
    shown = ~np.isnan(model.residual_counts_)
    np.testing.assert_array_equal(model.residual_counts_[shown], counts[shown])
    assert shown.sum() >= 6
    assert not np.any((counts[shown] > 0) & (counts[shown] < 5))
    edges = eta.mean() + eta.std() * np.arange(-2, 2.25, 0.5)
    at = np.searchsorted(edges, eta, side="right")
    wanted = [[eta[at == k].mean(), left[at == k].mean(), np.sum(at == k) ** -0.5] for k in range(10)]
    np.testing.assert_allclose(model.residual_means_, wanted, rtol=1e-7, atol=1e-9)


def test_they_are_drawn_and_go_with_the_next_fit():
    model = fs.FedPoissonRegression(residuals=True).fit(X, CASES["poisson"][1], sites=SITES)
    titles = [picture.title for picture in pictures_of(model, ["a", "b", "c"])]
    assert sorted(titles) == ["Coefficients", "Residuals", "Residuals along the predictor"]
    model.set_params(residuals=False).fit(X, CASES["poisson"][1], sites=SITES)
    assert [picture.title for picture in pictures_of(model)] == ["Coefficients"]
    y = np.digitize(ETA, [-0.5, 0.5])
    assert not hasattr(fs.FedLogisticRegression(residuals=True, ridge=1.0).fit(X, y), "residual_counts_")
    privacy = fs.privacy.GaussianMoments(1.0, 1e-5, lower=-5.0, upper=5.0)
    with pytest.raises(InputError, match="residuals=True does not go with privacy"):
        fs.FedLinearRegression(residuals=True, privacy=privacy).fit(X, ETA)


def test_an_owner_refuses_bins_of_few_rows(tmp_path):
    frame = pd.DataFrame({"a": np.arange(60.0), "y": np.arange(60.0) % 7})
    desk = Desk(tmp_path / "a", "least_set = 5", frame, 'target = "y"')
    payload = {"family": "gaussian", "classes": np.zeros(0), "coef": np.array([3.0, 0.0]), "scale": 1.0}
    payload |= {"intercept": True, "offset": -1, "effects": np.zeros(0, dtype=str), "drop": False}
    payload |= {"centre": np.zeros(1), "factor": np.eye(2), "kept": np.ones(2, dtype=bool)}
    payload |= {"edges": np.array([0.0]), "places": np.array([0.0])}
    found = desk.ask("regression.residual_bins", payload=payload)
    assert found["counts"].sum() == found["rows"].sum() == 60
    few = {**payload, "coef": np.array([0.0, 1.0]), "places": np.array([58.5])}
    assert "about 5 rows or more" in desk.ask("regression.residual_bins", run="r 2", payload=few)
    desk.worker.close()


def test_a_fit_goes_on_where_sites_refuse(monkeypatch):
    real = Federation.sum

    def refusing(self, what, *args, **payload):
        if what.__name__ == "local_residual_bins":
            raise QuorumError("refused", {})
        return real(self, what, *args, **payload)

    monkeypatch.setattr(Federation, "sum", refusing)
    with pytest.warns(UserWarning, match="sites refuse to count residuals"):
        model = fs.FedLinearRegression(residuals=True).fit(X, ETA, sites=SITES)
    assert not hasattr(model, "residual_counts_")
