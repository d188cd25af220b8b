"""Runs in TensorBoard, read back by TensorBoard itself."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import fedspan as fs
from fedspan.errors import InputError, MissingPackageError
from fedspan.tracking import tensorboard_observer

X = np.random.default_rng(0).normal(size=(60, 4))


def test_every_run_has_a_folder_of_events(tmp_path):
    fed = fs.federate(X, sites=np.arange(60) % 3)
    fed.observe(tensorboard_observer(tmp_path / "board"))
    fs.FedStandardScaler().fit(fed)
    model = fs.FedKMeans(3, random_state=1).fit(fed)
    folders = sorted((tmp_path / "board").iterdir())
    assert [folder.name for folder in folders] == ["run-000-FedStandardScaler", "run-001-FedKMeans"]
    events = EventAccumulator(str(folders[1])).Reload()
    assert events.Scalars("bytes_up")[-1].value == model.run_.bytes_up
    assert events.Scalars("bytes_up")[-1].step == model.run_.calls[-1].number
    logged = [value for value in model.run_.metric("inertia") if np.isfinite(value)]
    assert [one.value for one in events.Scalars("inertia")] == pytest.approx(logged)
    assert b"| n_clusters | 3 |" in events.Tensors("settings")[0].tensor_proto.string_val[0]


def test_wrong_folders_and_a_missing_package_are_named(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is a file"):
        tensorboard_observer(tmp_path / "file")
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingPackageError, match=r"\.\[tracking\]"):
        tensorboard_observer(tmp_path)
