"""FedMixedRegressor on a real, faulty table, through faults and resumes, and what its options change."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import PolynomialFeatures

import fedspan as fs
from fedspan.aggregation import SpectralFilter
from fedspan.linalg import bottleneck_distance, matched_share
from fedspan.mixed_regression.parts import cluster_repair
from fedspan.mixed_regression.parts.refinement import Refinement

from .mixtures import federation, lopsided, mixture


@pytest.fixture(scope="module")
def patients():
    """The diabetes study as sites of like age, sex and body mass: 55 of 1 to 31 patients, in units of their own.

    With a column that is the sum of two others, one that is constant, units of a million and of a hundred-millionth,
    and an outlier in row 11.
    """
    raw = load_diabetes(scaled=False)
    sites = np.array([f"{int(age // 10)}-{int(sex)}-{int(bmi // 5)}" for age, sex, bmi in raw.data[:, :3]])
    table = [raw.data, raw.data[:, 4] + 2 * raw.data[:, 5], np.full(len(raw.data), 3.0)]
    X = np.column_stack([*table, raw.data[:, 6] * 1e6, raw.data[:, 7] * 1e-8])
    X[11, 3] = 1e4
    return X, raw.target, sites


@pytest.mark.parametrize("scaling", ["whiten", "standardize"])
def test_one_model_for_all_patients_is_least_squares(patients, scaling):
    X, y, sites = patients
    model = fs.FedMixedRegressor(1, update="exact", scaling=scaling).fit(X, y, sites=sites)
    scaled = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-12)
    np.testing.assert_allclose(model.predict(X), LinearRegression().fit(scaled, y).predict(scaled), rtol=1e-5)


def test_patients_that_form_no_clusters_cause_a_warning(patients):
    X, y, sites = patients
    options = {"start": "spectral", "update": "exact", "random_state": 0}
    assert fs.FedMixedRegressor("auto", **options).fit(X, y, sites=sites).n_clusters_ == 1
    there = np.arange(len(y)) != 11
    with pytest.warns(UserWarning, match="may be too many"):
        fs.FedMixedRegressor(2, **options).fit(X[there], y[there], sites=sites[there])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"start": "spectral", "assignment": "soft"},
        {"start": "random", "n_starts": 3},
        {"start": "spectral", "update": "fedprox"},
        {"start": "spectral", "aggregator": SpectralFilter()},
    ],
    ids=str,
)
def test_hidden_groups_of_patients_are_found(patients, options):
    """Half of the sites measure the outcome on another scale, which no site reports."""
    X, y, sites = patients
    names = np.unique(sites)
    other = np.arange(len(names)) % 2 == 1
    turned = np.where(other[np.searchsorted(names, sites)], 900.0 - 3.0 * y, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = fs.FedMixedRegressor(2, max_rounds=100, tol=1e-4, random_state=0, **options)
        model.fit(X, turned, sites=sites)
    large = np.array([np.sum(sites == name) >= 5 for name in names])
    assert matched_share(model.labels_[large], other[large]) > 0.9
    assert np.isfinite(model.coef_).all()


def test_units_and_constants_of_a_real_table_do_not_change_the_clusters(patients):
    X, y, sites = patients
    options = {"n_clusters": 2, "start": "spectral", "update": "exact", "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        dirty = fs.FedMixedRegressor(**options).fit(X, y, sites=sites)
        clean = fs.FedMixedRegressor(**options).fit(X[:, :10], y, sites=sites)
    assert dirty.coef_.shape == (2, 14)
    np.testing.assert_allclose(dirty.predict(X, site=sites), clean.predict(X[:, :10], site=sites), rtol=1e-4)


# Faults and resumes.


@pytest.mark.parametrize("update", ["fedavg", "exact"])
def test_sites_that_drop_out_come_late_or_send_nonsense(update):
    made = mixture(0, sizes=(10,) * 60, k=2, d=4)
    plan = fs.FaultPlan(seed=2, drop=0.03, delay=0.03, malformed=0.03, nonfinite=0.03, shape=0.03, stale=0.03)
    model = fs.FedMixedRegressor(2, start="spectral", update=update, max_rounds=30, random_state=0)
    model.fit(federation(made).with_faults(plan))
    reasons = " ".join(why for _, _, why in model.run_.failures)
    for word in ("non-finite", "misshapen", "stale", "deadline"):
        assert word in reasons
    known = np.flatnonzero(model.labels_ >= 0)
    truth = [made[3][int(model.sites_[i])] for i in known]
    assert len(known) > 0.8 * len(model.sites_)
    assert matched_share(model.labels_[known], truth) == 1.0


@pytest.mark.parametrize(
    "options",
    [
        {"update": "exact", "n_clusters": "auto", "max_clusters": 3},
        {"assignment": "soft", "update": "fedprox"},
        {"aggregator": SpectralFilter()},
        {"aggregator": SpectralFilter(), "update": "exact"},
        {"start": "random", "n_starts": 2, "loss": "logistic"},
        {"start": "moment_descent", "perturbation": 0.2},
    ],
    ids=str,
)
def test_a_fit_that_is_killed_in_the_middle_goes_on_to_the_same_bytes(tmp_path, options):
    made = mixture(1, sizes=(6,) * 20, k=2, d=3)
    y = (made[1] > 0).astype(float) if "loss" in options else made[1]

    def fit(folder):
        fed = fs.federate(made[0], y, sites=made[2], run_dir=folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return fs.FedMixedRegressor(
                **{"n_clusters": 2, "start": "spectral", "max_rounds": 4, "random_state": 0, **options}
            ).fit(fed)

    whole = fit(tmp_path / "whole")
    journal = (tmp_path / "whole" / "run-000" / "journal").read_bytes()
    folder = tmp_path / "again" / "run-000"
    folder.mkdir(parents=True)
    (folder / "journal").write_bytes(journal[: int(0.7 * len(journal))])
    again = fit(tmp_path / "again")
    assert any(call.replayed for call in again.run_.calls)
    assert not all(call.replayed for call in again.run_.calls)
    for name in ("coef_", "intercept_", "proba_", "labels_", "cluster_rows_"):
        np.testing.assert_array_equal(getattr(again, name), getattr(whole, name))


# Options.


@pytest.mark.parametrize(
    ("drop", "options"), [(0.02, {}), (0.1, {"assignment": "soft"}), (0.1, {"update": "exact"})], ids=str
)
def test_sites_that_come_and_go_do_not_keep_a_fit_from_ending_near_the_same_models(drop, options):
    """Columns of unequal spread by cluster, so that plain steps would take hundreds of rounds."""
    made = mixture(31, sizes=(3,) * 40 + (12,) * 40, k=3, d=5, covariances=True)
    model = fs.FedMixedRegressor(3, start="spectral", random_state=1, **options)
    whole = clone(model).fit(federation(made)).coef_
    fed = federation(made).with_faults(fs.FaultPlan(seed=1, drop=drop))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        found = model.fit(fed)
    assert found.converged_
    assert found.n_iter_ < 300
    assert bottleneck_distance(found.coef_, made[4]) < 1.25 * bottleneck_distance(whole, made[4])


def test_too_few_rounds_cause_a_warning():
    made = mixture(4, sizes=(10,) * 40, k=2, d=3)
    model = fs.FedMixedRegressor(2, start="spectral", max_rounds=2, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"max_rounds=2 .* raise max_rounds"):
        model.fit(made[0], made[1], sites=made[2])
    assert not model.converged_
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model.set_params(tol=0.0).fit(made[0], made[1], sites=made[2])  # no tolerance: all rounds are wanted


@pytest.mark.parametrize("aggregator", [None, SpectralFilter()], ids=str)
@pytest.mark.parametrize("start", ["moment_descent", "spectral"])
def test_sites_with_equal_targets_end_in_a_fit_with_an_empty_cluster(start, aggregator):
    X, _, sites, *_ = mixture(5, sizes=(6,) * 30, k=2, d=4)
    model = fs.FedMixedRegressor(2, start=start, aggregator=aggregator, random_state=0)
    with pytest.warns(UserWarning, match="has no sites"):
        model.fit(X, np.full(len(X), 3.0), sites=sites)
    np.testing.assert_allclose(model.predict(X[:3]), 3.0, atol=1e-9)


def test_repeated_tables_have_fewer_clusters_than_requested():
    X, y, *_ = mixture(6, sizes=(6,) * 2, k=2, d=4)
    model = fs.FedMixedRegressor(3, random_state=0)
    with pytest.warns(UserWarning, match="has no sites"):
        model.fit(np.vstack([X] * 8), np.tile(y, 8), sites=np.repeat(np.arange(16), 6))
    np.testing.assert_array_equal(model.labels_, np.resize(model.labels_[:2], 16))


def test_perturbed_models_that_were_lost_are_not_requested():
    made = mixture(7, sizes=(10,) * 40, k=2, d=3)
    plan = fs.FaultPlan(seed=1, drop=0.1, error=0.05, nonfinite=0.03, stale=0.05)
    model = fs.FedMixedRegressor(2, perturbation=0.3, random_state=0).fit(federation(made).with_faults(plan))
    assert matched_share(model.labels_, made[3]) > 0.9
    lost = [reason for call in model.run_.calls for reason in call.failed.values() if "KeyError" in str(reason)]
    assert lost == []


@pytest.mark.parametrize("aggregator", [None, SpectralFilter()], ids=str)
def test_other_classes_of_a_federation_are_refused_before_anything_is_fitted(aggregator):
    X, y, sites, *_ = mixture(8, sizes=(10,) * 10, k=2, d=3)
    fed = fs.federate(X, np.where(y > 0.0, 1, -1), sites=sites)
    model = fs.FedMixedRegressor(2, loss="logistic", start="spectral", aggregator=aggregator)
    with pytest.raises(fs.errors.InputError, match="needs the classes 0 and 1 in y"):
        model.fit(fed)
    with pytest.raises(fs.errors.InputError, match="needs the classes 0 and 1 in y"):
        model.fit(X, y, sites=sites)


def test_the_score_of_classes_is_their_accuracy():
    X, y, sites, *_ = mixture(9, sizes=(10,) * 10, k=1, d=3)
    classes = (y > 0.0).astype(int)
    model = fs.FedMixedRegressor(1, loss="logistic", start="spectral", max_rounds=5, tol=0.0).fit(
        X, classes, sites=sites
    )
    assert model.score(X, classes) == np.mean((model.predict(X) > 0.5) == classes) > 0.8


def test_what_a_rule_combines_is_extrapolated_too():
    made = mixture(31, sizes=(12,) * 60, k=2, d=5, covariances=True)
    model = fs.FedMixedRegressor(2, start="spectral", aggregator=SpectralFilter(), random_state=0)
    fast, slow = (clone(model).set_params(**options).fit(federation(made)) for options in ({}, {"acceleration": 0}))
    assert fast.converged_
    assert fast.n_iter_ < 0.5 * slow.n_iter_
    assert bottleneck_distance(fast.coef_, slow.coef_) < 1e-3


def test_the_degree_of_polynomials():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 2))
    y = X[:, 0] ** 3 - X[:, 0] * X[:, 1] + 0.1 * rng.normal(size=300)
    model = fs.FedMixedRegressor(1, features="polynomial", degree=3, update="exact").fit(X, y, sites=np.arange(300) % 9)
    mapped = PolynomialFeatures(3, include_bias=False).fit_transform(X)
    np.testing.assert_allclose(model.coef_[0], LinearRegression().fit(mapped, y).coef_, atol=1e-8)


def test_small_clusters_take_more_anchors():
    made = mixture(4, sizes=(10,) * 90, k=2, d=3)
    anchors = {}
    for p_min in (None, 0.2):
        model = fs.FedMixedRegressor(2, p_min=p_min, max_rounds=5, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            model.fit(made[0], made[1], sites=made[2])
        anchors[p_min] = model.run_.metric("anchors")[0]
    assert anchors == {None: 16, 0.2: 39}  # log(2 / 0.001) over 1/2 and over 0.2


def test_anchors_that_miss_a_cluster_do_not_end_in_a_wrong_model():
    made = lopsided(0)
    model = fs.FedMixedRegressor(3, random_state=0).fit(made[0], made[1], sites=made[2])
    assert model.run_.metric("covered")[0] is False
    assert matched_share(model.labels_, made[3]) > 0.98


def test_a_cluster_of_few_small_sites_is_found_though_hardly_any_site_seems_to_miss_a_model():
    rng = np.random.default_rng(1)
    models = rng.standard_normal((3, 15)) / np.sqrt(15)
    labels = np.concatenate([rng.choice(3, 150, p=[0.4, 0.4, 0.2]), rng.choice(3, 60, p=[0.5, 0.5, 0.0])])
    sizes = [5] * 150 + [40] * 60
    tables = [rng.standard_normal((n, 15)) for n in sizes]
    y = np.concatenate([X @ models[j] + 0.2 * rng.standard_normal(len(X)) for X, j in zip(tables, labels, strict=True)])
    sites = np.repeat([f"{i:04d}" for i in range(210)], sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = fs.FedMixedRegressor(3, random_state=1).fit(np.vstack(tables), y, sites=sites)
    assert matched_share(model.labels_, labels) > 0.98
    assert max(model.noise_) < 0.3


def noisy_and_quiet(seed):
    """Two clusters of sites of four rows, with noise 0.05 and 1.5."""
    rng = np.random.default_rng(seed)
    labels = np.resize([0, 1], 80)
    X = rng.normal(size=(320, 2))
    rows = np.repeat(labels, 4)
    y = np.einsum("nd,nd->n", X, np.array([[1.0, 0.0], [-1.0, 1.0]])[rows])
    return X, y + np.array([0.05, 1.5])[rows] * rng.normal(size=320), np.repeat([f"{i:03d}" for i in range(80)], 4)


def test_models_are_those_of_the_sites_that_are_said_to_have_them():
    X, y, sites = noisy_and_quiet(0)
    model = fs.FedMixedRegressor(2, update="exact", start="spectral", random_state=0).fit(X, y, sites=sites)
    assert "refitted" in {name for metrics in model.run_.metrics for name in metrics.values}
    for j in range(2):
        rows = np.isin(sites, np.array(model.sites_)[model.labels_ == j])
        np.testing.assert_allclose(LinearRegression().fit(X[rows], y[rows]).coef_, model.coef_[j], atol=1e-8)


def test_a_cluster_that_may_be_missing_causes_a_warning():
    """The only start that is tried lies in one of three clusters, first without repairs, then with them."""
    made = mixture(3, sizes=(8,) * 60, k=3, d=4)
    fed = federation(made)
    options = fs.FedMixedRegressor(3, update="exact", max_rounds=1).get_params(deep=False) | {
        "acceleration": 0,
        "origin": None,
    }
    models = np.vstack([made[4][:1], made[4][1:].mean(axis=0), made[4][1:].mean(axis=0)])
    found = Refinement(models, np.ones(3), np.ones(3), 1.0, 1, True, {})
    silent = options | {"assignment": "soft"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster_repair.Fitting, "_with_spare_model", lambda *given: None)
        with pytest.warns(UserWarning, match="a cluster may be missing"):
            cluster_repair.Fitting(fed, silent).settled(found)
    who = cluster_repair.Fitting(fed, options).settled(found)[1]
    assert matched_share(who.labels, made[3]) > 0.95


def test_an_empty_cluster_of_classes_causes_a_warning():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(200, 2))
    y = (X[:, 0] + 0.3 * rng.normal(size=200) > 0).astype(float)
    warned = []
    for seed in range(4):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = fs.FedMixedRegressor(3, loss="logistic", start="random", max_rounds=60, random_state=seed)
            model.fit(X, y, sites=np.arange(200) % 6)
        empty = (model.cluster_rows_ < 0.5).any()
        warned.append(any("has no sites" in str(warning.message) for warning in caught))
        assert warned[-1] == empty
    assert any(warned)


def test_confidence_in_the_cluster_of_a_new_client_with_classes():
    rng = np.random.default_rng(6)
    slopes = np.array([[2.0, -1.0, 0.5], [-1.0, 2.0, 0.5]])
    labels = np.arange(60) % 2
    X = rng.normal(size=(60 * 30, 3))

    def draw(rows, which):
        return (rng.random(len(rows)) < 1 / (1 + np.exp(-np.einsum("nd,nd->n", rows, which)))).astype(float)

    y = draw(X, slopes[np.repeat(labels, 30)])
    model = fs.FedMixedRegressor(2, loss="logistic", start="spectral", random_state=0)
    model.fit(X, y, sites=np.repeat(np.arange(100, 160), 30))
    order = [int(np.argmin(np.linalg.norm(model.coef_ - slope, axis=1))) for slope in slopes]
    right, sure = [], []
    for _ in range(600):
        j, rows = int(rng.integers(2)), rng.normal(size=(4, 3))
        found = model.assign(rows, draw(rows, np.tile(slopes[j], (4, 1))))
        right.append(found.label == order[j])
        sure.append(found.confidence)
    assert np.mean(right) > 0.8
    assert np.mean(sure) == pytest.approx(np.mean(right), abs=0.05)
