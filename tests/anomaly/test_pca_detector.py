"""FedPCADetector: scores and threshold of the pooled rows, computed here by other means."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fedspan as fs
from fedspan import attacks
from fedspan.aggregation import CoordinateMedian, TrimmedMean
from fedspan.anomaly import pca_detector
from fedspan.errors import InputError
from fedspan.pca.solvers import SOLVERS
from fedspan.sums.row_moments import packed, unpacked

from .unlike_units import DISTANCES, anomalies, labels, rows


def pooled_scores(train, X, distance, k, ridge):
    """Return anomaly scores from scikit-learn's scaler and PCA, and explicit inverses."""
    scaler = StandardScaler().fit(train)
    Z, T = scaler.transform(train), scaler.transform(X)
    U = PCA(k, svd_solver="full").fit(Z).components_
    R = T - T @ U.T @ U
    if distance == "residual":
        return np.sum(R**2, axis=1)
    C = np.cov(Z, rowvar=False)
    r = ridge * np.trace(C) / len(C)
    if distance == "mahalanobis":
        return np.einsum("ij,jk,ik->i", T, np.linalg.inv(C + r * np.eye(len(C))), T)
    P = np.eye(len(C)) - U.T @ U
    # Within the complement the inverse is that of the projected covariance plus the ridge.
    return np.einsum("ij,jk,ik->i", R, np.linalg.pinv(P @ C @ P + r * P, rcond=1e-9, hermitian=True), R)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("k", [1, 3, 6])
@pytest.mark.parametrize("ridge", [1e-4, 0.1])
def test_equal_to_the_pooled_computation(distance, k, ridge):
    train, test = rows(), rows(seed=5)
    detector = fs.FedPCADetector(k, distance=distance, ridge=ridge, quantile=0.9, left_out=False).fit(
        train, sites=labels()
    )
    expected = pooled_scores(train, test, distance, k, ridge)
    np.testing.assert_allclose(-detector.score_samples(test), expected, rtol=1e-7)
    threshold = np.quantile(pooled_scores(train, train, distance, k, ridge), 0.9, method="inverted_cdf")
    assert -detector.offset_ == pytest.approx(threshold, rel=1e-7)
    np.testing.assert_array_equal(detector.predict(test), np.where(expected > threshold, -1, 1))


@settings(max_examples=15)
@given(st.integers(0, 2**31), st.integers(1, 12), st.sampled_from(DISTANCES))
def test_the_split_does_not_matter(seed, sites, distance):
    X = rows(80)
    split = np.random.default_rng(seed).integers(0, sites, len(X))
    one = fs.FedPCADetector(3, distance=distance).fit(X)
    many = fs.FedPCADetector(3, distance=distance).fit(X, sites=split)
    np.testing.assert_allclose(many.score_samples(X), one.score_samples(X), rtol=1e-6)
    np.testing.assert_allclose(many.offset_, one.offset_, rtol=1e-6)


def test_by_hand():
    X = np.array([[3.0, 0.0, 0.0], [-3.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, -1.0, 0.0]])
    x = [5.0, 2.0, 1.0]
    residual = fs.FedPCADetector(1, scale=False, distance="residual", quantile=0.5).fit(X)
    np.testing.assert_allclose(residual.score_samples([x]), [-5.0])
    np.testing.assert_allclose(residual.explain(x), [0.0, 0.8, 0.2], atol=1e-12)
    assert residual.top_features(x, 2) == [("feature 1", pytest.approx(0.8)), ("feature 2", pytest.approx(0.2))]
    # The variances are 6, 2/3 and 0, their mean 20/9; the ridge is a tenth of that.
    spread = np.array([6.0, 2.0 / 3.0, 0.0]) + 2.0 / 9.0
    parts = np.array([25.0, 4.0, 1.0]) / spread
    mahalanobis = fs.FedPCADetector(1, scale=False, distance="mahalanobis", ridge=0.1).fit(X)
    np.testing.assert_allclose(mahalanobis.score_samples([x]), [-parts.sum()])
    np.testing.assert_allclose(mahalanobis.explain(x), parts / parts.sum(), atol=1e-12)
    combined = fs.FedPCADetector(1, scale=False, distance="combined", ridge=0.1).fit(X)
    np.testing.assert_allclose(combined.score_samples([x]), [-parts[1:].sum()])


