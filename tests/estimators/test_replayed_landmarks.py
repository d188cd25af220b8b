"""Landmarks from a journal alone: those of the run, to the last bit, or a sentence."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.audit.replayed_landmarks import replayed_landmarks
from fedspan.errors import InputError
from fedspan.federation import journal_reading
from fedspan.privacy import GaussianData, GaussianGradient, PaperNoise


def fitted(folder, **settings):
    X = np.random.default_rng(0).normal(size=(90, 5))
    with fs.federate(X, sites=np.arange(90) % 3, run_dir=folder) as fed:
        return fs.FedSpectralClustering(2, n_landmarks=12, rounds=4, random_state=0, **settings).fit(fed)


def test_noise_on_rows_changes_nothing_for_the_coordinator(tmp_path):
    model = fitted(tmp_path, privacy=GaussianData(50.0, 1e-5, 9.0))
    np.testing.assert_array_equal(replayed_landmarks(tmp_path / "run-000" / "journal"), model.landmarks_)


@pytest.mark.parametrize(
    "privacy", [PaperNoise(0.5), GaussianGradient(50.0, 1e-5), GaussianGradient(50.0, 1e-5, 0.0, 1.0)], ids=repr
)
def test_noise_on_gradients_is_refused(tmp_path, privacy):
    fitted(tmp_path, privacy=privacy)
    with pytest.raises(InputError, match=r"noise on what was sent \(privacy=.*name the model"):
        replayed_landmarks(tmp_path / "run-000" / "journal")


def test_the_sites_device_need_not_be_here(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    pytest.importorskip("array_api_compat")
    model = fitted(tmp_path, device="cpu")
    read = journal_reading.read_journal

    def elsewhere(path):
        head, entries = read(path)
        assert head["settings"]["device"] == "'cpu'"
        head["settings"]["device"] = "'cuda:17'"  # as the sites' machines have it
        return head, entries

    monkeypatch.setattr("fedspan.audit.replayed_landmarks.read_journal", elsewhere)
    np.testing.assert_array_equal(replayed_landmarks(tmp_path / "run-000" / "journal"), model.landmarks_)
