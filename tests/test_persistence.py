"""Model files: damage is reported, and nothing in them can run."""

from __future__ import annotations

import io
import json
import lzma
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline

import fedspan as fs
from fedspan import persistence as files
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
    "pipeline of a number": {"pipeline": [["a", 3]]},
    "missing array": {"estimator": "FedPCA", "params": {}, "fitted": {"mean_": {"array": 99}}},
}


@pytest.mark.parametrize("what", sorted(FORGED))
def test_forged_files_are_told(tmp_path, what):
    with zipfile.ZipFile(tmp_path / "model", "w") as archive:
        archive.writestr("model.json", json.dumps({"format": 1, "estimator": FORGED[what]}))
    with pytest.raises(InputError):
        fs.load(tmp_path / "model")


@pytest.fixture
def many_sites():
    X = np.random.default_rng(0).normal(size=(3000, 39))
    return X, [f"site-{i % 100:03d}" for i in range(3000)]


def test_the_model_of_a_hundred_sites_is_a_few_kilobytes(tmp_path, many_sites):
    X, sites = many_sites
    detector = fs.FedPCADetector(10, distance="residual").fit(X, sites=sites)
    detector.save(tmp_path / "model")
    assert (tmp_path / "model").stat().st_size < 24_000  # 5,300 of the model, 6,900 its moments, 4,100 for drift
    power = fs.FedPCA(2, solver="power", iterations=25).fit(X, sites=sites)
    power.save(tmp_path / "rounds")
    assert sum(map(len, power.run_.lines())) < 20_000  # one number stands for sites that sent the same
    assert (tmp_path / "rounds").stat().st_size < 12_000
    assert fs.load(tmp_path / "rounds").run_ == power.run_


def test_the_record_can_be_left_out(tmp_path, many_sites):
    X, sites = many_sites
    detector = fs.FedPCADetector(10).fit(X, sites=sites)
    detector.save(tmp_path / "whole")
    detector.save(tmp_path / "model", record=False)
    assert (tmp_path / "model").stat().st_size < (tmp_path / "whole").stat().st_size - 1_000
    loaded = fs.load(tmp_path / "model")
    assert not hasattr(loaded, "run_")
    assert detector.run_.calls
    np.testing.assert_array_equal(loaded.predict(X), detector.predict(X))
    loaded.save(tmp_path / "again", record=False)
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()


def forged_record(path, data, **more):
    """Write a model whose record is `data`, packed or not."""
    with zipfile.ZipFile(path, "w") as archive:
        estimator = {"estimator": "FedPCA", "params": {}, "fitted": {"run_": {"packed record": 0}, **more}}
        archive.writestr("model.json", json.dumps({"format": 1, "estimator": estimator}))
        npy = io.BytesIO()
        np.save(npy, np.frombuffer(data, dtype=np.uint8))
        archive.writestr("0.npy", npy.getvalue())


def test_records_that_unpack_without_end_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_LARGEST_TEXT", 10_000)
    forged_record(tmp_path / "model", lzma.compress(b" " * 20_000))
    with pytest.raises(InputError, match="more than 10000 bytes"):
        fs.load(tmp_path / "model")
    forged_record(tmp_path / "model", lzma.compress(b"{}")[:-8])
    with pytest.raises(InputError, match="cut off"):
        fs.load(tmp_path / "model")
    forged_record(tmp_path / "model", lzma.compress(b"x", preset=9))  # asks for 64 MiB and more
    with pytest.raises(InputError, match="not a fedspan model"):
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


def test_a_small_file_does_not_unfold_to_gigabytes(tmp_path):
    fs.FedStandardScaler().fit([[1.0], [3.0]]).save(tmp_path / "model")
    packed = np.frombuffer(lzma.compress(b'{"kind":"run","x":[' + b"[]," * 2**26 + b"0]}"), np.uint8)
    with zipfile.ZipFile(tmp_path / "model") as archive:
        described = json.loads(archive.read("model.json"))
        arrays = [archive.read(name) for name in archive.namelist()[1:]]
    number = described["estimator"]["fitted"]["run_"]["packed record"]
    npy = io.BytesIO()
    np.lib.format.write_array(npy, packed, allow_pickle=False)
    arrays[number] = npy.getvalue()
    with zipfile.ZipFile(tmp_path / "bomb", "w") as archive:
        archive.writestr("model.json", json.dumps(described))
        for place, data in enumerate(arrays):
            archive.writestr(f"{place}.npy", data)
    assert (tmp_path / "bomb").stat().st_size < 100_000
    tracemalloc.start()
    with pytest.raises(InputError, match="has more than"):
        fs.load(tmp_path / "bomb")
    assert tracemalloc.get_traced_memory()[1] < 2**28
    tracemalloc.stop()


@pytest.mark.parametrize(("shape", "kind"), [((10**9, 0), "<f8"), ((0, 2**40), "<f8"), ((10**12,), "|S0")])
def test_arrays_that_are_longer_than_their_bytes_are_refused(tmp_path, shape, kind):
    """A file of 400 bytes held a mean of 10^12 columns."""
    npy = io.BytesIO()
    np.lib.format.write_array_header_1_0(npy, {"descr": kind, "fortran_order": False, "shape": shape})
    estimator = {"estimator": "FedStandardScaler", "params": {}, "fitted": {"mean_": {"array": 0}}}
    with zipfile.ZipFile(tmp_path / "model", "w") as archive:
        archive.writestr("model.json", json.dumps({"format": 1, "estimator": estimator}))
        archive.writestr("0.npy", npy.getvalue())
    with pytest.raises(InputError, match="longer than its bytes"):
        fs.load(tmp_path / "model")


