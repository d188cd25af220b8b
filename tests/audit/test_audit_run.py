"""Audits of models and runs: entries, their order, and remarks."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.audit import Received, audit, from_model, psnr, relative_error, trilaterate
from fedspan.errors import InputError
from fedspan.landmarks.feddl import feddl
from fedspan.landmarks.landmark_distances import landmark_distances
from tests.real_data import mnist

from .conftest import SITES


def test_a_run_is_attacked_through_its_journal(table, run):
    X, sites = table
    model, folder = run
    truth = {name: X[sites == name] for name in SITES}
    card = audit(folder, truth=truth, landmarks=model.landmarks_)
    first = card.entries[0]
    assert (card.what, card.where, first.attack) == ("FedSpectralClustering", "run-001/journal", "trilateration")
    assert first.measures["relative_error"] < 1e-4
    assert first.measures["reidentified"] == 1.0
    assert first.baseline["relative_error"] == pytest.approx(1.0)
    assert first.facts["determined"] is True
    assert "the coordinator has the data" in first.verdict
    # In site order, then row order.
    in_order = np.concatenate([X[sites == name] for name in sorted(SITES)])
    np.testing.assert_allclose(first.rebuilt, in_order, atol=1e-3)
    assert audit(folder, truth=in_order, landmarks=model.landmarks_) == card
    assert audit(folder / "run-001", truth=truth, landmarks=model.landmarks_).entries == card.entries


def test_the_card_names_the_noise_and_its_epsilon(table, tmp_path):
    X, sites = table
    privacy = fs.privacy.GaussianData(5.0, 1e-5, clip=3.0)
    with fs.federate(X, sites=sites, run_dir=tmp_path) as fed:
        model = fs.FedSpectralClustering(2, n_landmarks=30, rounds=2, random_state=0, privacy=privacy).fit(fed)
    for card in (audit(model, truth=X), audit(tmp_path, truth=X, landmarks=model.landmarks_)):
        assert any("GaussianData" in remark and "epsilon" in remark and "5" in remark for remark in card.remarks)
        assert "Nothing can be concluded" not in card.entries[0].verdict  # noise has moved the rows
    assert not any("noise" in remark for remark in audit(Received("x", "nowhere")).remarks)


@pytest.mark.parametrize("method", ["coordinates", "squared", "paper"])
def test_a_model_holds_the_rows_whatever_its_method(table, method, tmp_path):
    X, sites = table
    model = fs.FedSpectralClustering(2, n_landmarks=30, rounds=5, method=method, random_state=0).fit(X, sites=sites)
    card = audit(model, truth=X)  # fitted on a table: in its order
    assert card.entries[0].measures["relative_error"] < 2e-2
    assert card.entries[0].measures["reidentified"] == 1.0
    model.save(tmp_path / "m.fedspan")
    assert audit(fs.load(tmp_path / "m.fedspan"), truth=X) == card
    by_site = {name: X[sites == name] for name in SITES}
    assert audit(model, truth=by_site).entries == card.entries


def test_without_the_truth_the_card_has_what_the_attacker_knows(run):
    model, _ = run
    card = audit(model)
    (entry,) = card.entries
    assert entry.measures == {}
    assert entry.rebuilt.shape == (60, 5)
    assert "fix every row" in entry.verdict
    assert any("true rows were not given" in remark for remark in card.remarks)
    few = Received("x", "y", ("a",), np.zeros(60, dtype=int), model.landmarks_[:4], from_model(model).distances[:, :4])
    entry = audit(few).entries[0]
    assert entry.facts["determined"] is False
    assert "3 of at most 5 directions" in entry.verdict


def test_the_card_of_a_model_without_posted_rows_states_it(table, tmp_path):
    X, sites = table
    with fs.federate(X, sites=sites, run_dir=tmp_path) as fed:
        pca = fs.FedPCA(2).fit(fed)
    for source in (pca, tmp_path, fs.FedLandmarks(5, rounds=2).fit(X, sites=sites)):
        card = audit(source, truth={name: X[sites == name] for name in SITES})
        assert card.entries == ()
        assert any("No distances of rows to landmarks were found" in remark for remark in card.remarks)
        searched = "Searched for rows as they are" if source is tmp_path else "were not searched"
        assert searched in " ".join(card.remarks)


def test_refusals(run, table, tmp_path):
    model, folder = run
    X, _ = table
    cases = [
        (lambda: audit(folder, landmarks=model.landmarks_[:7]), "distances to 30 landmarks"),
        (lambda: audit(tmp_path), "there is no journal in it"),
        (lambda: audit(3), "neither a fitted estimator nor"),
        (lambda: audit(model, truth=X[:5]), "truth has 5 rows, and 60 were received"),
        (lambda: audit(model, truth=X[:, :3]), "rows of 5 numbers"),
        (lambda: audit(model, truth={"a": X}), "for site 'a', which posted 20 rows"),
        (lambda: audit(model, truth={"a": X[:20], "b": X[:20]}), "has nothing for site 'c'"),
        (lambda: audit(model, truth=np.full_like(X, np.nan)), "finite"),
        (lambda: audit(model, image_shape=(2, 3)), "has 6 pixels, and rows have 5 columns"),
        (lambda: audit(model, bounds=(1, 0)), "bounds="),
        (lambda: audit(model, public=X[:3]), "at least 20 rows of 5 numbers"),
    ]
    digits = [f"{value:.6f}" for value in X.ravel()]
    for call, sentence in cases:
        with pytest.raises(InputError) as error:
            call()
        assert sentence in str(error.value)
        assert not any(number in str(error.value) for number in digits)


def test_digits_are_rebuilt_to_the_last_places():
    from fedspan.datasets import load_digits

    digits = load_digits()
    X = digits.data[:600].astype(float)
    fed = fs.federate(X, sites=digits.target[:600])
    found = fed.run(feddl, n_landmarks=100, rounds=20)
    order = np.concatenate([np.flatnonzero(digits.target[:600] == digit) for digit in range(10)])
    errors = {}
    for precision in ("double", "single"):
        posted = fed.run(landmark_distances, landmarks=found, precision=precision)
        rebuilt = trilaterate(np.concatenate(list(posted.values())) * found.scale, found.points)
        errors[precision] = relative_error(rebuilt.rows, X[order])
        np.testing.assert_array_equal(np.rint(rebuilt.rows), X[order])  # grey values are whole numbers: every one
    assert errors["double"] < 1e-8
    assert errors["single"] < 1e-3


@pytest.mark.slow
def test_mnist_images_are_rebuilt_from_500_landmarks_and_a_rotation_does_not_hide_them():
    images = mnist()
    chosen = np.random.default_rng(0).permutation(len(images.data))[:2800]
    X, public = images.data[chosen[:800]] / 255.0, images.data[chosen[800:]] / 255.0
    sites = images.target[chosen[:800]].astype(str)
    fed = fs.federate(X, sites=sites)
    found = fed.run(feddl, n_landmarks=500, rounds=20, n_frequencies=0)
    posted = fed.run(landmark_distances, landmarks=found)
    received = Received(
        "feddl",
        "replies",
        tuple(posted),
        np.repeat(range(10), [len(B) for B in posted.values()]),
        found.points,
        np.concatenate(list(posted.values())) * found.scale,
    )
    truth = {name: X[sites == name] for name in posted}
    plain, filled, turned, sums = audit(received, truth=truth, public=public, bounds=(0, 1)).entries
    assert plain.measures["psnr"] >= 34
    assert filled.measures["psnr"] > plain.measures["psnr"]
    assert turned.measures["psnr"] > 19
    assert turned.measures["reidentified"] > 0.98
    assert sums.measures["psnr"] < 14
    # Eight bits a distance: plain inversion looks safe, and is not.
    B = received.distances.astype(float)
    eight = np.rint((B - B.min()) / np.ptp(B) * 255) / 255 * np.ptp(B) + B.min()
    rows = received.rows_of(truth)
    assert psnr(trilaterate(eight, found.points, cut=0).rows, rows, (0, 1)) < 16
    assert psnr(trilaterate(eight, found.points).rows, rows, (0, 1)) > 24
