"""Regressions are cross-validated on federations: predictions are made at the sites, and scores are sums."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score, r2_score

import fedspan as fs
from fedspan.errors import InputError, QuorumError
from fedspan.model_selection import cross_validate
from fedspan.model_selection.scoring import accuracy, r2
from fedspan.statistics.regression.parts.predicted_rows import predicted

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3))
Y = X @ [1.0, -2.0, 0.5] + RNG.normal(size=120)
SITES = np.array(["a", "b", "c"])[np.arange(120) % 3]


def r2_and_pooled(model, X, y, sites=SITES):
    fitted = model.fit(X, y, sites=sites)
    return r2(fitted, fs.federate(X, y, sites=sites)), r2_score(y, fitted.predict(X))


@pytest.mark.parametrize(
    "model",
    [
        fs.FedLinearRegression(),
        fs.FedLinearRegression(site_effect="fixed"),
        fs.FedLinearRegression(offset=2),
        fs.FedPoissonRegression(),
        fs.FedPoissonRegression(offset=1),
    ],
    ids=["linear", "effects of sites", "offset", "counts", "counts with offset"],
)
def test_scores_by_sums_are_those_of_predictions(model):
    y = np.floor(np.exp(np.clip(Y, -2, 2))) if isinstance(model, fs.FedPoissonRegression) else Y
    found, pooled = r2_and_pooled(model, X, y)
    assert found == pytest.approx(pooled, abs=1e-12)


def test_columns_of_categories():
    frame = pd.DataFrame(X, columns=list("uvw")).assign(
        ward=np.array(["east", "north", "west"])[np.arange(120) % 7 % 3]
    )
    found, pooled = r2_and_pooled(fs.FedLinearRegression(categorical=["ward"]), frame, Y)
    assert found == pytest.approx(pooled, abs=1e-12)


@pytest.mark.parametrize("classes", [2, 3])
def test_classes(classes):
    y = np.digitize(Y, np.quantile(Y, np.arange(1, classes) / classes)) + 5
    model = fs.FedLogisticRegression().fit(X, y, sites=SITES)
    assert accuracy(model, fs.federate(X, y, sites=SITES)) == pytest.approx(accuracy_score(y, model.predict(X)))


def test_cross_validation_takes_the_usual_score():
    fed = fs.federate(X, Y, sites=SITES)
    assert cross_validate(fs.FedLinearRegression(), fed, cv=3)["test_score"].mean() > 0.7
    assert len(cross_validate(fs.FedLogisticRegression(), fs.federate(X, Y > 0, sites=SITES), cv=3)["test_score"]) == 3


def test_what_has_no_prediction_at_the_sites_is_refused():
    model = fs.FedLogisticRegression().fit(X, np.where(Y > 0, "yes", "no"), sites=SITES)
    with pytest.raises(InputError, match="classes are text"):
        model.predict(fs.federate(X, sites=SITES))
    with pytest.raises(InputError, match="goes with a table"):
        fs.FedLinearRegression().fit(X, Y, sites=SITES).predict(fs.federate(X, sites=SITES), site="a")


@pytest.mark.parametrize(
    "parameters",
    [
        {"link": "class", "classes": np.zeros(1)},
        {"link": "class", "classes": np.zeros(3)},
        {"link": "class", "classes": np.zeros(0)},
        {"link": "class"},
        {"link": "log", "classes": np.arange(2.0)},
    ],
    ids=["one class", "three classes", "no class", "without classes", "classes of counts"],
)
@pytest.mark.parametrize("intercept", [-1e6, 1e6])
def test_too_few_classes_fail_alike_whatever_the_rows(parameters, intercept):
    """An index out of range would show, site by site, whether a row lies beyond a plane."""
    seen = fs.federate(X, sites=SITES).apply(
        predicted, slopes=np.eye(1, 3), intercepts=np.array([intercept]), **parameters
    )
    with pytest.raises(QuorumError, match=r"0 of 3 sites answered .* one for each class but the first"):
        fs.FedStandardScaler().fit(seen)
