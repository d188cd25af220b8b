"""Rows from FedDL's totals: the gradient, few rows to the last digits, posted distances, and the card."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import fedspan as fs
from fedspan.audit import Received, audit, distance_attacks, relative_error, rows_from_sums, sums_attack
from fedspan.audit.feddl_replay import replay_feddl
from fedspan.landmarks.feddl import feddl
from fedspan.linalg.kernels.gaussian_kernel import characteristic, kernel_pull


def rows(n=9, m=16, seed=0):
    return np.random.default_rng(seed).gamma(1.0, size=(n, m))


def ran(folder, X, model=None, **policy):
    with fs.federate(X, sites=np.arange(len(X)) % 3, run_dir=folder, policy=fs.Policy(**policy)) as fed:
        return (model or fs.FedLandmarks(8, rounds=15, random_state=0, n_frequencies=64)).fit(fed)


def sums_of(folder):
    return replay_feddl(folder / "run-000" / "journal")[1]


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    """The journal of a run whose sums were secure: it has totals alone."""
    folder = tmp_path_factory.mktemp("run")
    model = ran(folder, rows(), secure_sum=True)
    return folder, model


def test_a_journal_has_the_sums_of_all_rows(journal):
    X, (folder, model) = rows(), journal
    sums = sums_of(folder)
    Z = (X - model.centre_) / model.scale_
    assert (sums.n, sums.scale) == (9, pytest.approx(model.scale_))
    assert sums.pulls.shape == sums.landmarks.shape == (15 * 8, 16)
    np.testing.assert_allclose(sums.centre, X.mean(axis=0))
    np.testing.assert_allclose(sums.variance, Z.var(axis=0), rtol=1e-6)
    np.testing.assert_allclose(sums.pulls, kernel_pull(Z, sums.landmarks, sums.gamma)[0], atol=1e-7)
    np.testing.assert_allclose(sums.waves, characteristic(Z, sums.directions), atol=1e-5)
    assert (sums.unknowns, sums.equations) == (144, 16 * 120 + 128 + 32)


@pytest.mark.parametrize("posted", [False, True])
def test_the_gradient_agrees_with_finite_differences(journal, posted):
    sums = sums_of(journal[0])
    marks = rows(5, seed=3)
    more = {"distances": cdist(rows(), marks), "landmarks": marks} if posted else {"distances": None, "landmarks": None}
    rng = np.random.default_rng(0)
    loss = sums_attack._Loss(sums, rng, **more)
    Z, direction, h = rng.normal(size=(9, 16)), rng.normal(size=(9, 16)), 1e-6
    slope = (loss(Z + h * direction)[0] - loss(Z - h * direction)[0]) / (2 * h)
    assert np.sum(loss(Z)[1] * direction) == pytest.approx(slope, rel=1e-6)


def test_few_rows_are_rebuilt_from_totals_alone(journal):
    X, (folder, _) = rows(), journal
    found = rows_from_sums(sums_of(folder))
    apart = cdist(found.rows, X)
    assert sorted(apart.argmin(axis=1)) == list(range(9))
    assert apart.min(axis=1).max() < 1e-4  # as exact as a secure sum is
    assert found.misfit < 1e-6
    assert rows_from_sums(sums_of(folder), work=1.0).evaluations == 1


def test_the_card_of_a_secure_run_has_few_rows_rebuilt(journal):
    folder, _ = journal
    card = audit(folder, truth=rows())
    (entry,) = card.entries
    assert entry.attack == "totals of FedDL"
    assert entry.measures["relative_error"] < 1e-3
    assert "the coordinator has the data" in entry.verdict
    assert "Sums have no order" in entry.verdict
    assert relative_error(entry.rebuilt, rows()) < 1e-3  # in the order of the truth
    verdict = audit(folder).entries[0].verdict
    assert "very sums" in verdict or "sums are" in verdict


def test_totals_add_to_posted_distances(tmp_path, monkeypatch):
    monkeypatch.setattr(distance_attacks, "rows_from_sums", partial(rows_from_sums, work=5e8))
    X = rows(20, 12, seed=1)
    model = fs.FedSpectralClustering(
        2, n_landmarks=5, rounds=40, n_neighbors=3, landmark_settings={"n_frequencies": 0}, random_state=0
    )
    model = ran(tmp_path, X, model)
    truth = {str(k): X[np.arange(20) % 3 == k] for k in range(3)}
    card = audit(tmp_path, truth=truth, landmarks=model.landmarks_)
    errors = {entry.attack: entry.measures.get("relative_error") for entry in card.entries}
    assert errors["totals of FedDL, and distances"] < 0.5 * errors["trilateration"]


def test_large_tables_are_not_attacked_and_the_card_states_it(journal, monkeypatch):
    folder, model = journal
    monkeypatch.setattr(sums_attack, "MOST_UNKNOWNS", 143)
    card = audit(folder, truth=rows())
    assert card.entries == ()
    assert any("9 rows, which have 144: they were not attacked" in remark for remark in card.remarks)
    assert any("of few rows they give away the rows" in remark for remark in audit(model, truth=rows()).remarks)


def test_sums_with_noise_or_too_few_numbers_are_not_attacked(tmp_path, journal):
    private = fs.privacy.GaussianGradient(8.0, 1e-5, center=0.0, scale=1.0)
    ran(tmp_path, rows(), fs.FedLandmarks(8, rounds=2, privacy=private, random_state=0))
    assert audit(tmp_path, truth=rows()).entries == ()
    sums = sums_of(journal[0])
    few = replace(sums, pulls=sums.pulls[:2], landmarks=sums.landmarks[:2], waves=np.zeros((2, 0)))
    assert audit(Received("x", "y", sums=few), truth=rows()).entries == ()


def test_rounds_that_miss_a_site_are_left_out(tmp_path):
    X = rows()

    def offline(replies, bad, rng, call):
        return {name: None if call.number == 5 else replies[name] for name in bad}

    with fs.federate(X, sites=np.arange(9) % 3, run_dir=tmp_path) as fed:
        fed.corrupt(offline, ["2"]).run(feddl, n_landmarks=4, rounds=6)
    head = sums_of(tmp_path)
    assert (head.n, len(head.pulls)) == (9, 4 * 5)


@pytest.mark.parametrize(
    ("n", "landmarks", "rounds", "warned"), [(60, 8, 10, True), (60, 5, 10, False), (240, 30, 10, False)]
)
def test_fit_warns_of_totals_that_give_away_the_rows(n, landmarks, rounds, warned):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        fs.FedLandmarks(landmarks, rounds=rounds, random_state=0).fit(rows(n))
    texts = [str(one.message) for one in found if "totals hold" in str(one.message)]
    assert [one.split(":")[0] for one in texts] == [
        "FedDL's totals hold 1280 numbers about 60 rows, which have 960"
    ] * warned
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        noise = fs.privacy.GaussianGradient(8.0, 1e-5, center=0.0, scale=1.0)
        fs.FedLandmarks(landmarks, rounds=rounds, privacy=noise, random_state=0).fit(rows(n))
