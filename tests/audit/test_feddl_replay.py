"""FedDL from a journal alone: the landmarks of the run, to the last bit, or a sentence."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.audit import audit
from fedspan.audit.feddl_replay import replay_feddl
from fedspan.errors import InputError
from fedspan.federation.journal import read_journal
from fedspan.privacy import GaussianData, GaussianGradient, PaperNoise


def fitted(folder, **settings):
    X = np.random.default_rng(0).normal(size=(90, 5))
    with fs.federate(X, sites=np.arange(90) % 3, run_dir=folder, seed=3) as fed:
        return fs.FedSpectralClustering(2, n_landmarks=12, rounds=4, **settings).fit(fed)


def landmarks(folder):
    return replay_feddl(folder / "run-000" / "journal")[0]


@pytest.mark.parametrize(
    "settings",
    [
        {"landmark_settings": {"local_steps": 2, "upload": "landmarks", "momentum": 0.0, "gamma": 2.0}},
        {"random_state": 7, "landmark_settings": {"n_frequencies": 0, "precision": "single"}},
        {"gamma": 3.0, "affinity": "kernel"},
        {"privacy": GaussianData(50.0, 1e-5, 9.0)},  # noise on rows does not concern the coordinator
    ],
)
def test_landmarks_are_computed_again_from_the_sums_of_a_journal(tmp_path, settings):
    model = fitted(tmp_path, **settings)
    np.testing.assert_array_equal(landmarks(tmp_path), model.landmarks_)
    assert audit(tmp_path) == audit(tmp_path, model=model)


def test_gamma_of_landmarks_themselves_is_fed_dl_s_own(tmp_path):
    with fs.federate(np.random.default_rng(0).normal(size=(60, 3)), sites=np.arange(60) % 2, run_dir=tmp_path) as fed:
        model = fs.FedLandmarks(6, rounds=4, gamma=2.5, random_state=0).fit(fed)
    np.testing.assert_array_equal(landmarks(tmp_path), model.landmarks_)


@pytest.mark.parametrize(
    "privacy", [PaperNoise(0.5), GaussianGradient(50.0, 1e-5), GaussianGradient(50.0, 1e-5, 0.0, 1.0)], ids=repr
)
def test_noise_on_gradients_is_refused(tmp_path, privacy):
    fitted(tmp_path, privacy=privacy)
    with pytest.raises(InputError, match=r"noise on what was sent \(privacy=.*name the model"):
        landmarks(tmp_path)
    with pytest.raises(InputError, match="name the model"):
        audit(tmp_path)


def test_a_run_without_landmarks_is_refused(tmp_path):
    with fs.federate(np.eye(6), sites=np.arange(6) % 3, run_dir=tmp_path) as fed:
        fs.FedPCA(2).fit(fed)
    with pytest.raises(InputError, match="is of FedPCA, which learns no landmarks"):
        landmarks(tmp_path)


def test_the_sites_device_is_not_needed(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    pytest.importorskip("array_api_compat")
    model = fitted(tmp_path, device="cpu")

    def elsewhere(path):
        head, entries = read_journal(path)
        assert head["settings"]["device"] == "cpu"
        head["settings"]["device"] = "cuda:17"  # of the sites' machines
        return head, entries

    monkeypatch.setattr("fedspan.audit.feddl_replay.read_journal", elsewhere)
    np.testing.assert_array_equal(landmarks(tmp_path), model.landmarks_)
