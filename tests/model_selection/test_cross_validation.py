"""Cross-validation on federations: the scores that scikit-learn gives on the same folds of the pooled rows."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fedspan as fs
from fedspan.errors import InputError, PolicyError
from fedspan.model_selection import RowFolds, SiteFolds, cross_validate
from fedspan.model_selection.folds import fold_of_rows


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 6)) * [5, 3, 2, 1, 1, 1] @ np.linalg.qr(rng.normal(size=(6, 6)))[0] + 2
    y = (rng.random(240) < 0.15).astype(int)
    return X + 4 * y[:, None] * rng.normal(size=6), y, np.arange(240) % 4


def pooled_folds(X, y, sites, folds):
    """Return the fold of each pooled row, as the sites draw them."""
    found = np.empty(len(X), dtype=int)
    for name in np.unique(sites):
        own = sites == name
        found[own] = fold_of_rows(fs.Site(str(name), X[own], y[own]), folds, 0, False)
    return found


@pytest.mark.parametrize("secure", [False, True])
def test_likelihoods_are_those_of_the_pooled_folds(rows, secure):
    X, y, sites = rows
    fed = fs.federate(X, y, sites=sites, policy=fs.Policy(secure_sum=secure))
    found = cross_validate(make_pipeline(fs.FedStandardScaler(), fs.FedPCA(2)), fed, cv=4, return_train_score=True)
    folds = pooled_folds(X, y, sites, 4)
    for number in range(4):
        model = make_pipeline(StandardScaler(), PCA(2)).fit(X[folds != number])
        assert found["test_score"][number] == pytest.approx(model.score(X[folds == number]), rel=1e-6)
        assert found["train_score"][number] == pytest.approx(model.score(X[folds != number]), rel=1e-6)
    assert set(found) == {"fit_time", "score_time", "test_score", "train_score"}


def test_inertia_with_a_given_start_is_that_of_the_pooled_folds(rows):
    X, y, sites = rows
    start = X[:3]
    found = cross_validate(fs.FedKMeans(3, init=start, tol=0.0), fs.federate(X, y, sites=sites), cv=3)
    folds = pooled_folds(X, y, sites, 3)
    for number in range(3):
        model = KMeans(3, init=start, n_init=1, tol=0.0).fit(X[folds != number])
        assert found["test_score"][number] == pytest.approx(model.score(X[folds == number]), rel=1e-9)


def test_detectors_are_scored_by_labels(rows):
    X, y, sites = rows
    fed = fs.federate(X, y, sites=sites)
    found = cross_validate(
        fs.FedPCADetector(2), fed, cv=3, scoring=["roc_auc", "balanced_accuracy"], return_estimator=True
    )
    folds = pooled_folds(X, y, sites, 3)
    for number, model in enumerate(found["estimator"]):
        held, labels = X[folds == number], y[folds == number]
        assert found["test_roc_auc"][number] == pytest.approx(
            roc_auc_score(labels, -model.score_samples(held)), abs=1e-4
        )
        expected = balanced_accuracy_score(labels, model.predict(held) < 0)
        assert found["test_balanced_accuracy"][number] == pytest.approx(expected)


def test_whole_sites_left_out(rows):
    X, y, sites = rows
    found = cross_validate(fs.FedPCA(2), fs.federate(X, y, sites=sites), cv="sites")
    assert found["left_out"] == [("0",), ("1",), ("2",), ("3",)]
    model = PCA(2).fit(X[sites != 1])
    assert found["test_score"][1] == pytest.approx(model.score(X[sites == 1]))
    secure = fs.federate(X, y, sites=sites, policy=fs.Policy(secure_sum=True))
    assert len(cross_validate(fs.FedPCA(2), secure, cv=SiteFolds(2))["test_score"]) == 2
    with pytest.raises(PolicyError, match="over 1 site cannot be a secure one"):
        cross_validate(fs.FedPCA(2), secure, cv="sites")


def test_a_function_as_score_and_folds_by_class(rows):
    X, y, sites = rows
    fed = fs.federate(X, y, sites=sites)
    seen = []

    def components(model, held):
        seen.append(held.sites)
        return model.n_components_

    found = cross_validate(fs.FedPCA(2), fed, RowFolds(2, draw=3, stratify=True), scoring={"k": components})
    assert found["test_k"].tolist() == [2.0, 2.0]
    assert seen == [fed.sites] * 2


def test_a_run_folder_resumes(rows, tmp_path):
    X, y, sites = rows
    first, again = (
        cross_validate(fs.FedPCA(2), fs.federate(X, y, sites=sites, run_dir=tmp_path), cv=2)["test_score"]
        for _ in range(2)
    )
    np.testing.assert_array_equal(first, again)


def test_what_can_not_be_done_is_refused(rows):
    X, _, sites = rows
    fed = fs.federate(X, sites=sites)
    with pytest.raises(InputError, match="takes a federation"):
        cross_validate(fs.FedPCA(2), X)
    with pytest.raises(InputError, match="no usual score"):
        cross_validate(fs.FedStandardScaler(), fed)
    with pytest.raises(InputError, match="'r3' is unknown: the names are r2"):
        cross_validate(fs.FedPCA(2), fed, scoring="r3")
    with pytest.raises(InputError, match="is for FedKMeans"):
        cross_validate(fs.FedPCA(2), fed, scoring="neg_inertia")
    with pytest.raises(InputError, match="must be a name"):
        cross_validate(fs.FedPCA(2), fed, scoring=[])
    with pytest.raises(fs.errors.QuorumError, match="has no y"):
        cross_validate(fs.FedPCADetector(2), fed)
