"""Pipelines learn on as one, and become one file."""

from __future__ import annotations

import json
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline

import fedspan as fs
from fedspan.errors import InputError, QuorumError
from fedspan.gateway.cell_encoder import CellEncoder
from fedspan.gateway.gateway_loop import gateway
from fedspan.gateway.scorer import Scorer


def traffic(n, seed=0, gaps=0.0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "proto": rng.choice(["tcp", "udp", "icmp"], n, p=[0.6, 0.3, 0.1]),
            "bytes": np.exp(3 * rng.normal(size=n)),
            "seconds": rng.normal(size=n) + 100.0,
            "service": rng.choice(["http", "-", "dns"], n),
        }
    )
    frame.loc[rng.random(n) < gaps, "seconds"] = np.nan
    return frame


def learned(model, frame, batches):
    for number, part in enumerate(np.array_split(np.arange(len(frame)), batches)):
        fed = fs.federate(frame.iloc[part].reset_index(drop=True), sites=part % 4)
        fs.partial_fit(model, fed, batch=str(number))
    return model


STEPS = {
    "encoder": lambda: make_pipeline(fs.FedTabularEncoder(), fs.FedPCADetector()),
    "both": lambda: make_pipeline(fs.FedTabularEncoder(), fs.FedStandardScaler(), fs.FedPCADetector()),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_pipeline_of_many_batches_is_that_of_all_rows(name):
    frame = traffic(1500)
    found = learned(STEPS[name](), frame, 15)
    whole = STEPS[name]().fit(fs.federate(frame, sites=np.arange(1500) % 4))
    np.testing.assert_allclose(found.score_samples(frame), whole.score_samples(frame), rtol=1e-8)
    assert abs(np.mean(found.predict(frame) == -1) - 0.05) < 0.01


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("detector", [fs.FedPCADetector, lambda: fs.FedPCADetector(2, distance="residual")])
def test_missing_cells_follow_the_means_that_stand_for_them(detector, scale):
    frame = traffic(1500, gaps=0.2)
    frame["seconds"] += np.linspace(0.0, 5.0, 1500)  # means move
    found = learned(make_pipeline(fs.FedTabularEncoder(scale=scale), detector()), frame, 15)
    whole = make_pipeline(fs.FedTabularEncoder(scale=scale), detector())
    whole.fit(fs.federate(frame, sites=np.arange(1500) % 4))
    np.testing.assert_allclose(found.score_samples(frame), whole.score_samples(frame), rtol=1e-8)


@pytest.mark.parametrize("last", [fs.FedCentersDetector, fs.FedIsolationDetector, fs.FedAnomalyDetector])
def test_what_a_step_keeps_follows_the_units_of_the_step_before(last):
    """A detector that scales by itself gives the same scores behind a scaler whose units move."""
    X = np.random.default_rng(0).normal(size=(900, 3)) * np.linspace(0.5, 2.0, 900)[:, None] + 3.0
    model, alone = make_pipeline(fs.FedStandardScaler(), last(random_state=0)), last(random_state=0)
    for part in np.split(X, 9):
        fs.partial_fit(model, part)
        alone.partial_fit(part)
    np.testing.assert_allclose(model.score_samples(X), alone.score_samples(X), rtol=1e-6)
    assert fs.drift(model[-1], model[:-1].transform(X[:100])).columns == ()  # the rows of the first fit
    assert model[-1].offset_ == pytest.approx(alone.offset_)


def test_centres_follow_the_units_too():
    X = np.random.default_rng(0).normal(size=(900, 3)) * np.linspace(0.5, 2.0, 900)[:, None] + 3.0
    model = make_pipeline(fs.FedStandardScaler(), fs.FedKMeans(3, random_state=0))
    for part in np.split(X, 9):
        fs.partial_fit(model, part)
    sizes = model[-1].cluster_sizes_
    np.testing.assert_allclose(sizes @ model[-1].cluster_centers_ / sizes.sum(), 0.0, atol=1e-9)


def test_a_batch_counts_in_all_steps_or_in_none():
    frame = traffic(800)
    model = learned(STEPS["both"](), frame, 2)
    fed = fs.federate(frame.iloc[400:].reset_index(drop=True), sites=np.arange(400) % 4)
    before = model.score_samples(frame)
    fs.partial_fit(model, fed, batch="1")
    np.testing.assert_array_equal(model.score_samples(frame), before)
    new = fs.federate(traffic(400, seed=3), sites=np.arange(400) % 4)
    for seed in range(40):
        with suppress(QuorumError):
            fs.partial_fit(model, new.with_faults(fs.FaultPlan(seed=seed, drop=0.05)), batch="2")
        counted = {step.counted_batches_.get("2") for _, step in model.steps}
        assert len(counted) == 1
        if counted == {("0", "1", "2", "3")}:
            break
    whole = STEPS["both"]().fit(pd.concat([frame, traffic(400, seed=3)], ignore_index=True))
    np.testing.assert_allclose(model.score_samples(frame), whole.score_samples(frame), rtol=1e-7)


def test_it_is_saved_and_learns_on(tmp_path):
    frame = traffic(600)
    model = learned(STEPS["both"](), frame, 3)
    fs.save(model, tmp_path / "model.fedspan")
    loaded = fs.load(tmp_path / "model.fedspan")
    for one in (model, loaded):
        fs.partial_fit(one, traffic(200, seed=5), batch="x")
    np.testing.assert_array_equal(model.score_samples(frame), loaded.score_samples(frame))


EXPORTED = {
    "both": (fs.FedTabularEncoder(), fs.FedStandardScaler(), fs.FedPCADetector()),
    "mean": (fs.FedTabularEncoder(missing="mean", unknown="zero"), fs.FedAnomalyDetector(random_state=0, n_trees=20)),
    "unscaled": (fs.FedTabularEncoder(scale=False), fs.FedCentersDetector(random_state=0)),
}


def strange(n):
    frame = traffic(n, seed=7, gaps=0.1)
    frame.loc[:20, "bytes"] = np.nan
    frame.loc[30:40, "proto"] = "gre"
    frame.loc[50:60, "proto"] = "NA"
    return frame


@pytest.mark.parametrize("name", EXPORTED)
def test_a_gateway_reads_raw_rows(name, tmp_path):
    model = make_pipeline(*EXPORTED[name]).fit(traffic(1000, gaps=0.1))
    fs.export(model, tmp_path / "detector.npz")
    frame = strange(300)
    cells = frame.astype(object).where(frame.notna(), None).to_numpy().tolist()
    found = Scorer.load(tmp_path / "detector.npz")
    X = CellEncoder(found.arrays).encode(cells)
    np.testing.assert_allclose(found.score(X), -model.score_samples(frame), rtol=1e-10)
    lines = [json.dumps(dict(zip(frame.columns, row, strict=True))) for row in cells]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + '\n{"a": 1}\n[[1]]\n', encoding="utf-8")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    expected = np.flatnonzero(model.predict(frame) == -1)
    for form, first in (("jsonl", 1), ("csv", 2)):
        out = tmp_path / f"{form}.alarms"
        gateway(tmp_path / "detector.npz", rows=tmp_path / f"rows.{form}", alarms=out)
        alarms = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
        assert [one["line"] - first for one in alarms if "score" in one] == expected.tolist()
        assert sum("error" in one for one in alarms) == (2 if form == "jsonl" else 0)


