"""LocalPCADetector: every site's model is what scikit-learn makes of its own rows."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

import fedspan as fs
from fedspan.errors import InputError, QuorumError
from fedspan.federation import step
from fedspan.federation.outcomes import FailureKind

rng = np.random.default_rng(0)
MIXES = {name: rng.normal(size=(6, 6)) for name in "abc"}


def rows(name, n, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 6)) * [6, 4, 1, 0.5, 0.3, 0.2] @ MIXES[name] + ord(name)


def federation(**sizes):
    return fs.LocalFederation([fs.Site(name, rows(name, n)) for name, n in sizes.items()])


def rewriting(changes):
    """Return an attack that replaces some keys of the malicious sites' detectors."""

    def attack(replies, bad, rng, call):
        return {site: {**replies[site], **changes} for site in bad if call.step == "anomaly.detector"}

    return attack


@step
def local_rows(site):
    return {"rows": np.asarray(site.X)}


@pytest.fixture
def detector():
    return fs.LocalPCADetector(2, quantile=0.9).fit(federation(a=60, b=70, c=80))


def ratio(name, n, X, k=2, quantile=0.9):
    """Return the residual of `X` over the threshold, from scikit-learn on the rows of one site."""
    own = rows(name, n)
    scaler = StandardScaler().fit(own)
    pca = PCA(k, svd_solver="full").fit(scaler.transform(own))

    def residual(X):
        Z = scaler.transform(X)
        return np.sum((Z - pca.inverse_transform(pca.transform(Z))) ** 2, axis=1)

    return residual(X) / np.quantile(residual(own), quantile, method="inverted_cdf")


def test_a_site_is_scikit_learn_on_its_own_rows(detector):
    X = rows("b", 50, seed=5)
    for name, n in {"a": 60, "b": 70, "c": 80}.items():
        expected = ratio(name, n, X)
        np.testing.assert_allclose(-detector.score_samples(X, site=name), expected, rtol=1e-7)
        np.testing.assert_allclose(detector.decision_function(X, site=name), 1 - expected, rtol=1e-6, atol=1e-7)
        np.testing.assert_array_equal(detector.predict(X, site=name), np.where(expected > 1, -1, 1))


def test_without_a_name_most_sites_decide(detector):
    X = np.vstack([rows("a", 50, seed=5), rows("b", 50, seed=6)])
    ratios = [-detector.score_samples(X, site=name) for name in "abc"]
    np.testing.assert_allclose(-detector.score_samples(X), np.median(ratios, axis=0), rtol=1e-12)
    votes = np.sum([detector.predict(X, site=name) == -1 for name in "abc"], axis=0)
    np.testing.assert_array_equal(detector.predict(X), np.where(votes >= 2, -1, 1))
    assert detector.offset_ == -1.0


@pytest.mark.parametrize("sites", [1, 2, 5, 6])
def test_an_outlier_is_what_more_than_half_of_the_sites_call_one(sites):
    X = np.random.default_rng(0).normal(size=(40 * sites, 6)) * [6, 4, 1, 0.5, 0.3, 0.2]
    detector = fs.LocalPCADetector(2, quantile=0.6).fit(X, sites=np.arange(len(X)) % sites)
    new = np.random.default_rng(1).normal(size=(400, 6)) * [6, 4, 1, 0.5, 0.3, 0.2]
    votes = np.sum([detector.predict(new, site=name) == -1 for name in detector.sites_], axis=0)
    assert sites % 2 or (votes == sites // 2).sum() >= 5  # there are ties
    np.testing.assert_array_equal(detector.predict(new) == -1, votes > sites / 2)


def test_the_training_rate_is_kept_by_each(detector):
    for name, n in {"a": 60, "b": 70, "c": 80}.items():
        assert np.sum(detector.predict(rows(name, n), site=name) == -1) == n - np.ceil(0.9 * n)


def test_nothing_of_one_site_changes_another():
    one = fs.LocalPCADetector(2).fit(federation(a=60, b=70, c=80))
    other = fs.LocalPCADetector(2).fit(federation(a=60, b=20))
    np.testing.assert_array_equal(one.components_[0], other.components_[0])
    assert one.threshold_[0] == other.threshold_[0]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 10])
def test_few_rows_keep_fewer_components(n):
    detector = fs.LocalPCADetector(3).fit(federation(a=60, b=n))
    expected = min(3, max(min(n - 1, 6) - 1, 0))
    np.testing.assert_array_equal(detector.n_components_, [3, expected])
    U = detector.components_[1]
    np.testing.assert_allclose(U @ U.T, np.diag([1.0] * expected + [0.0] * (3 - expected)), atol=1e-12)
    own = rows("b", n)
    assert (detector.predict(own, site="b") == 1).mean() >= 0.95 * (n - 1) / n
    assert detector.predict(own[:1] + 1e3, site="b")[0] == -1
    assert np.isfinite(detector.score_samples(rows("b", 20, seed=3))).all()


