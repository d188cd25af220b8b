"""The gateway: rows in, alarms out, and nothing lost or doubled when it is killed."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import fedspan as fs
from fedspan.cli.main import main
from fedspan.gateway.gateway_loop import gateway
from fedspan.gateway.kept_sums import KeptSums

COLUMNS = [f"feature {j}" for j in range(4)]


def rows(n, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, 4))
    X[::50] += 9.0
    return X


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "detector.npz"
    detector = fs.FedPCADetector().fit(np.random.default_rng(5).normal(size=(1000, 4)))
    detector.export(path)
    return detector, path


def written(path, X, form="jsonl"):
    if form == "csv":
        lines = [",".join(["time", *reversed(COLUMNS)])]
        lines += [",".join(["0", *map(repr, row[::-1].tolist())]) for row in X]
    else:
        lines = [json.dumps(dict(zip(COLUMNS, row.tolist(), strict=True))) for row in X]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def alarms_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_alarms_and_sums_are_those_of_the_rows(form, model, tmp_path):
    detector, path = model
    X = rows(500)
    source = written(tmp_path / f"rows.{form}", X, form)
    out, state = tmp_path / "alarms.jsonl", tmp_path / "sums.npz"
    assert gateway(path, rows=source, alarms=out, state=state) == 0
    found, scores = alarms_of(out), -detector.score_samples(X)
    above = np.flatnonzero(scores > -detector.offset_)
    assert [alarm["line"] - (form == "csv") - 1 for alarm in found] == above.tolist()
    np.testing.assert_allclose([alarm["score"] for alarm in found], scores[above])
    assert found[0]["threshold"] == -detector.offset_
    assert found[0]["top_features"][0][0] == detector.top_features(X[above[0]], 1)[0][0]
    kept = KeptSums.load(state)
    assert (kept.rows, kept.alarms, kept.bad) == (500, len(above), 0)
    np.testing.assert_allclose(kept.sums["mean"], X.mean(axis=0))
    D = X - X.mean(axis=0)
    np.testing.assert_allclose(kept.sums["products"], D.T @ D, atol=1e-9)
    assert kept.sums["counts"].sum() == 500


def test_it_goes_on_where_it_was(model, tmp_path):
    _, path = model
    X, source = rows(300), tmp_path / "rows.jsonl"
    out, state = tmp_path / "alarms.jsonl", tmp_path / "sums.npz"
    written(source, X[:170])
    gateway(path, rows=source, alarms=out, state=state)
    written(source, X)  # 130 rows more
    with out.open("a", encoding="utf-8") as file:
        file.write('{"line": 171, "sco')  # what a kill left behind
    gateway(path, rows=source, alarms=out, state=state)
    gateway(path, rows=source, alarms=out, state=state)
    whole = tmp_path / "whole.jsonl"
    gateway(path, rows=source, alarms=whole, state=tmp_path / "other.npz")
    assert alarms_of(out) == alarms_of(whole)
    again, once = KeptSums.load(state), KeptSums.load(tmp_path / "other.npz")
    assert again.rows == once.rows == 300
    np.testing.assert_allclose(again.sums["products"], once.sums["products"])


def test_killed_at_random_moments_it_counts_every_row_once(model, tmp_path):
    _, path = model
    X, source = rows(20_000), tmp_path / "rows.jsonl"
    out, state = tmp_path / "alarms.jsonl", tmp_path / "sums.npz"
    lines = [json.dumps(dict(zip(COLUMNS, row.tolist(), strict=True))) + "\n" for row in X]
    source.write_text("".join(lines[:5000]), encoding="utf-8")
    options = ["--rows", str(source), "--follow", "--alarms", str(out), "--state", str(state)]
    command = [sys.executable, "-m", "fedspan", "gateway", str(path), *options]
    done, rng = 5000, np.random.default_rng(0)
    while done < len(lines):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            wait(lambda: out.exists() and out.stat().st_size > 0, process)
            for _ in range(3):
                with source.open("a", encoding="utf-8") as file:
                    file.write("".join(lines[done : done + 2000]))
                done += 2000
                time.sleep(0.2 * rng.random())
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
    gateway(path, rows=source, alarms=out, state=state)
    whole = tmp_path / "whole.jsonl"
    gateway(path, rows=source, alarms=whole, state=tmp_path / "other.npz")
    assert alarms_of(out) == alarms_of(whole)
    kept, once = KeptSums.load(state), KeptSums.load(tmp_path / "other.npz")
    assert (kept.rows, kept.alarms) == (once.rows, once.alarms) == (20_000, len(alarms_of(whole)))
    np.testing.assert_array_equal(kept.sums["counts"], once.sums["counts"])


def wait(condition, process):
    while not condition():
        assert process.poll() is None
        time.sleep(0.02)


def test_standard_input_that_is_sent_again_is_counted_once(model, tmp_path, monkeypatch, capfd):
    _, path = model
    source, state = written(tmp_path / "rows.jsonl", rows(200)), tmp_path / "sums.npz"
    for _ in range(2):
        with source.open("rb") as file:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(file))
            gateway(path, state=state)
        assert KeptSums.load(state).rows == 200
    lines = capfd.readouterr().out.splitlines()
    assert all("top_features" in json.loads(line) for line in lines)
    assert len(lines) == KeptSums.load(state).alarms


def test_lines_that_are_no_rows_are_reported_and_not_counted(model, tmp_path):
    _, path = model
    source = tmp_path / "rows.jsonl"
    good = json.dumps(dict.fromkeys(COLUMNS, 0.0))
    bad = ['{"feature 0": 1}', "[1, 2]", "no json", '{"a": ', json.dumps(dict.fromkeys(COLUMNS, "x"))]
    bad += [json.dumps(dict.fromkeys(COLUMNS)).replace("null", "NaN"), "[" * 5000]
    source.write_text("\n".join([good, *bad, "", good]), encoding="utf-8")
    out = tmp_path / "alarms.jsonl"
    gateway(path, rows=source, alarms=out, state=tmp_path / "sums.npz")
    assert [alarm["line"] for alarm in alarms_of(out) if "error" in alarm] == list(range(2, 9))
    kept = KeptSums.load(tmp_path / "sums.npz")
    assert (kept.rows, kept.bad) == (2, 7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["missing.npz"], "there is no model"),
        (["rows.csv"], "is not an exported detector"),
        (["{model}", "--follow"], "--follow needs --rows"),
        (["{model}", "--rows", "nowhere.jsonl"], "can't be read"),
        (["{model}", "--rows", "rows.csv"], "names no column 'feature 0'"),
        (["{model}", "--rows", "rows.csv", "--state", "rows.csv"], "holds no sums"),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence(options, message, model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    assert main(["gateway", *(option.format(model=model[1]) for option in options)]) == 2
    assert message in capsys.readouterr().err


def test_it_needs_numpy_alone_and_little_memory(model, tmp_path):
    _, path = model
    source = written(tmp_path / "rows.jsonl", rows(2000))
    code = (
        "import sys; from fedspan.cli.main import main; "
        f"main(['gateway', {str(path)!r}, '--rows', {str(source)!r}, '--alarms', {str(tmp_path / 'out')!r}]); "
        "assert not {'scipy', 'sklearn', 'pandas'} & set(sys.modules); "
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert int(found.stdout) < 60_000  # kB
