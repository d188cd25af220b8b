"""FedMixedRegressor: least squares of one cluster, right labels of hidden clusters, and warnings elsewhere."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, SplineTransformer

import fedspan as fs
from fedspan.aggregation import GeometricMedian, SpectralFilter
from fedspan.attacks import ALittleIsEnough, RandomNoise, ScaledReverse
from fedspan.datasets import load_mice_protein
from fedspan.errors import DataMissingError, FedspanError, InputError
from fedspan.federation.outcomes import EndingKind
from fedspan.linalg import bottleneck_distance, matched_share

from .mixtures import federation, mixture


def fitted(made, k=None, **options):
    model = fs.FedMixedRegressor(k or len(made[4]), **{"random_state": 0, **options})
    return model.fit(made[0], made[1], sites=made[2])


def per_cluster(made, **options):
    """Return ordinary least squares of the true clusters: coefficients and intercepts."""
    rows = np.repeat(made[3], made[5])
    fits = [LinearRegression(**options).fit(made[0][rows == j], made[1][rows == j]) for j in range(len(made[4]))]
    return np.stack([fit.coef_ for fit in fits]), np.array([fit.intercept_ for fit in fits])


def sorted_like(model, coef):
    """Return the model's clusters in the order in which they are nearest to `coef`."""
    return [int(np.argmin(np.linalg.norm(model.coef_ - row, axis=1))) for row in coef]


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("scaling", ["whiten", "standardize", "none"])
def test_one_cluster_is_linear_regression(fit_intercept, scaling):
    X = np.random.default_rng(0).normal(size=(80, 4)) * [1.0, 10.0, 0.1, 1.0] + [0.0, 50.0, 3.0, 0.0]
    y = X @ [1.0, -0.2, 3.0, 0.5] + 7.0 + 0.1 * np.random.default_rng(1).normal(size=80)
    model = fs.FedMixedRegressor(1, update="exact", fit_intercept=fit_intercept, scaling=scaling)
    model.fit(X, y, sites=np.arange(80) % 9)
    plain = LinearRegression(fit_intercept=fit_intercept).fit(X, y)
    np.testing.assert_allclose(model.coef_[0], plain.coef_, rtol=1e-6)
    np.testing.assert_allclose(model.intercept_[0], plain.intercept_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(model.predict(X), plain.predict(X), rtol=1e-8)
    assert model.score(X, y) > 0.98


@pytest.mark.parametrize(
    ("start", "update"), [("moment_descent", "fedavg"), ("spectral", "exact"), ("random", "fedprox")]
)
def test_hidden_clusters_are_found(start, update):
    made = mixture(0, sizes=(10,) * 60, k=2, d=4)
    made = (made[0] * [1.0, 5.0, 1.0, 0.2] + 3.0, made[1] + np.repeat([2.0, -1.0], 300) * 0 + 10.0, *made[2:])
    coef, intercept = per_cluster(made)
    model = fitted(made, start=start, update=update, n_starts=5 if start == "random" else 1)
    order = sorted_like(model, coef)
    tolerance = 1e-6 if update == "exact" else 0.1 * np.abs(coef).max()
    np.testing.assert_allclose(model.coef_[order], coef, atol=tolerance)
    np.testing.assert_allclose(model.intercept_[order], intercept, atol=10 * tolerance)
    assert matched_share(model.labels_, made[3]) == 1.0
    np.testing.assert_allclose(model.noise_, 0.1, rtol=0.3)
    np.testing.assert_allclose(model.cluster_weights_, 0.5, atol=0.01)
    assert model.converged_
    assert model.n_iter_ <= 400
    assert model.run_.stopped.kind == EndingKind.CONVERGED


def test_clusters_that_differ_in_their_intercept_alone():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60 * 8, 3))
    labels = np.arange(60) % 3
    y = X @ [1.0, -1.0, 0.5] + np.array([-2.0, 0.0, 2.0])[np.repeat(labels, 8)] + 0.2 * rng.normal(size=len(X))
    model = fs.FedMixedRegressor(3, random_state=0).fit(X, y, sites=np.repeat(np.arange(100, 160), 8))
    assert matched_share(model.labels_, labels) == 1.0
    np.testing.assert_allclose(np.sort(model.intercept_), [-2.0, 0.0, 2.0], atol=0.15)


