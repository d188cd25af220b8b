"""Sums that gateways keep become part of the next federated update, once."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fedspan as fs
from fedspan.errors import InputError
from fedspan.gateway.gateway_loop import gateway
from fedspan.gateway.kept_sums import KeptSums, read_sums
from fedspan.gateway.scorer import Scorer

MIXING = np.random.default_rng(9).normal(size=(4, 4))
KINDS = {
    "pca": lambda: fs.FedPCADetector(),
    "isolation": lambda: fs.FedIsolationDetector(random_state=0, n_trees=20),
    "centers": lambda: fs.FedCentersDetector(random_state=0),
    "all": lambda: fs.FedAnomalyDetector(random_state=0, n_trees=20),
}


def rows(n, seed):
    return np.random.default_rng(seed).normal(size=(n, 4)) @ MIXING + 20.0


def closed(model, folder, parts):
    """Let gateways score rows, and return the sites of their closed periods."""
    model.export(folder / "detector.npz")
    sites = []
    for name, X in parts.items():
        source = folder / f"{name}.jsonl"
        source.write_text("".join(json.dumps(row) + "\n" for row in X.tolist()), encoding="utf-8")
        periods = folder / name
        gateway(folder / "detector.npz", rows=source, state=folder / f"{name}.npz", periods=periods)
        (period,) = periods.iterdir()
        sites.append(fs.gateway_site(name, period))
    return sites


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_an_update_takes_the_sums_of_gateways(name, secure, tmp_path):
    model, other = (KINDS[name]().fit(rows(800, 0)) for _ in range(2))
    parts = {"a": rows(300, 1), "b": rows(200, 2)}
    fed = fs.LocalFederation(closed(model, tmp_path, parts), policy=fs.Policy(secure_sum=secure))
    model.learn_sums(fed, batch="1").learn_sums(fed, batch="1")
    X = np.concatenate(list(parts.values()))
    other.partial_fit(X, sites=np.repeat(["a", "b"], [300, 200]))
    assert model.n_samples_ == 1300
    if name in ("pca", "isolation"):
        np.testing.assert_allclose(model.score_samples(X), other.score_samples(X), rtol=1e-5 if secure else 1e-8)
    else:  # a gateway finds the nearest centre in the units of its own model
        assert np.corrcoef(model.score_samples(X), other.score_samples(X))[0, 1] > 0.999
    assert abs(np.mean(model.predict(X) == -1) - 0.05) < 0.03
    assert model.counted_batches_ == {"1": ("a", "b")}


def test_what_a_kill_left_open_is_closed_once(tmp_path):
    model = fs.FedPCADetector().fit(rows(300, 0))
    model.export(tmp_path / "detector.npz")
    scorer = Scorer.load(tmp_path / "detector.npz")
    kept = KeptSums.empty(scorer)
    kept.add(rows(50, 1), scorer)
    kept.closing = 1
    kept.save(tmp_path / "state.npz")  # killed before, or after, the period's file was written
    (tmp_path / "none.jsonl").write_text("", encoding="utf-8")
    for _ in range(2):
        gateway(
            tmp_path / "detector.npz",
            rows=tmp_path / "none.jsonl",
            state=tmp_path / "state.npz",
            periods=tmp_path / "periods",
        )
    (period,) = (tmp_path / "periods").iterdir()
    assert int(read_sums(period)["n"]) == 50
    assert KeptSums.load(tmp_path / "state.npz").period == 2


def test_periods_add_up_to_all_rows(tmp_path):
    model = fs.FedPCADetector().fit(rows(300, 0))
    model.export(tmp_path / "detector.npz")
    source = tmp_path / "rows.jsonl"
    for number in range(3):
        with source.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows(40 + number, number).tolist())
        gateway(tmp_path / "detector.npz", rows=source, state=tmp_path / "s.npz", periods=tmp_path / "periods")
    found = sorted((tmp_path / "periods").iterdir())
    assert [int(read_sums(path)["n"]) for path in found] == [40, 41, 42]
    for path in found:
        model.learn_sums(fs.LocalFederation([fs.gateway_site("a", path)]), batch=path.stem)
    assert model.n_samples_ == 423


def test_what_cannot_work_is_refused(tmp_path):
    model, wide = fs.FedPCADetector().fit(rows(300, 0)), fs.FedPCADetector().fit(rows(300, 5) * 9)
    sites = closed(model, tmp_path, {"a": rows(50, 1)})
    with pytest.raises(Exception, match="another model"):
        wide.learn_sums(fs.LocalFederation(sites))
    with pytest.raises(Exception, match="no sums of a gateway"):
        model.learn_sums(fs.federate(rows(50, 1)))
    (tmp_path / "bad.npz").write_bytes(b"x")
    with pytest.raises(InputError, match="holds no sums"):
        fs.gateway_site("a", tmp_path / "bad.npz")
    with pytest.raises(InputError, match="--periods needs --state"):
        gateway(tmp_path / "detector.npz", rows=tmp_path / "a.jsonl", periods=tmp_path / "p")


def test_sums_of_gateways_fade_as_batches_do(tmp_path):
    model, other, half = (fs.FedPCADetector().fit(rows(800, 0)) for _ in range(3))
    X = rows(300, 1) + 1.0
    fed = fs.LocalFederation(closed(model, tmp_path, {"a": X}))
    model.learn_sums(fed, decay=0.25)
    other.partial_fit(X, decay=0.25)
    np.testing.assert_allclose(model.mean_, other.mean_, rtol=1e-12)
    half.learn_sums(fed, half_life=150.0)  # two half-lives: a quarter of the rows before
    np.testing.assert_allclose(half.mean_, other.mean_, rtol=1e-12)
    with pytest.raises(InputError, match="at='yesterday' must be a time"):
        model.learn_sums(fed, half_life="1h", at="yesterday")