def test_packed_parts_that_name_one_another_unfold_once(tmp_path):
    """Four lists of sixty parts each, each naming the next list, were 13 million numbers in 1,500 bytes."""
    lists = [{"list": [{"packed": place + 1}] * 2} for place in range(3)] + [{"list": [1.5]}]
    with zipfile.ZipFile(tmp_path / "model", "w") as archive:
        estimator = {"estimator": "FedPCA", "params": {}, "fitted": {"mean_": {"packed": 0}}}
        archive.writestr("model.json", json.dumps({"format": 1, "estimator": estimator}))
        for place, one in enumerate(lists):
            npy = io.BytesIO()
            np.save(npy, np.frombuffer(lzma.compress(json.dumps(one).encode()), dtype=np.uint8))
            archive.writestr(f"{place}.npy", npy.getvalue())
    with pytest.raises(InputError, match="cut off"):
        fs.load(tmp_path / "model")


def test_many_packed_parts_share_one_limit(tmp_path):
    """Each part of 16 MB was within the limit: 17 kB took 2.6 GB, and 100 kB would have taken 15."""
    empty = lzma.compress(b'{"list":[' + b",".join([b"[]"] * (2**22 // 3)) + b"]}")
    words = lzma.compress(b'{"list":[' + b",".join([b'"ab"'] * (2**22 // 5)) + b"]}")
    for text, parts in ((empty, 1), (words, 5)):
        with zipfile.ZipFile(tmp_path / "model", "w") as archive:
            fitted = {f"part{place}_": {"packed": place} for place in range(parts)}
            estimator = {"estimator": "FedPCA", "params": {}, "fitted": fitted}
            archive.writestr("model.json", json.dumps({"format": 1, "estimator": estimator}))
            for place in range(parts):
                npy = io.BytesIO()
                np.save(npy, np.frombuffer(text, dtype=np.uint8))
                archive.writestr(f"{place}.npy", npy.getvalue())
        with pytest.raises(InputError, match="the packed parts"):
            fs.load(tmp_path / "model")


def test_members_that_lie_in_one_another_are_refused(tmp_path):
    """Each member held all later ones: the sum of their sizes grew with the square of their number."""
    with zipfile.ZipFile(tmp_path / "model", "w") as archive:
        archive.writestr("model.json", "{}" + " " * 1000)
        archive.writestr("0.npy", "x" * 1000)
    data = bytearray((tmp_path / "model").read_bytes())
    at = data.index(b"PK\x01\x02")  # the first member's entry in the directory; sizes are at 20 and 24
    data[at + 20 : at + 28] = struct.pack("<II", 2000, 2000)
    (tmp_path / "model").write_bytes(data)
    with pytest.raises(InputError, match="lie in one another"):
        fs.load(tmp_path / "model")


def test_a_pipeline_is_saved_and_loaded(tmp_path):
    X = np.random.default_rng(1).normal(size=(40, 4))
    pipeline = make_pipeline(fs.FedStandardScaler(), fs.FedPCADetector(2)).fit(X)
    fs.save(pipeline, tmp_path / "whole")
    loaded = fs.load(tmp_path / "whole")
    assert list(loaded.named_steps) == ["fedstandardscaler", "fedpcadetector"]
    np.testing.assert_array_equal(loaded.score_samples(X), pipeline.score_samples(X))
    assert loaded[-1].run_ == pipeline[-1].run_
    fs.save(pipeline, tmp_path / "short", record=False)
    assert not hasattr(fs.load(tmp_path / "short")[0], "run_")
    assert hasattr(pipeline[0], "run_")


def test_only_models_of_ours_are_saved(tmp_path):
    with pytest.raises(
        InputError, match=r"PCA\(\) is not an estimator of fedspan, and a saved pipeline has no other steps"
    ):
        fs.save(make_pipeline(fs.FedStandardScaler(), PCA()), tmp_path / "model")
    with pytest.raises(InputError, match="PCA is neither an estimator of fedspan nor a pipeline of such, nor an atlas"):
        fs.save(PCA(), tmp_path / "model")
    with pytest.raises(InputError, match="does not exist: make it first"):
        fs.save(fs.FedPCA(), tmp_path / "nowhere" / "model")
    assert not list(tmp_path.iterdir())


def test_the_folder_of_a_study_is_loaded_as_its_whole_pipeline(tmp_path):
    X = np.random.default_rng(1).normal(size=(40, 4))
    pipeline = make_pipeline(fs.FedStandardScaler(), fs.FedPCA(2)).fit(X)
    pipeline[0].save(tmp_path / "preprocess-0-FedStandardScaler.fedspan")
    with pytest.raises(InputError, match="has no model"):
        fs.load(tmp_path)
    pipeline[1].save(tmp_path / "model.fedspan")
    loaded = fs.load(tmp_path)
    np.testing.assert_array_equal(loaded.transform(X), pipeline.transform(X))


def test_a_folder_is_no_file_to_save_in(tmp_path):
    model = fs.FedPCA(1).fit(np.eye(3))
    with pytest.raises(InputError, match="is a folder: name a file in it"):
        fs.save(model, tmp_path)
