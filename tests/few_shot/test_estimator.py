"""FedFewShotRegressor: fitting, predicting, saving, pipelines."""

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

import fedspan as fs
from fedspan import aggregation, attacks
from fedspan.errors import InputError
from fedspan.linalg import subspace_distance

from .regressor_examples import N, Q, R, fit, table


@pytest.fixture(scope="module")
def data():
    return table()


@pytest.fixture(scope="module")
def model(data):
    return fit(data, iterations=60)


def test_attributes_after_a_fit(data, model):
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
        if call.step == "few_shot.tasks":
            return {site: {**replies[site], **everything} for site in bad}
        if call.step != "few_shot.coefs":
            return {}
        false = {**everything, "loadings": np.full((500, R), 1e6), "intercepts": np.full(500, 1e6)}
        return dict.fromkeys(bad, false)

    fed = fs.federate(data.X, data.y, sites=data.task % 8, task=data.task).corrupt(claims, sites=["0"])
    model = fs.FedFewShotRegressor(R, aggregator=aggregation.GeometricMedian(), iterations=40).fit(fed)
    honest = np.setdiff1d(np.arange(Q), np.arange(0, Q, 8))
    np.testing.assert_allclose(model.coef_[honest], data.coef[honest], atol=0.3)


def test_a_fit_without_rounds_returns_the_start(data, tmp_path):
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
def test_with_an_intercept_features_far_from_zero_are_those_near_it(data, aggregator):
    near, far = (
        fs.FedFewShotRegressor(R, aggregator=aggregator, fit_intercept=True).fit(
            data.X + mean, data.y, task=data.task, sites=data.sites
        )
        for mean in (0.0, 1e7)
    )
    np.testing.assert_allclose(far.coef_, near.coef_, atol=1e-6)


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
    reversed_gradients = attacks.ScaledReverse(100.0, steps=["few_shot.gradient"], keys=["gradient"])
    spoilt = fs.FedFewShotRegressor(R, iterations=10).fit(fed.corrupt(reversed_gradients, sites=["site-01"]))
    assert subspace_distance(spoilt.representation_, data.basis) > 0.5
    with pytest.raises(InputError, match="a site sends false values, which takes an aggregator"):
        fs.FedFewShotRegressor(R).fit(fed.corrupt(attacks.ScaledReverse(100.0), sites=["site-01"]))


def test_coefficients_may_stay_at_their_sites(data, tmp_path):
    for aggregator in (None, aggregation.GeometricMedian()):
        model = fit(data, share_coefs=False, aggregator=aggregator)
        sent = {call.step for call in model.run_.calls}
        assert "few_shot.gradient" in sent
        assert not sent & {"few_shot.coefs", "few_shot.normal_equations"}
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


def test_tasks_of_a_site_that_vanishes_give_a_warning(data):
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


def test_weak_directions_that_have_not_settled_give_a_warning():
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
