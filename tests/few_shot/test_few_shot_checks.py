"""What FedFewShotRegressor refuses and warns of."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import check_estimators_nan_inf

import fedspan as fs
from fedspan import aggregation
from fedspan.datasets import make_few_shot_tasks
from fedspan.errors import InputError, QuorumError

from .regressor_examples import N, R, fit, table


@pytest.fixture(scope="module")
def data():
    return table()


@pytest.fixture(scope="module")
def model(data):
    return fit(data, iterations=60)


def test_tables_with_nan_are_an_input_error_also_with_an_aggregator(data):
    model = fs.FedFewShotRegressor(1, aggregator=aggregation.GeometricMedian(), iterations=5)
    with pytest.raises(InputError, match="NaN"):
        model.fit(np.where(np.arange(N) == 3, np.nan, data.X), data.y, task=data.task, sites=data.sites)
    check_estimators_nan_inf("FedFewShotRegressor", model)


UNUSED = [
    {"init": "subspace_median", "groups": 3},
    {"init": "subspace_median", "power_iterations": 5},
    {"init": "random", "groups": 3},
    {"init": "random", "output": "node"},
    {"init": "random", "truncation": 3.0},
    {"rank": 3, "max_rank": 5},
    {"share_coefs": False, "ridge": 1.0},
]


@pytest.mark.parametrize("given", UNUSED, ids=str)
def test_parameters_without_effect_are_refused(data, given):
    last = list(given)[-1]
    with pytest.raises(InputError, match=f"^{last}=.* does nothing with"):
        fit(data, aggregator=aggregation.GeometricMedian(), **given)


def few_rows(seed=1):
    """Thirty tasks of 60 rows, and a hundred of 1 to 10."""
    made = make_few_shot_tasks(20, 130, 3, 60, 6, noise=0.3, seed=seed)
    size = np.where(np.arange(130) < 30, 60, 1 + (np.arange(130) - 30) % 10)
    return made, size, np.tile(np.arange(60), 130) < size[made.task]


@pytest.mark.parametrize("aggregator", [None, aggregation.GeometricMedian()], ids=str)
def test_tasks_with_few_rows_are_shrunk_and_give_a_warning(aggregator):
    made, size, kept = few_rows()

    def errors(ridge, match):
        model = fs.FedFewShotRegressor(3, aggregator=aggregator, iterations=40, tol=1e-5, ridge=ridge)
        columns = {"task": made.task[kept], "sites": (made.task % 6)[kept]}
        if match:
            with pytest.warns(UserWarning, match=match):
                model.fit(made.X[kept], made.y[kept], **columns)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                model.fit(made.X[kept], made.y[kept], **columns)
        return np.sum((model.coef_ - made.coef) ** 2, axis=1)

    plain = errors(0.0, "50 of 130 tasks have fewer than 6 rows.*noise is amplified in them")
    shrunk = errors("auto", "50 of 130 tasks have fewer than 6 rows.*shrunk by a ridge of 0.1")
    assert plain[(size == 3) | (size == 4)].mean() > 10.0
    assert shrunk[(size == 3) | (size == 4)].mean() < 1.5
    np.testing.assert_allclose(shrunk[size >= 6], plain[size >= 6], atol=1e-12)
    strong = errors(1e6, None)
    np.testing.assert_allclose(strong, np.sum(made.coef**2, axis=1), rtol=0.01)


@pytest.mark.parametrize("aggregator", [None, aggregation.GeometricMedian()], ids=str)
def test_extreme_scales_and_targets_that_do_not_vary(data, aggregator):
    def fitted(X, y, **parameters):
        model = fs.FedFewShotRegressor(R, aggregator=aggregator, iterations=30, **parameters)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return model.fit(X, y, task=data.task, sites=data.sites)

    for scale in (1e-60, 1e60):
        assert fitted(data.X, scale * data.y).score(data.X, scale * data.y, data.task) > 0.95
        X = data.X / scale
        assert fitted(X, data.y).score(X, data.y, data.task) > 0.95
        assert fitted(X, scale * data.y).score(X, scale * data.y, data.task) > 0.95
    for scale in (1e-150, 1e150):
        with pytest.raises(InputError, match=r"targets beyond 1e.70, or all of them below 1e-70: rescale y"):
            fitted(data.X, scale * data.y)
    with pytest.raises(QuorumError, match=r"beyond 1e.70, or all of it below 1e-70: rescale the features"):
        fitted(1e150 * data.X, data.y)
    np.testing.assert_array_equal(fitted(data.X, 0.0 * data.y).predict(data.X, data.task), 0.0)
    nothing = fs.FedFewShotRegressor(aggregator=aggregator).fit(data.X, 0 * data.y, task=data.task, sites=data.sites)
    assert nothing.rank_ == 1
    constant = fitted(data.X, np.full(len(data.y), 3.0), fit_intercept=True)
    np.testing.assert_allclose(constant.predict(data.X, data.task), 3.0)


def test_data_that_do_not_suit_the_model_give_a_warning(data):
    with pytest.warns(UserWarning, match="of the targets' square lies in the means of the tasks: set fit_intercept"):
        fs.FedFewShotRegressor(R).fit(data.X, data.y + 50.0, task=data.task)
    skewed = data.X.copy()
    skewed[:, 0] *= 40.0
    with pytest.warns(UserWarning, match="far from white: one direction has"):
        fs.FedFewShotRegressor(R, iterations=5).fit(skewed, data.y, task=data.task)
    with pytest.warns(ConvergenceWarning, match="in the last of 2 rounds"):
        fs.FedFewShotRegressor(R, iterations=2).fit(data.X, data.y, task=data.task)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(data, rank="auto", iterations=100)
        fit(data, iterations=3, tol=0.0)  # asks for three


def test_tasks_in_different_units_give_a_warning(data):
    hundreds = np.where(data.task < 2, 300.0, 1.0)
    for aggregator in (None, aggregation.GeometricMedian()):
        with pytest.warns(UserWarning, match="in the largest task as in a typical one.*scale the targets of each task"):
            fs.FedFewShotRegressor(R, iterations=2, aggregator=aggregator).fit(
                data.X, data.y * hundreds, task=data.task, sites=data.sites
            )
    own = fs.federate(data.X, data.y * hundreds, sites=data.task % 10, task=data.task)  # two sites of ten
    with pytest.warns(UserWarning, match="scale the targets of each task"):
        fs.FedFewShotRegressor(R, tol=0.0, iterations=2).fit(own)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resilient = fs.FedFewShotRegressor(R, tol=0.0, iterations=2, aggregator=aggregation.GeometricMedian())
        resilient.fit(own)  # outvoted
        fs.FedFewShotRegressor(R, tol=0.0, iterations=2, fit_intercept=True).fit(
            data.X, data.y + hundreds, task=data.task, sites=data.sites
        )


def test_unusable_rows_of_predict_and_adapt_are_refused(data, model):
    fed = fs.federate(data.X, data.y, sites=data.sites, task=data.task)
    mixed = fs.FedMixedRegressor(1).fit(data.X, data.y, sites=data.sites)
    for call in (lambda: model.predict(fed), lambda: model.score(fed, data.y), lambda: mixed.predict(fed)):
        with pytest.raises(InputError, match="X is a federation, and a table of rows is needed here"):
            call()
    X, y = data.X[:20], data.y[:20]
    with pytest.raises(InputError, match="X is beyond 1e\\+70"):
        model.adapt(np.where(np.eye(20, N) > 0, 1e71, X), y)
    with pytest.raises(InputError, match="y is beyond 1e\\+70"):
        model.adapt(X, y * 1e75)
    with pytest.raises(InputError, match="y is beyond"):
        model.adapt(X, y * 1e-80)
    for wrong in (y + 4711j, np.array([4711j, *y[1:]], dtype=object), np.array(["4711x"] * 20)):
        for call in (model.adapt, fs.FedFewShotRegressor(R).fit):
            with pytest.raises(InputError, match="must hold a real number for each row") as caught:
                call(X, wrong)
            assert "4711" not in str(caught.value)
    with pytest.raises(InputError, match="NaN or infinity in 1 rows"):
        model.adapt(X, y).predict(np.where(np.arange(20)[:, None] == 3, np.nan, X))


WRONG = {
    "rank": [0, -1, 2.5, "four", None, True],
    "iterations": [-1, 1.5, "many"],
    "power_iterations": [0],
    "max_rank": [0],
    "step_size": [0, -1.0, np.inf, "1"],
    "tol": [-1.0, np.nan],
    "truncation": [0.0],
    "init": ["spectral"],
    "output": ["best"],
    "groups": [0, 1.5],
    "threshold": [0.0, 0.5, "ten"],
    "aggregator": ["GeometricMedian", aggregation.GeometricMedian],
    "fit_intercept": ["no", None, 1],
    "share_coefs": ["no", 0],
    "sample_split": ["no", 2],
    "ridge": [-1.0, "much", np.nan, True, None],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_parameters_out_of_range_are_refused_before_the_first_call(name, value):
    fed = fs.federate(np.eye(4), np.ones(4), sites=[0, 0, 1, 1])
    asked = []

    class Listening(type(fed)):
        def begin(self, *args):
            asked.append(args)
            return super().begin(*args)

    fed.__class__ = Listening
    with pytest.raises(InputError, match=f"{name}="):
        fs.FedFewShotRegressor(**{"aggregator": aggregation.GeometricMedian(), name: value}).fit(fed)
    assert not asked


@pytest.mark.parametrize("given", [{"init": "random"}, {"groups": 2}, {"output": "node"}, {"threshold": 3.0}], ids=str)
def test_parameters_of_the_resilient_protocol_are_refused_without_an_aggregator(given, data):
    with pytest.raises(InputError, match="does nothing with aggregator=None"):
        fs.FedFewShotRegressor(R, **given).fit(data.X, data.y, task=data.task)
    with pytest.raises(InputError, match="needs a spectral start"):
        fs.FedFewShotRegressor(init="random", aggregator=aggregation.GeometricMedian()).fit(data.X, data.y)


def test_bad_targets_and_tasks_are_refused(data):
    few = slice(0, 120)
    X, y, task = data.X[few], data.y[few], data.task[few]
    model = fs.FedFewShotRegressor(1)
    with pytest.raises(ValueError, match="requires y"):
        model.fit(X)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        model.fit(X, np.where(np.arange(120) == 3, np.nan, y))
    with pytest.raises(ValueError, match="inconsistent"):
        model.fit(X, y, task=task[:-1])
    with pytest.raises(InputError, match="every row must belong to a task"):
        model.fit(X, y, task=[None, *task[1:]])
    broken = fs.federate(X, np.where(np.arange(120) == 3, np.inf, y), sites=task, task=task)
    with pytest.raises(InputError, match="y contains NaN or infinity: 1 values"):
        model.fit(broken)
    with pytest.raises(InputError, match="2 of 2 sites have no targets"):
        model.fit(fs.federate(X, sites=task))
    resilient = fs.FedFewShotRegressor(1, aggregator=aggregation.GeometricMedian())
    with pytest.raises(QuorumError, match="has no targets"):
        resilient.fit(fs.federate(X, sites=task))
    half = fs.LocalFederation([fs.Site("a", X, y, task), fs.Site("b", X, y, task), fs.Site("c", X)])
    found = resilient.fit(half)  # a site without targets is a failed site
    assert found.site_weights_[2] == 0.0