@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_serves(solver):
    """By the score of both parts, along the axes and beside them."""
    exact = fs.FedPCADetector(3, distance="combined", solver="covariance").fit(rows(), sites=labels())
    options = {"tol": 1e-7} if solver.startswith("fed") else None
    detector = fs.FedPCADetector(3, distance="combined", solver=solver, random_state=0, solver_options=options)
    detector.fit(rows(), sites=labels())
    resilient = solver in ("subspace_median", "median_of_means", "resilient_power", "resilient_covariance", "stack")
    one, other = exact.score_samples(rows(seed=5)), detector.score_samples(rows(seed=5))
    if not resilient:
        np.testing.assert_allclose(other, one, rtol=1e-4)
    assert np.corrcoef(np.log(-one), np.log(-other))[0, 1] > (0.9 if resilient else 0.999999)
    assert 0.03 < np.mean(detector.predict(rows(2000, seed=8)) == -1) < 0.08


def test_one_gram_message_serves_for_subspace_and_covariance():
    def steps(**options):
        run = fs.FedPCADetector(3, distance="mahalanobis", **options).fit(rows(), sites=labels()).run_
        return [call.step for call in run.calls]

    assert steps()[:2] == ["sums.moments", "sums.counts_between"]
    assert steps(solver="subspace_iteration").count("pca.gram") == 1
    assert steps(solver="subspace_median").count("pca.mean_gram") == 1
    assert steps(solver="subspace_median").count("pca.gram") == 0


def test_center_and_scale_are_options():
    X = rows()
    plain = fs.FedPCADetector(3, distance="residual", center=False, scale=False).fit(X, sites=labels())
    U = np.linalg.svd(X, full_matrices=False)[2][:3]
    np.testing.assert_allclose(-plain.score_samples(X), np.sum((X - X @ U.T @ U) ** 2, axis=1), rtol=1e-5)
    z = StandardScaler().fit_transform(X)
    np.testing.assert_allclose(
        fs.FedPCADetector(3).fit(z, sites=labels()).score_samples(z),
        fs.FedPCADetector(3).fit(X, sites=labels()).score_samples(X),
        rtol=1e-8,
    )


@pytest.mark.parametrize("distance", DISTANCES)
def test_wide_tables_do_without_a_covariance(distance, monkeypatch):
    monkeypatch.setattr(pca_detector, "WIDEST", 7)
    detector = fs.FedPCADetector(3, distance=distance, solver="subspace_iteration", ridge=0.01, random_state=0)
    X = rows()
    detector.fit(X, sites=labels())
    assert detector.whitening_ is None
    Z = StandardScaler().fit_transform(X)
    pca = PCA(3, svd_solver="full").fit(Z)
    T = pca.transform(Z)
    outside = np.sum((Z - T @ pca.components_) ** 2, axis=1)
    r = 0.01 * np.cov(Z, rowvar=False).trace() / 8
    expected = {
        "residual": outside,
        "combined": outside / (pca.noise_variance_ + r),
        "mahalanobis": outside / (pca.noise_variance_ + r) + T**2 @ (1 / (pca.explained_variance_ + r)),
    }[distance]
    np.testing.assert_allclose(-detector.score_samples(X), expected, rtol=1e-5)
    np.testing.assert_allclose([detector.score_one(x) for x in X], detector.score_samples(X), rtol=1e-10)
    np.testing.assert_allclose(detector.explain(X).sum(axis=1), 1.0)
    # A share is a part of the squared length of the symmetric root of the model's precision times z.
    weights = np.zeros(8)
    weights[:3] = 0.0 if distance != "mahalanobis" else 1 / (pca.explained_variance_ + r)
    weights[3:] = 1.0 if distance == "residual" else 1 / (pca.noise_variance_ + r)
    whole = np.vstack([pca.components_, np.linalg.svd(pca.components_)[2][3:]])
    parts = (Z @ (whole.T * np.sqrt(weights)) @ whole) ** 2
    np.testing.assert_allclose(detector.explain(X), parts / parts.sum(axis=1, keepdims=True), atol=1e-4)


def test_a_covariance_too_large_for_a_message_is_not_formed():
    X = np.random.default_rng(0).normal(size=(300, 60)) * np.linspace(5, 1, 60)
    for most, whitens in ((33_000, True), (32_000, False)):
        fed = fs.federate(X, sites=np.arange(300) % 3, policy=fs.Policy(max_bytes=most))
        detector = fs.FedPCADetector(2, distance="mahalanobis", scale=False, random_state=0).fit(fed)
        assert (detector.whitening_ is not None) == whitens


