"""Model files: damage is told, and nothing in them can run."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest

import fedspan as fs
from fedspan.errors import InputError


@pytest.fixture
def file(tmp_path):
    X = np.random.default_rng(0).normal(size=(20, 3))
    fs.FedPCA(2).fit(X, sites=np.arange(20) % 2).save(tmp_path / "model")
    return tmp_path / "model"


def test_every_flipped_byte_is_harmless_or_told(file):
    whole = file.read_bytes()
    refused = 0
    for position in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[position] ^= 0x41
        file.write_bytes(damaged)
        try:
            model = fs.load(file)
        except InputError:
            refused += 1
        else:
            assert isinstance(model, fs.FedPCA)
    assert refused > 50


@pytest.mark.parametrize("cut", [0, 1, 100, -1])
def test_cut_files_are_told(file, cut):
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(InputError, match="not a fedspan model"):
        fs.load(file)


FORGED = {
    "a number": 3,
    "another class": {"estimator": "Popen", "params": {}, "fitted": {}},
    "a function": {"estimator": "load", "params": {}, "fitted": {}},
    "unknown kind": {"code": "import os"},
    "empty": {},
    "bad parameter": {"estimator": "FedPCA", "params": {"colour": 1}, "fitted": {}},
    "missing array": {"estimator": "FedPCA", "params": {}, "fitted": {"mean_": {"array": 99}}},
}


@pytest.mark.parametrize("what", sorted(FORGED))
def test_forged_files_are_told(tmp_path, what):
    with zipfile.ZipFile(tmp_path / "model", "w") as archive:
        archive.writestr("model.json", json.dumps({"format": 1, "estimator": FORGED[what]}))
    with pytest.raises(InputError):
        fs.load(tmp_path / "model")


def test_what_cannot_be_kept_is_refused_and_nothing_is_written(tmp_path):
    model = fs.FedPCA(1, random_state=np.random.RandomState(0)).fit(np.random.default_rng(0).normal(size=(9, 3)))
    with pytest.raises(InputError, match=r"FedPCA\.random_state is a RandomState"):
        model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_set_output_is_kept(tmp_path):
    X = np.random.default_rng(0).normal(size=(9, 3))
    fs.FedPCA(1).set_output(transform="pandas").fit(X).save(tmp_path / "model")
    assert list(fs.load(tmp_path / "model").transform(X).columns) == ["fedpca0"]


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(InputError, match="there is no model file"):
        fs.load(tmp_path / "none")
