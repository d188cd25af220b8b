"""FedFewShotRegressor."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimators_nan_inf

import fedspan as fs
from fedspan import aggregation, attacks
from fedspan.datasets import make_few_shot_tasks
from fedspan.errors import InputError, QuorumError
from fedspan.linalg import subspace_distance

N, Q, R = 25, 40, 3


@pytest.fixture(scope="module")
def data():
    return make_few_shot_tasks(N, Q, R, 60, 6, noise=0.1, seed=1)


@pytest.fixture(scope="module")
def model(data):
    return fs.FedFewShotRegressor(R, iterations=60).fit(data.X, data.y, task=data.task, sites=data.sites)


@pytest.fixture(scope="module")
def new(data):
    return make_few_shot_tasks(N, 30, R, 40, 1, noise=0.1, basis=data.basis, seed=2)


def fit(data, **parameters):
    return fs.FedFewShotRegressor(**{"rank": R, "iterations": 30, **parameters}).fit(
        data.X, data.y, task=data.task, sites=data.sites
    )


def test_what_fitting_finds(data, model):
    assert model.representation_.shape == (N, R)
    np.testing.assert_allclose(model.representation_.T @ model.representation_, np.eye(R), atol=1e-12)
    assert subspace_distance(model.representation_, data.basis) / np.sqrt(R) < 0.05
    assert model.tasks_.tolist() == list(range(Q))
    np.testing.assert_allclose(model.coef_, data.coef, atol=0.15)
    assert model.noise_variance_ == pytest.approx(0.01, rel=0.2)
    assert (model.rank_, model.n_iter_ <= 60, model.sites_) == (R, True, tuple(f"site-{i:02d}" for i in range(6)))
    assert model.sites_trusted_ == model.sites_
    np.testing.assert_allclose(model.site_weights_, 1 / 6)
    spread = (model.loadings_**2).mean(axis=0)
    assert (np.diff(spread) < 0.05 * spread[0]).all()  # the direction that matters most comes first
    assert model.score(data.X, data.y, data.task) > 0.99


def test_predictions_by_task(data, model):
    X = data.X[:7]
    np.testing.assert_allclose(model.predict(X, 3), X @ model.coef_[3], atol=1e-12)
    np.testing.assert_allclose(model.predict(X, np.int8(3)), model.predict(X, [3] * 7))
    many = model.predict(X, [0, 1, 2, 3, 4, 5, 6])
    np.testing.assert_allclose(many, np.einsum("ij,ij->i", X, model.coef_[:7]), atol=1e-12)
    for task, sentence in (
        (None, "40 tasks"),
        (99, "task 99 is not among"),
        ("x", "not among"),
        ([1, 2], "for each of"),
    ):
        with pytest.raises(InputError, match=sentence):
            model.predict(X, task)


def test_tasks_may_be_text_and_come_from_data_frames(data):
    frame = pd.DataFrame(data.X, columns=[f"x{i}" for i in range(N)])
    names = pd.Series([f"clinic {k}" for k in data.task])
    model = fs.FedFewShotRegressor(R, iterations=30).fit(frame, pd.Series(data.y), task=names, sites=data.sites)
    assert model.tasks_[:2].tolist() == ["clinic 0", "clinic 1"]
    assert model.score(frame, data.y, names) > 0.98
    assert model.predict(frame[:3], "clinic 7").shape == (3,)
    by_number = fit(data)
    order = np.argsort([f"clinic {k}" for k in range(Q)])
    np.testing.assert_allclose(model.coef_, by_number.coef_[order], atol=1e-10)


def test_a_table_is_the_federation_of_its_rows_and_splits_agree(data):
    table = fit(data)
    fed = fs.federate(data.X, data.y, sites=data.sites, task=data.task)
    again = fs.FedFewShotRegressor(R, iterations=30).fit(fed)
    np.testing.assert_array_equal(table.coef_, again.coef_)
    whole = fs.FedFewShotRegressor(R, iterations=60).fit(data.X, data.y, task=data.task, sites=data.task % 7)
    alone = fs.FedFewShotRegressor(R, iterations=60).fit(data.X, data.y, task=data.task)
    np.testing.assert_allclose(whole.coef_, alone.coef_, atol=1e-6)  # any split of the tasks is the pooled algorithm
    np.testing.assert_allclose(table.coef_, alone.coef_, atol=0.05)
    for argument in ({"task": data.task}, {"sites": data.sites}):
        with pytest.raises(InputError, match="goes with a table"):
            table.fit(fed, **argument)
    with pytest.raises(InputError, match="goes with a table"):
        table.fit(fed, data.y)


def test_one_task_is_ordinary_least_squares():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 4)) + 2.0
    y = X @ [1.0, -2.0, 0.5, 0.0] + 3.0 + 0.1 * rng.normal(size=80)
    model = fs.FedFewShotRegressor(fit_intercept=True, iterations=300, tol=1e-12).fit(X, y, sites=np.arange(80) % 2)
    exact = LinearRegression().fit(X, y)
    assert model.rank_ == 1
    assert subspace_distance(model.representation_, exact.coef_[:, None] / np.linalg.norm(exact.coef_)) < 0.05
    one = fs.FedFewShotRegressor(fit_intercept=True, iterations=300, tol=1e-12).fit(X, y)
    np.testing.assert_allclose(one.coef_[0], exact.coef_, atol=1e-8)
    np.testing.assert_allclose(one.intercept_, exact.intercept_, atol=1e-7)
    np.testing.assert_allclose(one.predict(X), exact.predict(X), atol=1e-7)


def test_new_tasks_from_few_rows_are_as_good_as_theory_says(model, new):
    """Mean squared error of the coefficients against sigma^2 r / (m - r - 1), and what the task itself expects."""
    errors, expected = [], []
    for k in range(30):
        task = model.adapt(new.X[new.task == k][:20], new.y[new.task == k][:20])
        errors.append(np.sum((task.coef - new.coef[k]) ** 2))
        expected.append(task.expected_error)
        assert task.rows == 20
        assert task.residual_variance == pytest.approx(0.01, rel=2.0)
    theory = 0.01 * R / (20 - R - 1)
    assert np.mean(expected) == pytest.approx(theory + model.representation_error_, rel=0.3)
    assert theory < np.mean(errors) < 1.5 * np.mean(expected)
    X = new.X[new.task == 29][20:]
    np.testing.assert_array_equal(model.predict(X, task), task.predict(X))
    assert task.score(X, new.y[new.task == 29][20:]) > 0.95
    with pytest.raises(InputError, match="must have 25 columns"):
        task.predict(X[:, :4])


def repeated(rows):
    return np.repeat(rows[:2], 4, axis=0)


@pytest.mark.parametrize(("aggregator", "intercept"), [(None, True), (aggregation.GeometricMedian(), False)], ids=str)
def test_the_error_to_expect_is_the_error_that_comes(aggregator, intercept):
    """Over 300 new tasks, also where rows do not decide (1 and 2 of them, or the same two again), with any ridge."""
    noise = 0.3
    data = make_few_shot_tasks(N, Q, R, 60, 6, noise=noise, seed=1)
    level = 3.0 * intercept
    model = fs.FedFewShotRegressor(R, iterations=60, aggregator=aggregator, fit_intercept=intercept, share_coefs=False)
    model.fit(data.X, data.y + level, task=data.task, sites=data.sites)
    new = make_few_shot_tasks(N, 300, R, 40, 1, noise=noise, basis=data.basis, seed=2)
    rng = np.random.default_rng(3)
    ways = [(9, 0.0), (20, 0.0), (40, 0.0), (1, "auto"), (2, "auto"), (5, "auto"), (20, "auto"), (5, 5.0), (0, 1.0)]
    for rows, ridge in ways:
        errors, expected = [], []
        for k in range(300):
            X = new.X[new.task == k][:rows] if rows else repeated(new.X[new.task == k])
            y = X @ new.coef[k] + noise * rng.normal(size=len(X)) + level
            task = model.adapt(X, y, ridge=ridge)
            errors.append(np.sum((task.coef - new.coef[k]) ** 2))
            expected.append(task.expected_error)
        assert 1 / 1.5 < np.mean(errors) / np.mean(expected) < 1.5, (rows, ridge)


def test_rows_that_do_not_decide_are_warned_of_and_not_trusted(model, new):
    X = np.repeat(new.X[:1], 8, axis=0)
    with pytest.warns(UserWarning, match="these 8 rows decide 1 of 3 directions: the others are taken as zero"):
        task = model.adapt(X, np.repeat(new.y[:1], 8))
    assert task.expected_error > 0.3 * np.trace(model.loadings_moment_)
    level = fs.FedFewShotRegressor(R, fit_intercept=True, iterations=20).fit(new.X, new.y, task=new.task)
    one = level.adapt(new.X[:1], new.y[:1], ridge=1.0)
    assert one.expected_error > 0.9 * np.trace(level.loadings_moment_)


def few_rows(seed=1):
    """Thirty tasks of 60 rows, and a hundred of 1 to 10."""
    made = make_few_shot_tasks(20, 130, 3, 60, 6, noise=0.3, seed=seed)
    size = np.where(np.arange(130) < 30, 60, 1 + (np.arange(130) - 30) % 10)
    return made, size, np.tile(np.arange(60), 130) < size[made.task]


@pytest.mark.parametrize("aggregator", [None, aggregation.GeometricMedian()], ids=str)
def test_tasks_with_few_rows_do_not_explode_and_are_told(aggregator):
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


def test_labels_that_read_the_same_are_the_same_task(data, model):
    np.testing.assert_array_equal(model.predict(data.X, data.task.astype(str)), model.predict(data.X, data.task))
    for k in (3, 10, 39):
        np.testing.assert_array_equal(model.predict(data.X[:2], str(k)), model.predict(data.X[:2], k))
        np.testing.assert_array_equal(model.predict(data.X[:2], float(k)), model.predict(data.X[:2], k))
    for strange in ("03", "x", "40", "3.0"):
        with pytest.raises(InputError, match=f"task {strange} is not among the 40 tasks"):
            model.predict(data.X[:2], strange)
    text = fit(data, iterations=60, fit_intercept=False)
    text.fit(data.X, data.y, task=data.task.astype(str), sites=data.sites)
    assert text.tasks_.tolist() == sorted(str(k) for k in range(Q))
    np.testing.assert_allclose(text.predict(data.X[:9], 7), model.predict(data.X[:9], 7), atol=1e-8)
    with pytest.raises(InputError, match="more than 200 characters"):
        fit(data).fit(data.X, data.y, task=["x" * 201 for _ in data.y])


def test_one_site_cannot_spoil_the_tasks_of_others(data):
    def claims(replies, bad, rng, call):
        everything = {"task": np.arange(500), "rows": np.full(500, 99)}
        if call.step.endswith("local_tasks"):
            return {site: {**replies[site], **everything} for site in bad}
        if not call.step.endswith("local_coefs"):
            return {}
        lie = {**everything, "loadings": np.full((500, R), 1e6), "intercepts": np.full(500, 1e6)}
        return dict.fromkeys(bad, lie)

    fed = fs.federate(data.X, data.y, sites=data.task % 8, task=data.task).corrupt(claims, sites=["0"])
    model = fs.FedFewShotRegressor(R, aggregator=aggregation.GeometricMedian(), iterations=40).fit(fed)
    honest = np.setdiff1d(np.arange(Q), np.arange(0, Q, 8))
    np.testing.assert_allclose(model.coef_[honest], data.coef[honest], atol=0.3)


def test_what_is_left_after_no_rounds_at_all(data, tmp_path):
    for aggregator in (None, aggregation.GeometricMedian()):
        model = fit(data, iterations=0, aggregator=aggregator)
        assert 0.0 < model.noise_variance_ < 1.0
        assert model.n_iter_ == 0
        assert model.sites_trusted_ == model.sites_
        np.testing.assert_allclose(model.site_weights_, 1 / 6)
        model.save(tmp_path / "model")
        task = fs.load(tmp_path / "model").adapt(data.X[:20], data.y[:20], ridge="auto")
        assert 0.0 < task.expected_error < 1.0


def test_trusted_sites_are_sorted_also_when_some_come_late(data):
    fed = fs.federate(data.X, data.y, sites=data.sites, task=data.task)
    late = fed.corrupt(
        lambda replies, bad, rng, call: dict.fromkeys(bad) if call.number == 14 else {}, sites=["site-01"]
    )
    model = fs.FedFewShotRegressor(R, iterations=20).fit(late)
    assert model.sites_trusted_ == tuple(sorted(model.sites_trusted_)) == fed.sites


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
def test_options_that_would_do_nothing_are_refused(data, given):
    last = list(given)[-1]
    with pytest.raises(InputError, match=f"^{last}=.*(does nothing with|goes with)"):
        fit(data, aggregator=aggregation.GeometricMedian(), **given)


@pytest.mark.parametrize("aggregator", [None, aggregation.GeometricMedian()], ids=str)
def test_with_an_intercept_features_far_from_zero_are_those_near_it(data, aggregator):
    near, far = (
        fs.FedFewShotRegressor(R, aggregator=aggregator, fit_intercept=True).fit(
            data.X + mean, data.y, task=data.task, sites=data.sites
        )
        for mean in (0.0, 1e7)
    )
    np.testing.assert_allclose(far.coef_, near.coef_, atol=1e-6)


def test_the_intercept_of_a_new_task(data):
    X, y = data.X + 1.0, data.y + 5.0
    model = fs.FedFewShotRegressor(R, fit_intercept=True, iterations=40).fit(X, y, task=data.task, sites=data.sites)
    task = model.adapt(X[:30], y[:30] + 7.0)
    own = LinearRegression().fit(X[:30] @ model.representation_, y[:30] + 7.0)
    np.testing.assert_allclose(task.loadings, own.coef_, atol=1e-9)
    assert task.intercept == pytest.approx(own.intercept_)
    np.testing.assert_allclose(task.predict(X[:30]), own.predict(X[:30] @ model.representation_), atol=1e-9)


def test_too_few_rows_are_refused_and_few_are_warned_of(model, new):
    X, y = new.X[:40], new.y[:40]
    with pytest.raises(InputError, match="2 rows do not decide 3 unknowns: give at least 3 rows"):
        model.adapt(X[:2], y[:2])
    for m in (3, 4, 5):
        with pytest.warns(UserWarning, match=f"{m} rows for 3 unknowns amplify the noise: the expected squared error"):
            task = model.adapt(X[:m], y[:m])
    T = X[:5] @ model.representation_
    noise = model.noise_variance_ + model.feature_variance_ * model.representation_error_
    theory = noise * np.trace(np.linalg.inv(T.T @ T)) + model.representation_error_
    assert task.expected_error == pytest.approx(theory)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        enough = model.adapt(X[:6], y[:6])
        ridged = model.adapt(X[:2], y[:2], ridge=0.1)
    assert np.isnan(ridged.residual_variance)
    assert np.isfinite(enough.residual_variance)
    T = X[:2] @ model.representation_
    np.testing.assert_allclose(ridged.loadings, np.linalg.solve(T.T @ T + 0.1 * np.eye(R), T.T @ y[:2]), atol=1e-12)
    assert 0 < ridged.expected_error < 10
    stronger = model.adapt(X[:9], y[:9], ridge=1e9)
    np.testing.assert_allclose(stronger.coef, 0.0, atol=1e-6)
    for ridge in (-1.0, np.nan, "1", True):
        with pytest.raises(InputError, match="ridge="):
            model.adapt(X, y, ridge=ridge)
    with pytest.raises(ValueError, match="NaN"):
        model.adapt(X, np.where(np.arange(40) == 3, np.nan, y))
    with pytest.raises(ValueError, match="inconsistent"):
        model.adapt(X, y[:5])
    with pytest.raises(ValueError, match="features"):
        model.adapt(X[:, :7], y)


def test_the_whole_fit_is_resilient(data):
    fed = fs.federate(data.X, data.y, sites=data.sites, task=data.task)
    clean = fs.FedFewShotRegressor(R, aggregator=aggregation.GeometricMedian(), iterations=40).fit(fed)
    for attack in (attacks.ScaledReverse(), attacks.Ones(1e8), attacks.NonFinite(), attacks.ALittleIsEnough()):
        bad = fed.corrupt(attack, sites=["site-01"])
        model = fs.FedFewShotRegressor(R, aggregator=aggregation.GeometricMedian(), iterations=40).fit(bad)
        assert subspace_distance(model.representation_, clean.representation_) < 0.1
        np.testing.assert_allclose(model.coef_, data.coef, atol=0.3)
        assert model.noise_variance_ == pytest.approx(0.01, rel=0.5)
        if not isinstance(attack, attacks.ALittleIsEnough):
            assert "site-01" not in model.sites_trusted_
            assert model.site_weights_[1] < 0.05
    reversed_gradients = attacks.ScaledReverse(100.0, steps=["local_gradient"], keys=["gradient"])
    spoilt = fs.FedFewShotRegressor(R, iterations=10).fit(fed.corrupt(reversed_gradients, sites=["site-01"]))
    assert subspace_distance(spoilt.representation_, data.basis) > 0.5
    with pytest.raises(InputError, match="a site sends nonsense, which takes an aggregator"):
        fs.FedFewShotRegressor(R).fit(fed.corrupt(attacks.ScaledReverse(100.0), sites=["site-01"]))


def test_coefficients_may_stay_at_their_sites(data, tmp_path):
    for aggregator in (None, aggregation.GeometricMedian()):
        model = fit(data, share_coefs=False, aggregator=aggregator)
        sent = {call.step.rsplit(".", 1)[1] for call in model.run_.calls}
        assert not sent & {"local_coefs", "local_normal_equations"}
        assert not hasattr(model, "coef_")
        with pytest.raises(AttributeError, match="stayed at their sites"):
            model.coef_  # noqa: B018
        with pytest.raises(InputError, match="stayed at their sites"):
            model.predict(data.X, data.task)
        assert model.adapt(data.X[:20], data.y[:20]).score(data.X[20:60], data.y[20:60]) > 0.9
        model.save(tmp_path / "model")
        assert not hasattr(fs.load(tmp_path / "model"), "tasks_")
    again = fit(data)
    again.set_params(share_coefs=False).fit(data.X, data.y, task=data.task, sites=data.sites)
    assert not hasattr(again, "loadings_")


def test_saved_models_predict_the_same(data, model, tmp_path):
    resilient = fit(data, aggregator=aggregation.MedianOfMeans(3), groups=3)
    for made in (model, resilient):
        made.save(tmp_path / "model")
        loaded = fs.load(tmp_path / "model")
        np.testing.assert_array_equal(loaded.predict(data.X, data.task), made.predict(data.X, data.task))
        np.testing.assert_array_equal(
            loaded.adapt(data.X[:9], data.y[:9]).coef, made.adapt(data.X[:9], data.y[:9]).coef
        )
        assert loaded.get_params() == made.get_params()
    names = fs.FedFewShotRegressor(R, iterations=5)
    with pytest.warns(ConvergenceWarning):
        names.fit(data.X, data.y, task=[f"t{k}" for k in data.task])
    names.save(tmp_path / "named")
    assert fs.load(tmp_path / "named").tasks_.tolist() == names.tasks_.tolist()


def test_a_fit_that_is_killed_in_the_middle_goes_on_with_the_same_bytes(data, tmp_path):
    def fed(**options):
        return fs.federate(data.X, data.y, sites=data.sites, task=data.task, seed=5, **options)

    for number, aggregator in enumerate((None, aggregation.GeometricMedian())):
        folder = tmp_path / str(number)
        made = fs.FedFewShotRegressor(aggregator=aggregator, iterations=6, tol=0.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            whole = sklearn.clone(made).fit(fed(run_dir=folder))
            journal = folder / "run-000" / "journal"
            journal.write_bytes(journal.read_bytes()[: -journal.stat().st_size // 2])
            resumed = sklearn.clone(made).fit(fed(run_dir=folder))
        assert any(call.replayed for call in resumed.run_.calls)
        assert not all(call.replayed for call in resumed.run_.calls)
        np.testing.assert_array_equal(resumed.coef_, whole.coef_)
        with pytest.raises(fs.errors.JournalError, match="step_size"):
            sklearn.clone(made).set_params(step_size=0.5).fit(fed(run_dir=folder))


def test_tasks_of_a_site_that_vanishes_are_told(data):
    def vanishing(replies, bad, rng, call):
        return dict.fromkeys(bad) if call.number > 5 else {}

    fed = fs.federate(data.X, data.y, sites=data.task % 6, task=data.task).corrupt(vanishing, sites=["2"])
    for aggregator in (None, aggregation.GeometricMedian()):
        with pytest.warns(UserWarning, match="7 of 40 tasks have no coefficients"):
            model = fs.FedFewShotRegressor(R, aggregator=aggregator, iterations=30).fit(fed)
        assert model.tasks_.tolist() == [k for k in range(Q) if k % 6 != 2]
        assert subspace_distance(model.representation_, data.basis) < 0.2
        with pytest.raises(InputError, match="task 2 is not among"):
            model.predict(data.X[:1], 2)


def test_data_that_do_not_suit_the_model_are_warned_of(data):
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


def test_weak_directions_that_have_not_settled_are_told():
    """Directions of a tenth of the strongest move by less than one in a thousand per round, and are far off."""
    rng = np.random.default_rng(0)
    U, task = np.linalg.qr(rng.standard_normal((40, 3)))[0], np.repeat(np.arange(80), 60)
    loadings = rng.standard_normal((80, 3)) * [1.0, 0.3, 0.1]
    X = rng.standard_normal((4800, 40))
    y = np.einsum("ij,ij->i", X @ U, loadings[task])
    for aggregator in (None, aggregation.GeometricMedian()):
        model = fs.FedFewShotRegressor(3, aggregator=aggregator)
        with pytest.warns(ConvergenceWarning, match="last of 100 rounds, more than tol=1e-08: take more iterations, "):
            model.fit(X, y, task=task, sites=task % 8)
        assert model.run_.metric("moved")[-1] < 1e-3
        assert subspace_distance(model.representation_, U) > 1e-3


def test_tasks_in_different_units_are_warned_of(data):
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


def test_pipelines_whiten_first(data):
    """Features that are mixed by an ill-conditioned matrix; white ones are learned in a few rounds."""
    mixing = np.linalg.qr(np.random.default_rng(0).normal(size=(N, N)))[0] * np.logspace(0, -1.5, N)
    X = data.X @ mixing.T + 4.0
    fed = fs.federate(X, data.y, sites=data.sites, task=data.task)
    pipe = make_pipeline(fs.FedPCA(), fs.FedStandardScaler(), fs.FedFewShotRegressor(R, iterations=40)).fit(fed)
    assert pipe.predict(X[:5], task=0).shape == (5,)
    fitted = pipe.predict(X, task=data.task)
    assert 1 - np.mean((fitted - data.y) ** 2) / np.var(data.y) > 0.98
    task = pipe[-1].adapt(pipe[:-1].transform(X[:20]), data.y[:20])
    assert task.score(pipe[:-1].transform(X[20:60]), data.y[20:60]) > 0.9


def test_task_travels_like_sites_through_cross_validation(data):
    with sklearn.config_context(enable_metadata_routing=True):
        model = fs.FedFewShotRegressor(R, iterations=20)
        model.set_fit_request(task=True, sites=True).set_score_request(task=True)
        scores = cross_val_score(
            model,
            data.X,
            data.y,
            params={"task": data.task, "sites": data.sites},
            cv=KFold(3, shuffle=True, random_state=0),
        )
    assert scores.min() > 0.95


def test_pipelines_and_searches_over_them_score_by_task(data):
    with sklearn.config_context(enable_metadata_routing=True):
        model = fs.FedFewShotRegressor(R, iterations=15, tol=0.0)
        model.set_fit_request(task=True, sites=True).set_predict_request(task=True).set_score_request(task=True)
        pipe = make_pipeline(fs.FedStandardScaler().set_fit_request(sites=True), model)
        pipe.fit(data.X, data.y, task=data.task, sites=data.sites)
        assert pipe.score(data.X, data.y, task=data.task) > 0.98
        search = GridSearchCV(
            pipe, {"fedfewshotregressor__rank": [1, R]}, cv=KFold(2, shuffle=True, random_state=0), error_score="raise"
        ).fit(data.X, data.y, task=data.task, sites=data.sites)
    assert search.best_params_ == {"fedfewshotregressor__rank": R}


def test_scores_weigh_rows(data, model):
    some = np.arange(len(data.y)) < 300
    weighted = model.score(data.X, data.y, data.task, sample_weight=some.astype(float))
    assert weighted == pytest.approx(model.score(data.X[some], data.y[some], data.task[some]))
    assert weighted != pytest.approx(model.score(data.X, data.y, data.task), abs=1e-9)


def test_what_cannot_be_predicted_or_adapted_to_gets_a_sentence(data, model):
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
def test_parameters_that_cannot_be_meant_are_refused_before_any_site_is_asked(name, value):
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
def test_what_only_medians_know_is_refused_without_an_aggregator(given, data):
    with pytest.raises(InputError, match="goes with an aggregator"):
        fs.FedFewShotRegressor(R, **given).fit(data.X, data.y, task=data.task)
    with pytest.raises(InputError, match="init='random' is none"):
        fs.FedFewShotRegressor(init="random", aggregator=aggregation.GeometricMedian()).fit(data.X, data.y)


def test_every_option_of_the_start_and_the_descent_does_something(data):
    settings = {"aggregator": aggregation.GeometricMedian(), "iterations": 2, "tol": 0.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = fit(data, **settings).representation_
        changes = [
            {"init": "random"},
            {"init": "median_of_means"},
            {"init": "median_of_means", "groups": 2},
            {"output": "node"},
            {"output": "trimmed"},
            {"threshold": 1.0},
            {"truncation": 0.5},
            {"step_size": 0.5},
            {"fit_intercept": True},
            {"sample_split": True, "iterations": 1, "rank": 2},
            {"aggregator": aggregation.CoordinateMedian()},
            {"iterations": 3},
            {"tol": 0.5, "iterations": 2},
        ]
        for change in changes:
            other = fit(data, **{**settings, **change}).representation_
            assert subspace_distance(plain, other) > 1e-6, change
        one, ten = (fit(data, iterations=0, power_iterations=k).representation_ for k in (1, 10))
        assert subspace_distance(one, ten) > 1e-3
        assert fit(data, rank="auto", max_rank=2).rank_ == 2
        a, b = (fit(data, iterations=0, power_iterations=1, random_state=k).representation_ for k in (0, 1))
        assert subspace_distance(a, b) > 1e-3


def test_bad_targets_and_tasks_get_a_sentence(data):
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