@pytest.mark.parametrize("start", ["moment_descent", "spectral"])
def test_five_clusters_with_covariances_of_their_own(start):
    made = mixture(2, sizes=(12,) * 150, k=5, d=8, covariances=True)
    model = fitted(made, start=start)
    expected = bottleneck_distance(per_cluster(made)[0], made[4])
    assert matched_share(model.labels_, made[3]) > 0.99
    assert bottleneck_distance(model.coef_, made[4]) < 1.5 * expected


def test_most_sites_have_two_rows_and_features_are_polynomials():
    rng = np.random.default_rng(3)
    sizes = np.r_[np.full(300, 2), np.full(20, 15)]
    labels = rng.integers(2, size=len(sizes))
    X = rng.normal(size=(sizes.sum(), 2)) + 0.5
    phi = PolynomialFeatures(2, include_bias=False).fit_transform(X)
    truth = np.array([[1.0, 0.0, 0.5, 0.0, -0.5], [-1.0, 0.5, 0.0, 0.5, 0.3]])
    row = np.repeat(labels, sizes)
    y = np.einsum("nd,nd->n", phi, truth[row]) + np.array([1.0, -1.0])[row] + 0.2 * rng.normal(size=len(X))
    sites = np.repeat([f"{i:04d}" for i in range(len(sizes))], sizes)
    ols = [LinearRegression().fit(phi[row == j], y[row == j]).coef_ for j in range(2)]
    expected = bottleneck_distance(ols, truth)
    for options in ({}, {"start": "spectral", "assignment": "soft"}):
        model = fs.FedMixedRegressor(2, features="polynomial", random_state=0, **options).fit(X, y, sites=sites)
        assert model.coef_.shape == (2, 5)
        assert bottleneck_distance(model.coef_, truth) < max(2.0 * expected, 0.05)
        assert matched_share(model.labels_, labels) > 0.93
        assert model.converged_


def test_units_of_the_features_make_no_difference():
    made = mixture(4, sizes=(8,) * 40, k=2, d=4)
    one = fitted(made, update="exact", start="spectral")
    moved = (made[0] * [1e3, 1e-3, 1.0, 7.0] + [5.0, 0.0, -2.0, 1e3], *made[1:])
    two = fitted(moved, update="exact", start="spectral")
    np.testing.assert_allclose(two.predict(moved[0]), one.predict(made[0]), atol=1e-6)
    assert matched_share(two.labels_, one.labels_) == 1.0


def test_features_by_name_travel_and_are_saved(tmp_path):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(300, 3))
    y = X[:, 0] * X[:, 1] - X[:, 2] + 0.05 * rng.normal(size=300)
    sites = np.arange(300) % 20
    for name in ("polynomial", "interactions"):
        fed = fs.federate(X, y, sites=sites, wire=True)
        model = fs.FedMixedRegressor(1, features=name, update="exact").fit(fed)
        mapped = PolynomialFeatures(2, interaction_only=name == "interactions", include_bias=False).fit_transform(X)
        np.testing.assert_allclose(model.coef_[0], LinearRegression().fit(mapped, y).coef_, atol=1e-8)
        model.save(tmp_path / name)
        np.testing.assert_array_equal(fs.load(tmp_path / name).predict(X), model.predict(X))


def test_a_fitted_transformer_works_here_and_is_not_saved(tmp_path):
    rng = np.random.default_rng(6)
    X = rng.uniform(-1, 1, size=(400, 1))
    y = np.sin(4 * X[:, 0]) + 0.05 * rng.normal(size=400)
    sites = np.arange(400) % 10
    splines = SplineTransformer(n_knots=6, include_bias=False).fit(np.linspace(-1, 1, 50)[:, None])
    for given in (splines, FrozenEstimator(splines)):
        model = fs.FedMixedRegressor(1, features=given, update="exact").fit(X, y, sites=sites)
        assert model.score(X, y) > 0.98
    other = SplineTransformer(n_knots=6, include_bias=False).fit(np.linspace(-3, 3, 50)[:, None])
    fed = fs.federate(X, y, sites=sites)
    scores = [
        fs.FedMixedRegressor(1, features=given, update="exact").fit(fed).score(X, y) for given in (splines, other)
    ]
    assert scores[0] != scores[1]  # two transformers that print alike are two
    with pytest.raises(InputError, match="which a model file cannot keep"):
        model.save(tmp_path / "model")
    with pytest.raises(InputError, match="is not fitted"):
        fs.FedMixedRegressor(1, features=SplineTransformer()).fit(X, y)
    with pytest.raises(InputError, match="must be a name or a fitted transformer"):
        fs.FedMixedRegressor(1, features=3).fit(X, y)
    with pytest.raises(InputError, match="features='cubic' must be one of"):
        fs.FedMixedRegressor(1, features="cubic").fit(X, y)


