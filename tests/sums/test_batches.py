"""Models that learn on from batches of rows."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest

import fedspan as fs
from fedspan.errors import InputError, QuorumError
from fedspan.sums.batches import kept_moments, known_moments, with_batch
from fedspan.sums.row_moments import RowMoments

MIXING = np.random.default_rng(9).normal(size=(6, 6))


def rows(n, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 6)) @ MIXING + 1e3


SITES = np.arange(3000) % 4
EXACT = {
    "scaler": (fs.FedStandardScaler, ("mean_", "scale_", "n_samples_seen_")),
    "pca": (lambda: fs.FedPCA(3), ("components_", "explained_variance_", "noise_variance_", "mean_")),
    "scaled pca": (lambda: fs.FedPCA(0.9, scale=True), ("components_", "explained_variance_", "scale_")),
    "detector": (fs.FedPCADetector, ("mean_", "scale_", "whitening_", "ridge_")),
    "residual": (lambda: fs.FedPCADetector(2, distance="residual"), ("components_", "mean_")),
    "subspace iteration": (lambda: fs.FedPCA(3, solver="subspace_iteration"), ("explained_variance_", "mean_")),
}


def streamed(make, X, batches, **options):
    model = make()
    for part, sites in zip(np.array_split(X, batches), np.array_split(np.resize(SITES, len(X)), batches), strict=True):
        model.partial_fit(part, sites=sites, **options)
    return model


@pytest.mark.parametrize("batches", [2, 50])
@pytest.mark.parametrize("name", EXACT)
def test_what_rests_on_moments_is_that_of_all_rows_at_once(name, batches):
    make, attributes = EXACT[name]
    X = rows(3000)
    found, whole = streamed(make, X, batches), make().fit(X, sites=SITES)
    for attribute in attributes:
        expected = getattr(whole, attribute)
        np.testing.assert_allclose(getattr(found, attribute), expected, rtol=1e-10, atol=1e-10 * np.max(expected))
    assert found.sites_ == whole.sites_


def test_scores_of_50_batches_are_those_of_one_fit_and_so_is_the_share_of_alarms():
    X = rows(3000)
    found, whole = streamed(fs.FedPCADetector, X, 50), fs.FedPCADetector().fit(X, sites=SITES)
    np.testing.assert_allclose(found.score_samples(X), whole.score_samples(X), rtol=1e-8)
    assert abs(np.mean(found.predict(X) == -1) - 0.05) < 0.005


@pytest.mark.parametrize("scale", [True, False])
def test_axes_of_wide_rows_stand_for_rows_before(scale, monkeypatch):
    monkeypatch.setattr("fedspan.pca.estimator._EXACT_COLUMNS", 20)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 5)) * [5, 4, 3, 1, 1] @ rng.normal(size=(5, 40)) + 7.0
    whole = fs.FedPCA(3, scale=scale).fit(X)
    found = streamed(lambda: fs.FedPCA(3, solver="subspace_iteration", scale=scale, random_state=0), X, 20)
    np.testing.assert_allclose(found.components_, whole.components_, atol=1e-8)
    np.testing.assert_allclose(found.explained_variance_, whole.explained_variance_, rtol=1e-8)
    noisy = X + 0.1 * rng.normal(size=X.shape)
    found = streamed(lambda: fs.FedPCA(3, solver="subspace_iteration", scale=scale, random_state=0), noisy, 20)
    np.testing.assert_allclose(found.components_, fs.FedPCA(3, scale=scale).fit(noisy).components_, atol=1e-4)
    assert found.kept_axes_.shape == (11, 40)


def test_half_lives_are_times_too():
    old, new = rows(1000), rows(1000, seed=1) + 7.0
    scaler = fs.FedStandardScaler().partial_fit(old, half_life="1h", at="2026-11-16T12:00")
    scaler.partial_fit(new, half_life="1h", at="2026-11-16T14:00")
    np.testing.assert_allclose(scaler.mean_, (old.mean(axis=0) + 4 * new.mean(axis=0)) / 5)
    scaler.partial_fit(new + 1.0, half_life="1h", at="2026-11-16T13:00")  # late: its rows count half
    late = (old.mean(axis=0) / 4 + new.mean(axis=0) + (new.mean(axis=0) + 1.0) / 2) / 1.75
    np.testing.assert_allclose(scaler.mean_, late)
    scaler.partial_fit(new, half_life="1h", at="2026-11-16T14:00")
    np.testing.assert_allclose(scaler.mean_, (1.75 * late + new.mean(axis=0)) / 2.75)
    assert scaler.n_samples_seen_ == 2750
    scaler.partial_fit(new + 1e3, half_life="1h", at="1999-01-01T14:00")  # next to nothing
    np.testing.assert_allclose(scaler.mean_, (1.75 * late + new.mean(axis=0)) / 2.75, rtol=1e-5)
    with pytest.raises(InputError, match="half_life='soon' must be a duration"):
        scaler.partial_fit(new, half_life="soon")
    with pytest.raises(InputError, match="at='noon' must be a time"):
        scaler.partial_fit(new, at="noon")


@pytest.mark.parametrize("name", ["scaler", "pca", "detector"])
def test_a_site_that_fails_in_the_middle_is_not_counted_until_it_sends_its_rows_again(name):
    make, (attribute, *_) = EXACT[name]
    X, sites = rows(1200), np.arange(1200) % 6
    fed = fs.federate(X[600:], sites=sites[600:])
    model = make().partial_fit(fs.federate(X[:600], sites=sites[:600]), batch="monday")
    for seed in range(40):
        with suppress(QuorumError):
            model.partial_fit(fed.with_faults(fs.FaultPlan(seed=seed, drop=0.1)), batch="tuesday")
        if len(model.counted_batches_.get("tuesday", ())) == 6:
            break
    expected = getattr(make().fit(X, sites=sites), attribute)
    np.testing.assert_allclose(getattr(model, attribute), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "make",
    [
        lambda: fs.FedPCADetector(solver="resilient_covariance"),
        lambda: fs.FedPCADetector(aggregator=fs.aggregation.GeometricMedian()),
        lambda: fs.FedIsolationDetector(aggregator=fs.aggregation.CoordinateMedian(), random_state=0),
        lambda: fs.FedAnomalyDetector(
            members=("isolation", "mahalanobis"), aggregator=fs.aggregation.GeometricMedian(), random_state=0
        ),
    ],
)
def test_one_site_that_poisons_its_batches_does_not_blind_a_resilient_detector(make):
    X, sites = rows(2000) - 1e3, np.arange(2000) % 10
    strange = X[:200] + 3.0 * np.random.default_rng(7).normal(size=(200, 6))
    model = make()
    for batch in range(5):
        new = rows(2000, seed=batch) - 1e3
        new[sites == 0] *= 1.0 + 5.0 * batch
        model.partial_fit(new, sites=sites)
    assert abs(np.mean(model.predict(X) == -1) - 0.05) < 0.04
    assert np.mean(model.predict(strange) == -1) > 0.3


def test_an_error_leaves_the_model_as_it_was():
    model = fs.FedPCADetector().partial_fit(rows(600), batch="monday")
    before = {name: value for name, value in vars(model).items() if name != "run_"}
    bad = rows(300)
    bad[5, 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit(fs.federate(bad), batch="tuesday")
    assert all(vars(model)[name] is value for name, value in before.items())


def test_leaf_counts_are_those_of_all_rows():
    X = rows(1000)
    model = streamed(lambda: fs.FedIsolationDetector(random_state=0), X, 10)
    again = fs.FedIsolationDetector(random_state=0).fit(X[:100])
    again.features_, again.cuts_ = model.features_, model.cuts_
    again._learn_on(fs.federate(X[100:]), 0.0)
    first = fs.FedIsolationDetector(random_state=0).fit(X[:100])
    first.features_, first.cuts_, first.leaf_counts_ = model.features_, model.cuts_, 0 * model.leaf_counts_
    first._learn_on(fs.federate(X), 1.0)
    np.testing.assert_array_equal(model.leaf_counts_, first.leaf_counts_)
    assert model.n_samples_ == 1000


@pytest.mark.parametrize(
    ("kind", "most"),
    [
        (fs.FedPCADetector, 0.005),
        (fs.FedCentersDetector, 0.01),
        (fs.FedIsolationDetector, 0.005),
        (fs.FedAnomalyDetector, 0.01),
    ],
)
def test_thresholds_keep_their_share_of_alarms(kind, most):
    X, new = rows(15_000 if kind is fs.FedIsolationDetector else 3000), rows(5000, seed=1)
    for table in (X, new):
        table[::3] += 4.0  # two groups
    model = streamed(lambda: kind(random_state=0) if kind is not fs.FedPCADetector else kind(), X, 30)
    assert abs(np.mean(model.predict(X) == -1) - 0.05) < most
    assert abs(np.mean(model.predict(new) == -1) - 0.05) < 0.015 + most


def test_centres_lose_little_against_a_fit_of_all_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 2)) + 20.0 * rng.integers(3, size=(3000, 1))
    streaming = streamed(lambda: fs.FedKMeans(3, random_state=0), X, 30)
    whole = fs.FedKMeans(3, random_state=0).fit(X, sites=SITES)
    assert -streaming.score(X) < 1.01 * whole.inertia_
    assert streaming.cluster_sizes_.sum() == 3000
    assert not hasattr(streaming, "labels_")


def test_a_batch_fades_the_rows_before_it_once_also_if_a_site_sends_its_part_later():
    X, sites = rows(200, seed=1), np.arange(200) % 2
    whole, in_parts = fs.FedStandardScaler(), fs.FedStandardScaler()
    for batch in range(4):
        new = X + batch
        whole.partial_fit(new, sites=sites, batch=str(batch), decay=0.5)
        for site in (0, 1):
            mine = sites == site
            in_parts.partial_fit(new[mine], sites=sites[mine], batch=str(batch), decay=0.5)
    np.testing.assert_allclose(in_parts.mean_, whole.mean_, rtol=1e-10)
    np.testing.assert_allclose(in_parts.scale_, whole.scale_, rtol=1e-10)


def test_old_rows_fade():
    old, new = rows(1000), rows(1000, seed=1) + 7.0
    scaler = fs.FedStandardScaler().partial_fit(old).partial_fit(new, decay=0.25)
    np.testing.assert_allclose(scaler.mean_, (old.mean(axis=0) + 4 * new.mean(axis=0)) / 5)
    assert scaler.n_samples_seen_ == 1250
    halved = fs.FedStandardScaler().partial_fit(old).partial_fit(new, half_life=500.0)
    np.testing.assert_allclose(halved.mean_, scaler.mean_)
    weights = np.repeat([0.25, 1.0], 1000)
    weighted = fs.FedPCA(2).fit(np.concatenate([old, new]), sample_weight=weights)
    faded = fs.FedPCA(2).partial_fit(old).partial_fit(new, decay=0.25)
    np.testing.assert_allclose(faded.components_, weighted.components_, atol=1e-9)


def test_a_drifting_stream_keeps_its_false_alarms_if_old_rows_fade():
    model = fs.FedPCADetector()
    for batch in range(40):
        model.partial_fit(rows(300, seed=batch) * (1 + 0.02 * batch) - 20.0 * batch, decay=0.7)
    assert abs(np.mean(model.predict(rows(5000, seed=99) * 1.8 - 800.0) == -1) - 0.05) < 0.03


@pytest.mark.parametrize("name", ["scaler", "pca", "detector"])
def test_a_batch_is_counted_once_however_often_it_is_sent(name):
    make, (attribute, *_) = EXACT[name]
    X = rows(600)
    once = make().partial_fit(X[:300]).partial_fit(X[300:])
    fed = fs.federate(X[300:], sites=np.arange(300) % 3)
    model = make().partial_fit(fs.federate(X[:300], sites=np.arange(300) % 3), batch="monday")
    model.partial_fit(fed.subset(["0", "2"]), batch="tuesday")  # one site is late
    model.partial_fit(fed, batch="tuesday").partial_fit(fed, batch="tuesday")
    model.partial_fit(fs.federate(X[:300], sites=np.arange(300) % 3), batch="monday")
    np.testing.assert_allclose(getattr(model, attribute), getattr(once, attribute), rtol=1e-9)
    assert model.counted_batches_ == {"monday": ("0", "1", "2"), "tuesday": ("0", "1", "2")}


def test_a_model_stays_small_after_many_batches_of_many_sites(tmp_path):
    names = tuple(f"hospital {i}" for i in range(100))
    model = fs.FedStandardScaler().fit(rows(50))
    sizes = []
    for batches in (0, 1500):
        for i in range(batches):
            some = names if i % 7 else names[i % 50 :]
            model.counted_batches_ = with_batch(f"hour {i}", getattr(model, "counted_batches_", {}), some)
        model.save(tmp_path / "model.fedspan", record=False)
        sizes.append((tmp_path / "model.fedspan").stat().st_size)
    assert sizes[1] - sizes[0] < 8000
    assert fs.load(tmp_path / "model.fedspan").counted_batches_ == model.counted_batches_


def test_a_model_that_was_fitted_saved_and_loaded_learns_on(tmp_path):
    X = rows(2000)
    for make, attribute in ((lambda: fs.FedPCA(2), "components_"), (fs.FedPCADetector, "whitening_")):
        make().fit(X[:1000], sites=SITES[:1000]).save(tmp_path / "model.fedspan")
        model = fs.load(tmp_path / "model.fedspan").partial_fit(X[1000:], sites=SITES[:1000])
        np.testing.assert_allclose(getattr(model, attribute), getattr(make().fit(X), attribute), atol=1e-9)
    assert abs(np.mean(model.predict(X) == -1) - 0.05) < 0.01


def test_secure_sums_learn_on():
    X = rows(800)
    secure = fs.Policy(secure_sum=True)
    model = fs.FedPCADetector()
    for part in np.array_split(X, 2):
        model.partial_fit(fs.federate(part, sites=np.arange(400) % 4, policy=secure))
    np.testing.assert_allclose(model.whitening_, fs.FedPCADetector().fit(X).whitening_, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (fs.FedStandardScaler(), {"decay": 0.0}, "decay=0.0 must"),
        (fs.FedStandardScaler(), {"decay": 0.5, "half_life": 9}, "exclude each other"),
        (fs.FedStandardScaler(), {"half_life": 0}, "half_life=0 must"),
        (fs.FedPCA(2, solver="power"), {}, "solver='covariance'"),
        (fs.FedPCADetector(2, solver="fedpg"), {}, "use 'covariance'"),
        (fs.FedKMeans(2, least_rows=5), {}, "least_rows"),
        (fs.FedPCADetector(2, privacy=fs.privacy.GaussianMoments(1.0, 1e-5, clip=9.0)), {}, "no privacy"),
    ],
)
def test_what_cannot_work_is_refused(model, options, message):
    with pytest.raises(InputError, match=message):
        model.partial_fit(rows(50), **options)


def test_other_columns_and_bad_names_of_batches_are_refused():
    model = fs.FedStandardScaler().partial_fit(rows(50))
    with pytest.raises(InputError, match="5 columns"):
        model.partial_fit(fs.federate(rows(50)[:, :5]))
    with pytest.raises(ValueError, match="5 features"):
        model.partial_fit(rows(50)[:, :5])
    with pytest.raises(InputError, match="must be a name"):
        model.partial_fit(rows(50), batch=3)


def test_kept_moments_are_the_moments():
    found = RowMoments.of_rows(rows(20))
    again = known_moments(kept_moments(found), 6)
    assert again.n == 20
    np.testing.assert_array_equal(again.scatter, found.scatter)
    np.testing.assert_array_equal(again.mean, found.mean)


def test_old_batches_are_forgotten():
    counted = {f"batch {i}": ("a",) for i in range(1000)}
    found = with_batch("new", counted, ("b",))
    assert len(found) == 1000
    assert "batch 0" not in found
    assert found["new"] == ("b",)


@pytest.mark.parametrize(("decay", "counted"), [(1.0, 0.5 * (300 + 300)), (0.5, 0.5 * 300 + 300)])
def test_scores_count_by_the_rows_of_their_model_or_fade(decay, counted):
    X = np.random.default_rng(0).normal(size=(600, 3))
    # All scores come from the model of 300 rows, and the next ones from one of 600.
    detector = fs.FedPCADetector().partial_fit(X[:300]).partial_fit(X[300:], decay=decay)
    assert detector.sketch_counts_.sum() == pytest.approx(counted)


@pytest.mark.parametrize("kind", [fs.FedPCADetector, fs.FedAnomalyDetector])
def test_the_next_rows_of_a_drifting_stream_raise_few_false_alarms(kind):
    model, rng = kind(), np.random.default_rng(0)
    alarms = []
    for batch in range(25):
        new = rng.normal(size=(600, 6)) * (1 + 0.015 * batch) + 0.3 * batch
        if batch > 15:
            alarms.append(np.mean(model.predict(new) == -1))
        model.partial_fit(new, decay=0.7)
    assert abs(np.mean(alarms) - 0.05) < 0.015
