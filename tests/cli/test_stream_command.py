"""``fedspan run --partial``: rounds that take what is new at each site, and lose or double nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest

import fedspan as fs
from fedspan.cli.main import main
from fedspan.cli.study.stream_command import Stream, run_stream
from fedspan.cli.study.study_file import read_study
from fedspan.errors import FedspanError, InputError
from fedspan.federation import Policy

STUDY = """
[data]
sites = { a = "a.csv", b = "b.csv", c = "c.csv" }
[[preprocess]]
name = "FedTabularEncoder"
[model]
name = "FedPCADetector"
"""


def rows(n, seed, apart=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) @ rng.normal(size=(2, 3)) * 0 + rng.normal(size=(n, 3)) + apart
    frame = pd.DataFrame(X, columns=["x", "y", "z"])
    frame["proto"] = rng.choice(["tcp", "udp"], n)
    return frame


class Files:
    """The tables of three sites, which grow."""

    def __init__(self, folder, study=STUDY):
        self.folder, self.frames = folder, {}
        (folder / "study.toml").write_text(study, encoding="utf-8")
        self.plan = read_study(folder / "study.toml", growing=True)

    def grow(self, site, n, seed, apart=0.0):
        new = rows(n, seed, apart)
        self.frames[site] = pd.concat([*([self.frames[site]] if site in self.frames else []), new], ignore_index=True)
        self.frames[site].to_csv(self.folder / f"{site}.csv", index=False)

    def all_rows(self):
        return pd.concat(self.frames.values(), ignore_index=True)

    def scores_are_those_of_all_rows(self, model, whole):
        whole.fit(self.all_rows())
        np.testing.assert_allclose(model.score_samples(rows(50, 99)), whole.score_samples(rows(50, 99)), rtol=1e-7)


@pytest.fixture
def files(tmp_path):
    found = Files(tmp_path)
    for number, site in enumerate("abc"):
        found.grow(site, 200, number)
    return found


def pipeline():
    from sklearn.pipeline import make_pipeline

    return make_pipeline(fs.FedTabularEncoder(), fs.FedPCADetector())


def test_rounds_take_what_is_new_also_of_a_site_that_was_off(files, tmp_path, capsys):
    command = ["run", str(tmp_path / "study.toml"), "--partial"]
    assert main(command) == 0
    assert "600 rows of 3 sites" in capsys.readouterr().out
    assert main(command) == 0
    assert "no new rows" in capsys.readouterr().out
    files.grow("a", 50, 10)
    hidden = (tmp_path / "b.csv").rename(tmp_path / "b.away")
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "round 2: 50 rows of 1 sites" in out
    assert "b.csv does not exist" in " ".join(out.split())
    hidden.rename(tmp_path / "b.csv")
    files.grow("b", 30, 11)
    files.grow("c", 7, 12)
    assert main(command) == 0
    assert "round 3: 37 rows of 2 sites" in capsys.readouterr().out
    files.scores_are_those_of_all_rows(fs.load(tmp_path / "study"), pipeline())
    state = json.loads((tmp_path / "study" / "stream.json").read_text())
    assert {site: mark["rows"] for site, mark in state["marks"].items()} == {"a": 250, "b": 230, "c": 207}
    assert [entry["rows"] for entry in state["history"]] == [dict.fromkeys("abc", 200), {"a": 50}, {"b": 30, "c": 7}]
    assert (tmp_path / "study" / "drift.html").is_file()
    assert sorted(path.name for path in (tmp_path / "study" / "rounds").iterdir()) == ["000002", "000003"]


def test_a_line_that_is_still_being_written_waits(files, tmp_path):
    stream = Stream(files.plan)
    stream.round()
    with (tmp_path / "a.csv").open("a", encoding="utf-8") as file:
        file.write("1.0,2.0,3.0,tcp\n4.0,5.")
    assert "1 rows of 1 sites" in stream.round()
    with (tmp_path / "a.csv").open("a", encoding="utf-8") as file:
        file.write("5,6.0,udp\n")
    assert "1 rows of 1 sites" in stream.round()
    assert fs.load(tmp_path / "study")[0].n_samples_seen_ == 602


def test_a_watermark_column_is_no_feature_and_tells_new_rows(tmp_path):
    files = Files(tmp_path, STUDY.replace("[[pre", '[stream]\nwatermark = "time"\n[[pre', 1))
    for number, site in enumerate("abc"):
        frame = rows(100, number)
        frame["time"] = pd.date_range("2026-11-16", periods=100, freq="min").astype(str)
        frame.to_csv(tmp_path / f"{site}.csv", index=False)
    stream = Stream(files.plan)
    assert "300 rows" in stream.round()
    frame = rows(40, 9)  # the table holds the last rows alone
    frame["time"] = pd.date_range("2026-11-16 01:20", periods=40, freq="min").astype(str)
    frame.to_csv(tmp_path / "a.csv", index=False)
    assert "20 rows of 1 sites" in stream.round()
    assert "time" not in fs.load(tmp_path / "study")[0].feature_names_in_.tolist()


def test_drift_is_watched(files, tmp_path):
    stream = Stream(files.plan)
    stream.round()
    for number, site in enumerate("abc"):
        files.grow(site, 300, 20 + number)
    assert "DRIFT" not in stream.round()
    for number, site in enumerate("abc"):
        files.grow(site, 300, 30 + number, apart=3.0)
    assert "DRIFT" in stream.round()
    assert "round-3" in (tmp_path / "study" / "drift.html").read_text(encoding="utf-8")


def test_rows_that_are_alike_count_as_fewer(tmp_path):
    files = Files(tmp_path, STUDY.replace("[[pre", "[stream]\nalike = 300\n[[pre", 1))
    for rounds in range(2):
        for number, site in enumerate("abc"):
            files.grow(site, 300, 10 * rounds + number, apart=0.5 * rounds)
        assert "DRIFT" not in Stream(files.plan).round()  # 9 rows would not show it
    with pytest.raises(InputError, match="alike=0 must"):
        Files(tmp_path, STUDY.replace("[[pre", "[stream]\nalike = 0\n[[pre", 1))


def test_a_table_that_was_replaced_is_named_and_left_out(files, tmp_path):
    stream = Stream(files.plan)
    stream.round()
    rows(300, 77).to_csv(tmp_path / "a.csv", index=False)
    files.grow("b", 20, 5)
    line = stream.round()
    assert "20 rows of 1 sites" in line
    assert "it was replaced" in line


def test_rounds_are_repeated_at_their_time(files):
    waited = []
    run_stream(files.plan, every=6000.0, rounds=3, wait=waited.append)
    assert len(waited) == 2
    assert all(5000.0 < seconds <= 6000.0 for seconds in waited)


@pytest.mark.parametrize("accepted", [0, 1])
def test_a_stream_of_which_no_round_is_accepted_fails(files, monkeypatch, capsys, accepted):
    outcomes = [None] * accepted + [FedspanError("2 of 3 sites answered")] * 2
    monkeypatch.setattr(Stream, "round", lambda stream: _outcome(outcomes.pop(0)))
    waited = []
    with nullcontext() if accepted else pytest.raises(FedspanError, match="2 of 3"):
        run_stream(files.plan, every=60.0, rounds=accepted + 2, wait=waited.append)
    assert not outcomes
    assert capsys.readouterr().out.count("was not accepted") == 1 + accepted


def _outcome(error):
    if error is not None:
        raise error
    return "round 1"


def test_a_kill_at_any_moment_loses_and_doubles_nothing(files, tmp_path):
    """A coordinator that is killed again and again while tables grow."""
    rng = np.random.default_rng(0)
    command = [sys.executable, "-m", "fedspan", "run", str(tmp_path / "study.toml"), "--partial", "--every", "0.01s"]
    state = tmp_path / "study" / "stream.json"

    def accepted():
        return json.loads(state.read_text())["round"] if state.exists() else 0

    def grow(number):
        for site in "abc":
            files.grow(site, int(rng.integers(1, 40)), 100 + 3 * number + ord(site))

    for number in range(3):
        grow(2 * number)
        done, until = accepted(), time.monotonic() + 300
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
            while accepted() == done:
                assert time.monotonic() < until, "no round in five minutes"
                time.sleep(0.01)
            grow(2 * number + 1)
            time.sleep(float(rng.uniform(0.0, 0.2)))
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
    stream = Stream(files.plan)
    stream.round()
    marks = {site: mark.rows for site, mark in stream.state.marks.items()}
    assert marks == {site: len(frame) for site, frame in files.frames.items()}
    assert fs.load(tmp_path / "study")[0].n_samples_seen_ == len(files.all_rows())
    files.scores_are_those_of_all_rows(fs.load(tmp_path / "study"), pipeline())


def test_sites_elsewhere_take_whole_blocks_by_secure_sums(tmp_path):
    """The path of a kit, with an embedded federation in its place."""
    text = '[[preprocess]]\nname = "FedStandardScaler"\n[model]\nname = "FedPCADetector"\n'
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")
    plan = read_study(tmp_path / "study.toml", at_sites=True)
    frames = {site: rows(110, number).drop(columns="proto") for number, site in enumerate("abc")}
    offline, connections = set(), []

    class Connection(fs.LocalFederation):
        """As of a kit: it ends when it is closed itself, and not by closing a view of it."""

        def close(self):
            super().close()
            connections.remove(self)

    def connect():
        assert not connections  # a site reads its table again when no user is connected
        sites = [fs.Site(site, frame) for site, frame in frames.items() if site not in offline]
        connections.append(Connection(sites, policy=Policy(secure_sum=True)))
        return connections[-1]

    stream = Stream(plan, connect)
    assert "300 rows of 3 sites" in stream.round()
    offline.add("c")
    for number, site in enumerate("abc"):
        new = rows(50, 10 + number).drop(columns="proto")
        frames[site] = pd.concat([frames[site], new], ignore_index=True)
    assert "120 rows of 2 sites" in stream.round()
    offline.clear()
    assert "only c has new rows" in stream.round()
    frames["a"] = pd.concat([frames["a"], rows(30, 5).drop(columns="proto")], ignore_index=True)
    assert "80 rows of 2 sites" in stream.round()
    assert not connections
    scaler = fs.load(tmp_path / "study")[0]
    assert scaler.n_samples_seen_ == 500
    expected = np.concatenate([frame.to_numpy()[: 180 if site == "a" else 160] for site, frame in frames.items()])
    np.testing.assert_allclose(scaler.mean_, expected.mean(axis=0), atol=1e-6)


def test_what_cannot_work_is_refused(files, tmp_path, capsys):
    path = str(tmp_path / "study.toml")
    for options, words in (
        (["--every", "1h"], "go with --partial"),
        (["--partial", "--resume"], "continues by itself"),
        (["--partial", "--every", "soon"], "must be a duration"),
    ):
        assert main(["run", path, *options]) == 2
        assert words in " ".join(capsys.readouterr().err.split())
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "other.txt").write_text("x")
    with pytest.raises(InputError, match="by no stream"):
        Stream(files.plan)