def test_predictions_by_site_by_cluster_and_without():
    made = mixture(7, sizes=(10,) * 30, k=2, d=3)
    model = fitted(made, start="spectral")
    X = made[0][:6]
    each = X @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(model.predict(X), each @ model.cluster_weights_)
    label = model.labels_[3]
    np.testing.assert_allclose(model.predict(X, site="0003"), each[:, label])
    np.testing.assert_allclose(model.predict(X, cluster=int(label)), each[:, label])
    np.testing.assert_allclose(model.predict(X, cluster=np.array([0.25, 0.75])), each @ [0.25, 0.75])
    names = np.array(["0003", "0004", "0003", "0005", "0004", "0003"])
    expected = each[np.arange(6), [model.labels_[int(name)] for name in names]]
    np.testing.assert_allclose(model.predict(X, site=names), expected)
    soft = fitted(made, start="spectral", assignment="soft")
    np.testing.assert_allclose(
        soft.predict(X, site="0003"), (X @ soft.coef_.T + soft.intercept_) @ soft.proba_[3], atol=1e-12
    )
    for bad, words in (
        ({"site": "elsewhere"}, "was not in the fit"),
        ({"site": names[:2]}, r"shape \(2,\)"),
        ({"cluster": 2}, "from 0 to 1"),
        ({"cluster": np.array([0.5, 0.6])}, "probability of each"),
        ({"cluster": 0, "site": "0003"}, "not both"),
    ):
        with pytest.raises(InputError, match=words):
            model.predict(X, **bad)


def test_new_clients_are_assigned_as_surely_as_they_should_be():
    made = mixture(8, sizes=(10,) * 80, k=3, d=5, noise=0.4)
    model = fitted(made, start="spectral", update="exact")
    rng = np.random.default_rng(0)
    order = sorted_like(model, made[4])
    for rows in (1, 2, 4):
        right, sure = [], []
        for _ in range(600):
            j = int(rng.integers(3))
            X = rng.normal(size=(rows, 5))
            found = model.assign(X, X @ made[4][j] + 0.4 * rng.normal(size=rows))
            right.append(found.label == order[j])
            sure.append(found.confidence)
            assert found.proba[found.label] == found.confidence
        assert np.mean(sure) == pytest.approx(np.mean(right), abs=0.04)
    with pytest.raises(ValueError, match="inconsistent numbers"):
        model.assign(X, [1.0])


def test_many_rows_of_a_new_client_are_no_trouble():
    made = mixture(9, sizes=(10,) * 40, k=2, d=3)
    model = fitted(made, start="spectral")
    X = np.random.default_rng(0).normal(size=(500, 3))
    found = model.assign(X, X @ made[4][0])
    assert found.label == sorted_like(model, made[4])[0]
    assert found.confidence > 0.999


@pytest.mark.parametrize("k", [1, 3])
def test_the_number_of_clusters_is_found(k):
    made = mixture(10 + k, sizes=(8,) * 80, k=k, d=5)
    model = fitted(made, "auto", start="spectral", update="exact")
    assert model.n_clusters_ == k
    assert matched_share(model.labels_, made[3]) == 1.0


def test_more_clusters_than_directions_are_found_by_splitting():
    made = mixture(14, sizes=(15,) * 60, k=4, d=2, apart=2.0)
    assert fitted(made, "auto", start="spectral", update="exact").n_clusters_ == 4
    assert fitted(made, "auto", start="spectral", update="exact", max_clusters=2).n_clusters_ == 2