def test_a_subspace_that_leaves_nothing_out_is_refused():
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(100, 3)) @ rng.normal(size=(3, 6))
    for distance in ("residual", "combined"):
        with pytest.raises(InputError, match="n_components=3 must be below the rank of the data"):
            fs.FedPCADetector(3, distance=distance).fit(flat, sites=np.arange(100) % 4)
        with pytest.raises(InputError, match="below the rank"):
            fs.FedPCADetector(6, distance=distance).fit(rng.normal(size=(100, 6)))
        fs.FedPCADetector(2, distance=distance).fit(flat)
    with pytest.raises(InputError, match="below the rank"):
        fs.FedPCADetector(3, solver="subspace_median", distance="residual", center=False).fit(
            flat, sites=np.arange(100) % 4
        )
    assert fs.FedPCADetector(3, distance="mahalanobis").fit(flat).predict([[9.0, 0, 0, 0, 0, 0]])[0] == -1
    with pytest.raises(InputError, match="rows are all the same"):
        fs.FedPCADetector(1, distance="mahalanobis").fit(np.ones((9, 3)))


def test_the_dimension_may_be_a_share_or_left_open():
    shared = fs.FedPCADetector(0.8, distance="combined").fit(rows(), sites=labels())
    assert shared.n_components_ == len(shared.components_) == fs.FedPCA(0.8, scale=True).fit(rows()).n_components_
    assert fs.FedPCADetector().fit(rows()).n_components_ == 4
    auto = fs.FedPCADetector("auto", solver="subspace_median", solver_options={"max_components": 4})
    assert 1 <= auto.fit(rows(), sites=labels()).n_components_ <= 4


def test_solver_options_reach_the_solver():
    options = {"iterations": 3}
    detector = fs.FedPCADetector(3, solver="power", solver_options=options).fit(rows(), sites=labels())
    more = fs.FedPCADetector(3, solver="power", solver_options={"iterations": 5}).fit(rows(), sites=labels())
    assert len(more.run_.calls) == len(detector.run_.calls) + 2
    assert options == {"iterations": 3}
    assert fs.FedPCADetector(3, solver_options=options).get_params()["solver_options"] is options


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"distance": "euclid"}, "distance='euclid' must be one of 'residual', 'mahalanobis', 'combined'"),
        ({"ridge": 0}, "ridge=0 must be"),
        ({"ridge": np.inf}, "ridge=inf must be"),
        ({"ridge": "small"}, "ridge='small' must be"),
        ({"quantile": 2}, "quantile=2 must be"),
        ({"solver": "magic"}, "solver='magic' must be one of"),
        ({"solver_options": {"speed": 1}}, "solver_options has 'speed', and may have groups, iterations"),
        ({"solver_options": {"scale": False}}, "solver_options has 'scale'"),
        ({"solver_options": 3}, "solver_options=3 must be a dict"),
        ({"solver_options": {"tol": -1}}, "tol=-1 must be"),
        ({"aggregator": "median"}, "aggregator='median' must be"),
        ({"n_components": 9}, "n_components=9 must be a whole number between 1 and"),
        ({"n_components": 0}, "n_components=0 must be a whole number between 1 and"),
        ({"n_components": 1.5}, "n_components=1.5 must be"),
    ],
    ids=str,
)
def test_parameters_out_of_range_are_refused(parameters, words):
    with pytest.raises(InputError, match=words):
        fs.FedPCADetector(**parameters).fit(rows(), sites=labels())


def test_in_a_pipeline():
    fed = fs.federate(rows(), sites=labels())
    pipeline = make_pipeline(fs.FedStandardScaler(), fs.FedPCADetector(3)).fit(fed)
    alone = fs.FedPCADetector(3).fit(fed)
    np.testing.assert_array_equal(pipeline.predict(anomalies()), alone.predict(anomalies()))


def spread(X, n_sites=40):
    return fs.federate(X, sites=np.arange(len(X)) % n_sites)


ATTACKS = [attacks.SignFlip(), attacks.RandomNoise(100.0), attacks.ScaledReverse(100.0), attacks.Ones()]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: type(attack).__name__)
@pytest.mark.parametrize(
    "options",
    [
        {"solver": "subspace_median"},
        {"solver": "covariance", "aggregator": CoordinateMedian()},
        {"solver": "covariance", "aggregator": TrimmedMean(12)},
    ],
    ids=str,
)
def test_malicious_sites_move_neither_detection_nor_threshold_much(attack, options):
    X = rows(8000)
    fed = spread(X).corrupt(attack, sites=[str(i) for i in range(0, 40, 4)])  # a quarter
    detector = fs.FedPCADetector(3, distance="residual", **options).fit(fed)
    test = np.vstack([rows(4000, seed=21), anomalies(4000)])
    truth = np.repeat([0, 1], 4000)
    clean = fs.FedPCADetector(3, distance="residual").fit(spread(X))
    lost = roc_auc_score(truth, -clean.score_samples(test)) - roc_auc_score(truth, -detector.score_samples(test))
    assert lost < 0.02
    assert abs(np.mean(detector.predict(test[:4000]) == -1) - 0.05) < 0.02