@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize("name", EXPORTED)
def test_onnx_encodes_scales_and_scores(name, precision, tmp_path):
    import onnxruntime

    model = make_pipeline(*EXPORTED[name]).fit(traffic(1000, gaps=0.1))
    fs.export(model, tmp_path / "detector.onnx", precision=precision)
    session = onnxruntime.InferenceSession(tmp_path / "detector.onnx")
    about = session.get_modelmeta().custom_metadata_map
    frame = strange(300)
    numbers = frame[json.loads(about["numbers"])].to_numpy()
    numbers = numbers.astype(np.float32 if precision == "single" else np.float64)
    frame[json.loads(about["numbers"])] = numbers.astype(np.float64)
    texts = frame[json.loads(about["texts"])].to_numpy().astype(object)
    score, alarm, shares, _ = session.run(None, {"numbers": numbers, "texts": texts})
    np.testing.assert_allclose(score, -model.score_samples(frame), rtol=1e-6)
    np.testing.assert_array_equal(alarm, model.predict(frame) == -1)
    np.testing.assert_allclose(shares, model[-1].explain(model[:-1].transform(frame)), atol=2e-6)


def test_a_scaler_before_a_detector_is_part_of_the_file(tmp_path):
    import onnxruntime

    X = np.random.default_rng(0).normal(size=(500, 3)) * [1.0, 10.0, 100.0] + 5.0
    model = make_pipeline(fs.FedStandardScaler(), fs.FedStandardScaler(), fs.FedAnomalyDetector(n_trees=20)).fit(X)
    fs.export(model, tmp_path / "detector.npz")
    fs.export(model, tmp_path / "detector.onnx")
    found = Scorer.load(tmp_path / "detector.npz")
    np.testing.assert_allclose(found.score(X), -model.score_samples(X), rtol=1e-10)
    np.testing.assert_allclose(found.shares(X), model[-1].explain(model[:-1].transform(X)), atol=1e-10)
    assert found.score_one(X[0]) == pytest.approx(found.score(X[:1])[0])
    session = onnxruntime.InferenceSession(tmp_path / "detector.onnx")
    np.testing.assert_allclose(session.run(None, {"rows": X})[0], -model.score_samples(X), rtol=1e-6)


def test_what_cannot_work_is_refused(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 3))
    with pytest.raises(InputError, match="FedPCA before the last step"):
        fs.partial_fit(make_pipeline(fs.FedPCA(2), fs.FedPCADetector()), X)
    with pytest.raises(InputError, match="does not learn on"):
        fs.partial_fit(fs.FedLandmarks(), X)
    with pytest.raises(InputError, match="and no FedPCA"):
        fs.export(fs.FedPCA(2).fit(X), tmp_path / "x.npz")
    with pytest.raises(InputError, match="as the first step"):
        fs.export(make_pipeline(fs.FedPCA(2), fs.FedPCADetector()).fit(X), tmp_path / "x.npz")