def test_equal_rows_call_everything_else_an_outlier():
    sites = [fs.Site("same", np.ones((9, 6))), fs.Site("other", rows("a", 50))]
    detector = fs.LocalPCADetector(2).fit(fs.LocalFederation(sites))
    np.testing.assert_array_equal(detector.predict([[1.0] * 6, [1.0] * 5 + [1.1]], site="same"), [1, -1])


def test_scale_is_an_option():
    X = rows("a", 60)
    detector = fs.LocalPCADetector(2, scale=False).fit(X)
    np.testing.assert_array_equal(detector.scale_, np.ones((1, 6)))
    U = PCA(2, svd_solver="full").fit(X).components_
    np.testing.assert_allclose(detector.components_[0], U, atol=1e-9)


def test_the_sites_of_a_federation_see_the_verdicts(detector):
    fed = federation(a=60, b=70, c=80)
    sizes = {"a": 60, "b": 70, "c": 80}
    for model in (None, "a"):
        replies = detector.predict(fed, site=model).ask(local_rows)
        assert tuple(replies) == ("a", "b", "c")
        for name, n in sizes.items():
            verdicts = detector.predict(rows(name, n), site=model)
            np.testing.assert_array_equal(replies[name]["rows"], verdicts[:, None])
            assert set(verdicts) == {1, -1} or name != model


def test_a_silent_site_has_no_model():
    def silent(replies, bad, rng, call):
        return dict.fromkeys(bad)

    fed = federation(a=60, b=70, c=80).corrupt(silent, sites=["b"])
    detector = fs.LocalPCADetector(2).fit(fed)
    assert detector.sites_ == ("a", "c")
    assert len(detector.components_) == 2
    with pytest.raises(InputError, match="site='b' must be one of a, c"):
        detector.predict(np.zeros((1, 6)), site="b")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"threshold": -5.0, "rank": 10**9}, "threshold must be a finite number, at least 0"),
        ({"scale": np.zeros(6), "threshold": 0.0}, "scale must be above 0"),
        ({"scale": -np.ones(6)}, "scale must be above 0"),
        ({"mean": np.full(6, np.nan)}, "mean must hold finite numbers"),
        ({"threshold": np.inf}, "threshold must be a finite number"),
        ({"rank": 3}, "rank must be a whole number from 0 to 2"),
        ({"rank": -1}, "rank must be a whole number from 0 to 2"),
        ({"rank": 1.5}, "rank must be a whole number"),
        ({"rank": 1}, "must be 1 orthonormal rows"),
        ({"components": 1e300 * np.eye(6)[:2]}, "must be 2 orthonormal rows"),
    ],
    ids=str,
)
def test_a_reply_that_is_no_detector_is_a_failed_site(changes, reason):
    sites = [fs.Site(name, rows(name, n)) for name, n in {"a": 60, "b": 70, "c": 80}.items()]
    fed = fs.LocalFederation(sites, policy=fs.Policy(finite=False))
    detector = fs.LocalPCADetector(2).fit(fed.corrupt(rewriting(changes), sites=["b"]))
    assert detector.sites_ == ("a", "c")
    ((_, site, failure),) = detector.run_.failures
    assert site == "b"
    assert failure.kind is FailureKind.REJECTED
    assert reason in failure


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"mean": np.zeros(7), "scale": np.ones(7), "components": np.eye(7)[:2]}, "have other shapes"),
        ({"mean": None}, "mean must be an array"),
        ({"scale": np.ones(7)}, "have other shapes"),
        ({"components": np.eye(6)[:3]}, "have other shapes"),
        ({"threshold": np.ones(2)}, "threshold must be a finite number"),
        ({"threshold": "high"}, "threshold must be a finite number"),
    ],
)
def test_other_shapes_are_refused_although_all_sites_send_them(changes, reason):
    fed = federation(a=60, b=70).corrupt(rewriting(changes), sites=["a", "b"])
    with pytest.raises(QuorumError, match=reason):
        fs.LocalPCADetector(2).fit(fed)


@pytest.mark.parametrize("k", [0, 6, 7, 1.5, "auto", True])
def test_other_dimensions_are_refused(k):
    with pytest.raises(InputError, match="n_components="):
        fs.LocalPCADetector(k).fit(federation(a=60))


def test_more_rows_than_a_block():
    detector = fs.LocalPCADetector(2).fit(federation(a=60, b=70))
    X = rows("a", 9000, seed=2)
    scores = detector.score_samples(X)
    np.testing.assert_allclose(detector.score_samples(X[8190:8195]), scores[8190:8195], rtol=1e-11)
