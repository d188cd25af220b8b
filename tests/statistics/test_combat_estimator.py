from __future__ import annotations

import contextlib
import io

import numpy as np
import pandas as pd
import pytest
from neuroCombat import neuroCombat
from sklearn.pipeline import make_pipeline

import fedspan as fs
from fedspan.errors import FedspanError, InputError

RNG = np.random.default_rng(0)
N, P = 120, 12
SITES = np.array(["b", "a", "c", "d"])[RNG.choice(4, N, p=[0.4, 0.3, 0.25, 0.05])]
CODES = np.unique(SITES, return_inverse=True)[1]
AGE = RNG.normal(50, 10, N).astype(np.float32).astype(float)  # neuroCombat reads covariates in single precision
SEX = RNG.integers(0, 2, N).astype(float)
Y = (
    RNG.normal(size=(N, P)) * (1 + 0.3 * CODES[:, None])
    + 2 * RNG.normal(size=(4, P))[CODES]
    + 0.05 * AGE[:, None]
    + 100
)
X = np.column_stack([AGE, Y + SEX[:, None] * RNG.normal(size=P), SEX])


def reference(rows, sites, covariates, **settings):
    frame = pd.DataFrame({"site": sites, **covariates})
    with contextlib.redirect_stdout(io.StringIO()):
        found = neuroCombat(
            dat=rows.T.copy(), covars=frame, batch_col="site", continuous_cols=list(covariates), **settings
        )
    return found["data"].T, found["estimates"]


SETTINGS = {
    "parametric": ({}, {}),
    "not parametric": ({"parametric": False}, {"parametric": False}),
    "no Bayes": ({"empirical_bayes": False}, {"eb": False}),
    "means only": ({"mean_only": True}, {"mean_only": True}),
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("covariates", [True, False], ids=["age and sex", "none"])
def test_it_is_that_of_the_pooled_rows(name, covariates):
    ours, theirs = SETTINGS[name]
    table = X if covariates else X[:, 1:-1]
    wanted, estimates = reference(X[:, 1:-1], SITES, {"age": AGE, "sex": SEX} if covariates else {}, **theirs)
    model = fs.FedComBat(covariates=[0, P + 1] if covariates else None, **ours).fit(table, sites=SITES)
    found = model.transform(table, sites=SITES)
    np.testing.assert_allclose(found[:, model.features_], wanted, rtol=1e-10)
    np.testing.assert_allclose(model.gamma_, estimates["gamma.star"], rtol=1e-8)
    np.testing.assert_allclose(model.delta_, np.array(estimates["delta.star"]), rtol=1e-8)
    np.testing.assert_array_equal(found[:, model.covariates_], table[:, model.covariates_])


@pytest.mark.parametrize("seed", range(4))
def test_the_parametric_iteration_ends_as_that_of_neurocombat(seed):
    rng = np.random.default_rng(seed)
    sites = np.r_[np.repeat(range(6), 3), rng.integers(0, 6, 30)]
    low = rng.normal(-1, 3, (6, 15))  # locations below 0: their changes do not count there
    rows = rng.normal(size=(48, 15)) * np.exp(rng.normal(size=(6, 15)) / 2)[sites] + low[sites]
    wanted, estimates = reference(rows, sites, {})
    model = fs.FedComBat().fit(rows, sites=sites)
    np.testing.assert_allclose(model.gamma_, estimates["gamma.star"], rtol=1e-8)
    np.testing.assert_allclose(model.transform(rows, sites=sites), wanted, rtol=1e-8, atol=1e-8)


def test_sites_adjust_their_own_rows_and_secure_sums_carry_the_fit():
    fed = fs.federate(X, sites=SITES)
    model = fs.FedComBat(covariates=[0, P + 1]).fit(fed)
    table = model.transform(X, sites=SITES)
    pca = make_pipeline(fs.FedComBat(covariates=[0, P + 1]), fs.FedPCA(3)).fit(fed)[-1]
    np.testing.assert_allclose(pca.explained_variance_, fs.FedPCA(3).fit(table).explained_variance_, rtol=1e-10)
    secure = fs.FedComBat(covariates=[0, P + 1]).fit(fs.federate(X, sites=SITES, policy=fs.Policy(secure_sum=True)))
    np.testing.assert_allclose(secure.gamma_, model.gamma_, rtol=1e-9)
    with pytest.raises(FedspanError, match="not among the sites that this adjustment was fitted at"):
        fs.FedPCA(1).fit(
            model.transform(fs.federate(X, sites=np.where(SITES == "a", "z", SITES), policy=fs.Policy(quorum=4)))
        )


def test_fit_on_controls_and_apply_to_all():
    healthy = RNG.uniform(size=N) < 0.6
    table = np.column_stack([X, healthy])
    model = fs.FedComBat(covariates=[0, P + 1], controls=P + 2).fit(table, sites=SITES)
    alone = fs.FedComBat(covariates=[0, P + 1]).fit(X[healthy], sites=SITES[healthy])
    np.testing.assert_allclose(model.gamma_, alone.gamma_, rtol=1e-12)
    assert model.n_rows_.sum() == healthy.sum()
    found = model.transform(table, sites=SITES)
    np.testing.assert_allclose(found[:, :-1], alone.transform(X, sites=SITES), rtol=1e-12)
    np.testing.assert_array_equal(found[:, -1], healthy)


def test_small_and_empty_sites_and_constant_features():
    sites = np.where(np.arange(N) == 3, "lonely", SITES)
    sites[[5, 6, 7]] = "three"
    table = np.column_stack([X[:, 1:-1], np.full(N, 2.5)])
    model = fs.FedComBat().fit(table, sites=sites)
    found = model.transform(table, sites=sites)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[:, -1], 2.5)
    controls = np.column_stack([table, SITES != "d"])
    with pytest.warns(UserWarning, match="no rows to fit on, and stay as they are: d"):
        model = fs.FedComBat(controls=P + 1).fit(controls, sites=SITES)
    found = model.transform(controls, sites=SITES)
    np.testing.assert_allclose(found[SITES == "d"], controls[SITES == "d"])


def test_one_site_stays_as_it_is():
    np.testing.assert_allclose(fs.FedComBat().fit_transform(X), X)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"covariates": ["age"]}, "'age' is the name of no column"),
        ({"covariates": "age"}, "must be a list of columns"),
        ({"covariates": [0, 0]}, "name a column twice"),
        ({"covariates": list(range(P + 2))}, "no column is left to adjust"),
        ({"tol": 0}, "tol=0 must"),
        ({"parametric": "yes"}, "parametric='yes' must be True or False"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, words):
    with pytest.raises(InputError, match=words):
        fs.FedComBat(**settings).fit(X, sites=SITES)


def test_covariates_that_differ_between_sites_only_are_refused():
    table = np.column_stack([X, CODES])
    with pytest.raises(InputError, match=f"covariates in columns {P + 2} are constant within every site"):
        fs.FedComBat(covariates=[P + 2]).fit(table, sites=SITES)
    model = fs.FedComBat().fit(X, sites=SITES)
    with pytest.raises(InputError, match="needs sites="):
        model.transform(X)
    with pytest.raises(InputError, match="site 'q' was not fitted"):
        model.transform(X, sites="q")
