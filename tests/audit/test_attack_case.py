"""What a case settles before the attacks: the order of the true rows, bounds, preprocessing."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.audit import audit, psnr
from fedspan.errors import InputError

from .conftest import SITES


def test_the_truth_may_be_in_the_order_of_the_table(table, run):
    X, sites = table
    model, folder = run
    by_site = {name: X[sites == name] for name in SITES}
    expected = audit(folder, truth=by_site, landmarks=model.landmarks_)
    assert expected.order is None
    for card in (audit(folder, truth=X, landmarks=model.landmarks_), audit(model, truth=X)):
        assert card.entries[0].measures["relative_error"] < 1e-4
        assert "the coordinator has the data" in card.entries[0].verdict
        assert any("another order" in remark for remark in card.remarks)
        np.testing.assert_array_equal(card.order, np.argsort(sites, kind="stable"))
    card = audit(folder, truth=X, landmarks=model.landmarks_)
    assert [entry.measures for entry in card.entries] == [entry.measures for entry in expected.entries]


def test_equal_rows_do_not_hide_another_order(table):
    X = np.repeat(table[0][:20], 3, axis=0)
    model = fs.FedSpectralClustering(2, n_landmarks=30, rounds=5, random_state=0).fit(fs.federate(X, sites=table[1]))
    card = audit(model, truth=X)
    assert card.entries[0].measures["relative_error"] < 1e-3
    assert sorted(card.order) == list(range(60))


def test_wrong_true_rows_are_not_reported_as_a_failed_attack(table, run):
    model, folder = run
    other = np.random.default_rng(5).permutation(table[0].ravel()).reshape(-1, 5)
    card = audit(folder, truth=other, landmarks=model.landmarks_)
    assert card.order is None
    assert card.entries[0].measures["relative_error"] > 1
    assert "Nothing can be concluded" in card.entries[0].verdict


def test_bounds_of_the_true_rows_are_stated_in_few_digits(table):
    X = np.round(table[0])
    X[0, 0], X[1, 1] = -8.88178e-16, 16
    X = np.clip(X, -8.88178e-16, 16)[:, :4]
    model = fs.FedSpectralClustering(2, n_landmarks=30, rounds=2, random_state=0).fit(X)
    card = audit(model, truth=X, image_shape=(2, 2))
    assert "PSNR is for values between 0 and 16, the range of the true rows." in card.remarks


def test_preprocessing_is_undone_and_bounds_are_of_the_data_before_it(table):
    X, sites = table
    scaler = fs.FedStandardScaler().fit(X, sites=sites)
    seen = scaler.transform(X)
    model = fs.FedSpectralClustering(2, n_landmarks=30, rounds=5, random_state=0).fit(seen, sites=sites)
    card = audit(model, truth=X, preprocess=[scaler], bounds=(X.min(), X.max()))
    np.testing.assert_allclose(card.entries[0].rebuilt, X, atol=1e-3)
    plain = audit(model, truth=seen)
    assert card.entries[0].measures["relative_error"] == plain.entries[0].measures["relative_error"]
    rebuilt = card.entries[0].rebuilt
    assert card.entries[0].measures["psnr"] == pytest.approx(psnr(rebuilt, X, (X.min(), X.max())), abs=0.1)


class OneWay:
    def transform(self, X):
        return X


def test_preprocessing_that_can_t_be_undone_allows_no_bounds(run, table):
    model, _ = run
    with pytest.raises(InputError, match="can't be undone"):
        audit(model, preprocess=[OneWay()], bounds=(0, 1))
    in_order = np.concatenate([table[0][table[1] == name] for name in sorted(SITES)])
    assert "psnr" not in audit(model, truth=in_order, preprocess=[OneWay()]).entries[0].measures