def test_a_random_start_that_leaves_a_cluster_out_is_repaired():
    """Of random starts that end with two clusters in one model most are repaired, and all others cause a warning."""
    made = mixture(15, sizes=(12,) * 40, k=4, d=8)
    repaired = 0
    for seed in range(8):
        fed = federation(made, seed=seed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = fs.FedMixedRegressor(4, start="random", update="exact").fit(fed)
        repaired += bool(model.run_.metric("repaired"))
        assert caught or matched_share(model.labels_, made[3]) > 0.95
    assert repaired >= 2


@pytest.mark.parametrize("options", [{}, {"start": "spectral", "update": "exact"}, {"assignment": "soft"}])
def test_the_mean_of_the_targets_does_not_change_the_slopes(options):
    made = mixture(41, sizes=(15,) * 30, k=2, d=4)
    model = fitted(made, 2, **options)
    for shift, digits in ((1e5, 1e-7), (1e8, 1e-5)):
        other = fs.FedMixedRegressor(2, random_state=0, **options).fit(made[0], made[1] + shift, sites=made[2])
        np.testing.assert_allclose(other.coef_, model.coef_, atol=digits)
        np.testing.assert_allclose(other.intercept_ - shift, model.intercept_, atol=digits)


def test_new_rows_that_cannot_be_assigned_are_refused():
    made = mixture(43, sizes=(15,) * 20, k=2, d=4)
    model = fitted(made, 2, start="spectral", update="exact")
    X, y = made[0][:3], made[1][:3]
    for rows, targets in ((X[:0], y[:0]), (X * np.nan, y), (X, y * np.nan), (X, y[:2]), (X * 1e200, y), (X, y * 1e200)):
        with pytest.raises(FedspanError, match="X_new"):
            model.assign(rows, targets)
    assert np.isfinite(model.assign(X * 1e90, y * 1e90).proba).all()


def test_targets_whose_squares_vanish_are_refused():
    made = mixture(43, sizes=(15,) * 20, k=2, d=4)
    with pytest.raises(InputError, match="their squares vanish"):
        fs.FedMixedRegressor(2).fit(made[0], 1e-200 * made[1], sites=made[2])


def test_a_site_without_a_reply_in_the_end_causes_a_warning_and_has_no_cluster():
    made = mixture(44, sizes=(15,) * 20, k=2, d=4)

    def silent(replies, bad, rng, call):
        return {site: {"losses": "none"} for site in bad} if call.step == "mixed_regression.losses" else {}

    fed = federation(made).corrupt(silent, sites=["0003"])
    with pytest.warns(UserWarning, match="'0003' gave no valid reply in the end"):
        model = fs.FedMixedRegressor(2, start="spectral", update="exact", random_state=0).fit(fed)
    assert model.labels_[3] == -1
    with pytest.raises(InputError, match="site='0003' gave no valid reply in the end"):
        model.predict(made[0][:2], site="0003")


def test_the_default_start_of_classes_is_the_spectral_one():
    made = mixture(45, sizes=(30,) * 20, k=2, d=3)
    y = (made[1] > 0.0).astype(float)
    one, other = (
        fs.FedMixedRegressor(2, loss="logistic", random_state=0, max_rounds=20, tol=0.0, **options).fit(
            made[0], y, sites=made[2]
        )
        for options in ({}, {"start": "spectral"})
    )
    np.testing.assert_array_equal(one.coef_, other.coef_)


def test_steps_that_are_too_long_diverge():
    made = mixture(42, sizes=(15,) * 30, k=2, d=4)
    with pytest.raises(InputError, match="the models diverged"):
        fitted(made, 2, start="spectral", local_steps=1, step_size=3.0)


def test_too_many_clusters_cause_a_warning():
    made = mixture(16, sizes=(10,) * 40, k=1, d=3)
    with pytest.warns(UserWarning, match=r"the same model as another one|has no sites"):
        fitted(made, 2, start="spectral", update="exact")


def test_classes():
    rng = np.random.default_rng(17)
    labels = np.arange(40) % 2
    X = rng.normal(size=(40 * 40, 3)) * [1.0, 3.0, 1.0] + 1.0
    row = np.repeat(labels, 40)
    slopes = np.array([[2.0, 0.5, -2.0], [-2.0, 0.5, 2.0]])
    logits = np.einsum("nd,nd->n", X, slopes[row]) - 0.5
    y = (rng.random(len(X)) < 1 / (1 + np.exp(-logits))).astype(int)
    sites = np.repeat(np.arange(100, 140), 40)
    for start, starts in (("spectral", 1), ("random", 5)):
        model = fs.FedMixedRegressor(2, loss="logistic", start=start, n_starts=starts, random_state=0)
        model.fit(X, y, sites=sites)
        assert matched_share(model.labels_, labels) > 0.95
        order = sorted_like(model, slopes)
        np.testing.assert_allclose(model.coef_[order], slopes, atol=0.8)
        p = model.predict(X, site=sites)
        assert ((p >= 0) & (p <= 1)).all()
        assert ((p > 0.5) == y).mean() > 0.85
        new = rng.normal(size=(30, 3)) * [1.0, 3.0, 1.0] + 1.0
        truth = (new @ slopes[0] - 0.5 > 0).astype(int)
        assert model.assign(new, truth).label == order[0]
    with pytest.raises(InputError, match="classes 0 and 1"):
        model.assign(new, truth + 1)


# Malicious sites, faults, resumes.


@pytest.mark.parametrize("attack", [RandomNoise(10.0), ScaledReverse(10.0), ALittleIsEnough(1.5)], ids=repr)
def test_a_fifth_of_the_sites_is_malicious(attack):
    made = mixture(18, sizes=(10,) * 100, k=2, d=10)
    bad = [f"{i:04d}" for i in range(20)]
    fed = federation(made).corrupt(attack, sites=bad)
    model = fs.FedMixedRegressor(
        2, start="spectral", aggregator=SpectralFilter(), max_rounds=60, tol=1e-3, random_state=0
    ).fit(fed)
    good = np.arange(20, 100)
    assert matched_share(model.labels_[good], made[3][good]) > 0.98
    honest = fs.FedMixedRegressor(2, start="spectral", random_state=0).fit(
        federation((made[0][200:], made[1][200:], made[2][200:]))
    )
    assert bottleneck_distance(model.coef_, made[4]) < 2.0 * bottleneck_distance(honest.coef_, made[4])
    assert set(model.sites_trusted_).isdisjoint(bad)
    assert model.site_weights_.sum() == pytest.approx(1.0)


def test_faults_cost_little():
    made = mixture(19, sizes=(10,) * 60, k=2, d=4)
    fed = federation(made).with_faults(fs.FaultPlan(seed=1, drop=0.05, error=0.05, nonfinite=0.05, stale=0.05))
    for start in ("moment_descent", "spectral"):
        model = fs.FedMixedRegressor(2, start=start, max_rounds=40, random_state=0).fit(fed)
        known = model.labels_ >= 0
        assert known.mean() > 0.9
        assert matched_share(model.labels_[known], made[3][known]) == 1.0
        assert model.run_.failures


@pytest.mark.parametrize("start", ["moment_descent", "spectral", "random"])
def test_a_killed_fit_goes_on_to_the_same_bytes(tmp_path, start):
    made = mixture(20, sizes=(6,) * 20, k=2, d=3)
    options = {"start": start, "max_rounds": 6, "random_state": 0}

    def fit(folder):
        fed = federation(made, run_dir=folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return fs.FedMixedRegressor(2, **options).fit(fed)

    whole = fit(tmp_path / "whole")
    journal = (tmp_path / "whole" / "run-000" / "journal").read_bytes()
    for part in (0.3, 0.6, 0.9):
        folder = tmp_path / str(part) / "run-000"
        folder.mkdir(parents=True)
        (folder / "journal").write_bytes(journal[: int(part * len(journal))])
        again = fit(tmp_path / str(part))
        for name in ("coef_", "intercept_", "proba_", "labels_", "noise_"):
            np.testing.assert_array_equal(getattr(again, name), getattr(whole, name))
        assert any(call.replayed for call in again.run_.calls)


def test_a_pipeline_of_federations():
    made = mixture(25, sizes=(10,) * 40, k=2, d=3)
    fed = fs.federate(made[0] * 100.0 + 5.0, made[1], sites=made[2])
    model = make_pipeline(fs.FedStandardScaler(), fs.FedMixedRegressor(2, start="spectral")).fit(fed)
    assert matched_share(model[-1].labels_, made[3]) == 1.0
    np.testing.assert_allclose(
        model.predict(made[0] * 100.0 + 5.0), fitted(made, start="spectral").predict(made[0]), atol=1e-2
    )


def test_sites_without_rows_or_with_one_are_no_trouble():
    made = mixture(26, sizes=(10,) * 30 + (1,) * 10, k=2, d=3)
    sites = [fs.Site(name, made[0][made[2] == name], made[1][made[2] == name]) for name in np.unique(made[2])]
    sites.append(fs.Site("empty", np.zeros((0, 3)), np.zeros(0)))
    for options in ({}, {"start": "spectral", "update": "exact"}, {"aggregator": GeometricMedian(), "max_rounds": 30}):
        model = fs.FedMixedRegressor(2, random_state=0, **options).fit(fs.LocalFederation(sites))
        assert matched_share(model.labels_[:30], made[3][:30]) == 1.0


@pytest.mark.parametrize("scale", [1e150, 1e300])
def test_absurd_numbers_are_refused_or_filtered(scale):
    made = mixture(27, sizes=(10,) * 60, k=2, d=6)
    fed = federation(made).corrupt(RandomNoise(scale), sites=[f"{i:04d}" for i in range(6)])
    options = {"start": "spectral", "max_rounds": 40, "tol": 1e-3, "random_state": 0}
    model = fs.FedMixedRegressor(2, aggregator=SpectralFilter(), **options).fit(fed)
    assert matched_share(model.labels_[6:], made[3][6:]) == 1.0
    with pytest.raises((InputError, fs.errors.QuorumError)):
        fs.FedMixedRegressor(2, **options).fit(fed)


def test_parameters_are_saved_and_anchors_can_be_perturbed(tmp_path):
    made = mixture(21, sizes=(12,) * 40, k=2, d=3)
    model = fitted(made, aggregator=GeometricMedian(), max_rounds=20, p_min=0.4)
    model.save(tmp_path / "model")
    loaded = fs.load(tmp_path / "model")
    assert loaded.aggregator == GeometricMedian()
    np.testing.assert_array_equal(loaded.predict(made[0], site=made[2]), model.predict(made[0], site=made[2]))
    assert (
        loaded.assign(made[0][:3], made[1][:3]).proba.tolist() == model.assign(made[0][:3], made[1][:3]).proba.tolist()
    )
    hidden = fitted(made, perturbation=0.3)
    assert any(call.step == "mixed_regression.receive" for call in hidden.run_.calls)
    assert matched_share(hidden.labels_, made[3]) == 1.0


def test_targets_that_are_missing_or_not_finite_are_refused():
    made = mixture(23, sizes=(4,) * 10)
    with pytest.raises(ValueError, match="requires y to be passed"):
        fs.FedMixedRegressor(1).fit(made[0], sites=made[2])
    y = made[1].copy()
    y[5] = np.inf
    with pytest.raises(ValueError, match="Input y contains infinity"):
        fs.FedMixedRegressor(1).fit(made[0], y, sites=made[2])
    with pytest.raises(InputError, match=r"y contains NaN or infinity: site '0001' \(1 values\)"):
        fs.FedMixedRegressor(1).fit(fs.federate(made[0], y, sites=made[2]))
    with pytest.raises(fs.errors.QuorumError, match="has no y") as caught:
        fs.FedMixedRegressor(1).fit(fs.federate(made[0], sites=made[2]))
    assert str(caught.value).count("has no y") == 1  # one reason of many sites is stated once


def test_steps_and_weights_of_the_paper():
    """The paper's own settings: raw features, n_i / N, a fixed step, no extrapolation."""
    made = mixture(24, sizes=(12,) * 40, k=2, d=4)
    options = {"scaling": "none", "fit_intercept": False, "start": "spectral", "acceleration": 0}
    paper = fitted(made, weights="total", step_size=0.1, local_steps=2, max_rounds=200, tol=0.0, **options)
    assert paper.n_iter_ == 200
    assert not paper.converged_
    assert matched_share(paper.labels_, made[3]) == 1.0
    quick = fitted(made, **{**options, "acceleration": 5})
    slow = fitted(made, **options)
    assert quick.n_iter_ < slow.n_iter_
    np.testing.assert_array_equal(paper.intercept_, 0.0)


def test_mice_fall_into_the_groups_that_learned_and_that_did_not():
    """Levels of SOD1 given eight other proteins: two clusters of mice, found without labels."""
    try:
        mice = load_mice_protein(missing="mean")
    except DataMissingError as error:
        pytest.skip(str(error))
    names = mice.feature_names.tolist()
    chosen = ("ITSN1_N", "BDNF_N", "pAKT_N", "BRAF_N", "CREB_N", "MEK_N", "TIAM1_N", "P70S6_N")
    X = np.log(mice.data[:, [names.index(name) for name in chosen]])
    y = np.log(mice.data[:, names.index("SOD1_N")])
    model = fs.FedMixedRegressor(2, start="spectral", update="exact", random_state=0).fit(X, y, sites=mice.mouse_id)
    behaviour = [mice.behavior[mice.mouse_id == name][0] for name in model.sites_]
    assert matched_share(model.labels_, behaviour) > 0.85
    one = fs.FedMixedRegressor(1, update="exact").fit(X, y, sites=mice.mouse_id)
    assert one.score(X, y) < 0.6
    by_site = model.predict(X, site=mice.mouse_id)
    assert 1 - np.sum((y - by_site) ** 2) / np.sum((y - y.mean()) ** 2) > 0.8