def test_malicious_sites_spoil_sums():
    """Without an aggregator two malicious sites spoil the detector, or the fit."""

    def minor_axes_first(replies, bad, rng, call):
        if call.step != "sums.moments":
            return {}
        made = {}
        for site in bad:
            S = unpacked(replies[site]["scatter"])
            units = np.sqrt(np.outer(np.diag(S), np.diag(S)))
            made[site] = {**replies[site], "scatter": packed(1e8 * units * np.linalg.inv(S / units))}
        return made

    test = np.vstack([rows(4000, seed=21), anomalies(4000)])
    fed = spread(rows(8000))
    detector = fs.FedPCADetector(3).fit(fed.corrupt(minor_axes_first, sites=["0", "4"]))
    assert roc_auc_score(np.repeat([0, 1], 4000), -detector.score_samples(test)) < 0.9
    with pytest.raises(InputError, match="a site sends false values"):
        fs.FedPCADetector(3).fit(fed.corrupt(attacks.ScaledReverse(100.0, keys=["scatter"]), sites=["0", "4"]))


@pytest.mark.parametrize("distance", DISTANCES)
def test_sites_that_leave_in_mid_run(distance):
    def leave(replies, bad, rng, call):
        return dict.fromkeys(bad) if call.number >= 7 else {}

    X = rows(8000)
    gone = [str(i) for i in range(30, 40)]
    detector = fs.FedPCADetector(3, distance=distance).fit(spread(X).corrupt(leave, sites=gone))
    stays = X[np.arange(len(X)) % 40 < 30]
    # The model is that of all rows, the threshold exactly the quantile of the sites that stayed.
    scores = -detector.score_samples(stays)
    assert -detector.offset_ == pytest.approx(np.quantile(scores, 0.95, method="inverted_cdf"), rel=1e-8)


def test_sites_that_come_and_go():
    fed = spread(rows(8000)).with_faults(fs.FaultPlan(seed=1, drop=0.15, nonfinite=0.03, shape=0.02))
    for options in ({}, {"solver": "subspace_median"}, {"distance": "combined"}):
        detector = fs.FedPCADetector(3, **options).fit(fed)
        assert abs(np.mean(detector.predict(rows(4000, seed=21)) == -1) - 0.05) < 0.015
        assert detector.run_.failures


def test_the_false_positive_rate_follows_the_quantile():
    for quantile in (0.9, 0.95, 0.99):
        for distance in DISTANCES:
            detector = fs.FedPCADetector(3, distance=distance, quantile=quantile).fit(
                rows(20_000), sites=labels(20_000)
            )
            assert abs(np.mean(detector.predict(rows(20_000, seed=2)) == -1) - (1 - quantile)) < 0.01


@pytest.mark.parametrize("distance", DISTANCES)
def test_saved_and_loaded_the_same(distance, tmp_path):
    detector = fs.FedPCADetector(3, distance=distance, aggregator=CoordinateMedian(), solver_options={"tol": 1e-5})
    detector.fit(rows(), sites=labels()).save(tmp_path / "model")
    loaded = fs.load(tmp_path / "model")
    X = anomalies()
    np.testing.assert_array_equal(loaded.score_samples(X), detector.score_samples(X))
    np.testing.assert_array_equal(loaded.predict(X), detector.predict(X))
    np.testing.assert_array_equal(loaded.explain(X), detector.explain(X))
    assert loaded.score_one(X[0]) == detector.score_one(X[0])
    assert loaded.get_params() == detector.get_params()


def test_scikit_learn_searches_for_settings():
    """No parameter may have the name of a method of scikit-learn's, such as score."""
    few = anomalies()[:12]
    X, y = np.concatenate([rows(), few]), np.repeat([1, -1], [len(rows()), len(few)])
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    grid = {"distance": list(DISTANCES), "n_components": [2, 3]}
    search = GridSearchCV(fs.FedPCADetector(), grid, scoring="roc_auc", cv=folds, error_score="raise").fit(X, y)
    assert search.best_params_["distance"] in DISTANCES
    assert search.best_score_ > 0.9
