"""Exported detectors, by numpy and as ONNX, give what the estimators give."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedspan as fs
from fedspan.errors import InputError
from fedspan.gateway import scorer as module
from fedspan.gateway.scorer import Scorer, read_arrays

KINDS = {
    "mahalanobis": fs.FedPCADetector(),
    "residual": fs.FedPCADetector(3, distance="residual", scale=False),
    "combined": fs.FedPCADetector(3, distance="combined"),
    "isolation": fs.FedIsolationDetector(random_state=0, n_trees=40, depth=6),
    "centers": fs.FedCentersDetector(random_state=0),
    "all": fs.FedAnomalyDetector(random_state=0),
    "two": fs.FedAnomalyDetector(members=("centers", "isolation"), random_state=0, n_trees=20),
}


def rows(n=800, seed=0):
    mixing = np.random.default_rng(9).normal(size=(6, 6))
    return np.random.default_rng(seed).normal(size=(n, 6)) @ mixing + 40.0


@pytest.fixture(scope="module")
def fitted():
    names = [f"column {j}" for j in range(6)]
    return {name: kind.fit(pd.DataFrame(rows(), columns=names)) for name, kind in KINDS.items()}


def tested():
    return np.concatenate([rows(100, seed=1), rows(100, seed=2) + 3 * np.random.default_rng(3).normal(size=(100, 6))])


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_numpy_alone_scores_and_explains_as_the_estimator(name, fitted, tmp_path):
    model, X = fitted[name], tested()
    model.export(tmp_path / "detector.npz")
    found = Scorer.load(tmp_path / "detector.npz")
    np.testing.assert_allclose(found.score(X), -model.score_samples(X), rtol=1e-11)
    np.testing.assert_allclose(found.shares(X), model.explain(X), atol=1e-11)
    np.testing.assert_array_equal(found.score(X) > found.threshold, model.predict(X) == -1)
    for x, score in zip(X[::4], found.score(X[::4]), strict=True):
        assert found.score_one(x) == pytest.approx(score, rel=1e-12)
        assert -model.score_one(x) == pytest.approx(score, rel=1e-12)
    assert found.top_features(X[:1])[0][0][0] == model.top_features(X[0], 1)[0][0]
    assert (tmp_path / "detector.npz").stat().st_size < 400_000


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_onnx_gives_the_same(name, precision, fitted, tmp_path):
    import onnxruntime

    model = fitted[name]
    X = tested().astype(np.float32 if precision == "single" else np.float64)
    model.export(tmp_path / "detector.onnx", precision=precision)
    session = onnxruntime.InferenceSession(tmp_path / "detector.onnx")
    score, alarm, shares, top = session.run(None, {"rows": X})
    expected = -model.score_samples(X.astype(np.float64))
    np.testing.assert_allclose(score, expected, rtol=1e-6)
    clear = np.abs(expected + model.offset_) > 1e-6 * np.abs(expected)
    np.testing.assert_array_equal(alarm[clear], (model.predict(X.astype(np.float64)) == -1)[clear])
    np.testing.assert_allclose(shares, model.explain(X.astype(np.float64)), atol=2e-6)
    assert top.shape == (200, 3)
    np.testing.assert_array_equal(top[:, 0], shares.argmax(axis=1))


def test_the_scorer_needs_neither_fedspan_nor_anything_but_numpy(fitted, tmp_path):
    fitted["all"].export(tmp_path / "detector.npz")
    (tmp_path / "alone.py").write_text(Path(module.__file__).read_text(encoding="utf-8"), encoding="utf-8")
    code = (
        "import sys, numpy, alone; found = alone.Scorer.load('detector.npz'); print(found.score(numpy.zeros((2, 6))));"
        "assert not {'fedspan', 'scipy', 'sklearn'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, env={}, timeout=300)


def test_what_cannot_be_written_is_refused(fitted, tmp_path):
    model = fitted["mahalanobis"]
    with pytest.raises(InputError, match=r"must end in .npz"):
        model.export(tmp_path / "detector.pkl")
    with pytest.raises(InputError, match="does not exist"):
        model.export(tmp_path / "nowhere" / "detector.npz")
    with pytest.raises(InputError, match="precision='half' must"):
        model.export(tmp_path / "detector.onnx", precision="half")
    np.savez(tmp_path / "other.npz", a=np.zeros(2))
    with pytest.raises(ValueError, match="not a detector for gateways"):
        Scorer.load(tmp_path / "other.npz")


def test_values_that_overflow_are_as_anomalous_as_can_be(fitted, tmp_path):
    fitted["mahalanobis"].export(tmp_path / "detector.npz")
    assert Scorer.load(tmp_path / "detector.npz").score(np.full((1, 6), 1e300))[0] == np.inf


@pytest.mark.parametrize("column", [-1, 6, 10**9])
def test_trees_of_columns_that_are_not_there_are_refused(column, fitted, tmp_path):
    """One row is scored by code that is made of the trees: it names the columns of the file, and no others."""
    fitted["isolation"].export(tmp_path / "detector.npz")
    with np.load(tmp_path / "detector.npz") as file:
        arrays = dict(file)
    arrays["features"] = np.full(arrays["features"].shape, column)
    with pytest.raises(ValueError, match="cut columns that it does not have"):
        Scorer(arrays)


def test_a_site_gets_its_own_threshold_and_the_same_edges(tmp_path):
    detector = fs.FedPCADetector().fit(rows())
    detector.recalibrate(3.0 * rows(300, seed=4), sites=["hall"] * 300, per_site=True)
    for site in ("hall", "another", None):
        detector.export(tmp_path / f"{site}.npz", site=site)
    hall, another, common = (Scorer.load(tmp_path / f"{site}.npz") for site in ("hall", "another", None))
    assert hall.threshold == -detector.site_offsets_["hall"] > common.threshold
    assert another.threshold == common.threshold == -detector.offset_
    np.testing.assert_array_equal(hall.arrays["sketch_edges"], common.arrays["sketch_edges"])


def test_arrays_come_back(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=np.arange(3), zeros=np.zeros(10**6))  # far smaller than what it holds
    found = read_arrays(tmp_path / "a.npz")
    assert sorted(found) == ["x", "zeros"]
    np.testing.assert_array_equal(found["x"], [0, 1, 2])


def test_a_small_file_does_not_unfold_to_gigabytes(tmp_path):
    path = tmp_path / "bomb.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive,
        archive.open("n.npy", "w") as member,
    ):
        np.lib.format.write_array_header_1_0(member, {"descr": "<f8", "fortran_order": False, "shape": (2**24,)})
        for _ in range(128):
            member.write(bytes(2**20))
    assert path.stat().st_size < 200_000
    for read, error in ((Scorer.load, ValueError), (lambda file: fs.gateway_site("a", file), InputError)):
        tracemalloc.start()
        try:
            with pytest.raises(error, match="unfold"):
                read(path)
            assert tracemalloc.get_traced_memory()[1] < 2**25
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("content", [b"", b"PK", b"no archive at all"])
def test_what_is_no_such_file_is_refused(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match="can't be read"):
        read_arrays(tmp_path / "a.npz")
    with pytest.raises(InputError, match="no sums of a gateway"):
        fs.gateway_site("a", tmp_path / "a.npz")


def test_other_things_than_arrays_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("notes.txt", "not an array")
    with pytest.raises(ValueError, match="other things"):
        read_arrays(tmp_path / "a.npz")
