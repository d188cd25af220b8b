"""A monitor of drift: soon where it is, rarely where it is not, with its columns and its beginning."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline

import fedspan as fs
from fedspan.errors import InputError
from fedspan.report import write_drift_page

SITES = np.arange(4000) % 4
MIXING = np.random.default_rng(9).normal(size=(3, 6))


def rows(n, seed, moved=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) @ MIXING + 0.3 * rng.normal(size=(n, 6))
    X[:, 2] += moved
    return X


def watched(moves, seed=0, **options):
    """Return a monitor that ran with partial fits; `moves` has the shift of a column in each window."""
    model = fs.FedPCADetector().fit(rows(4000, 1000 * seed), sites=SITES)
    monitor = fs.DriftMonitor(model, **options)
    for hour, moved in enumerate(moves):
        fed = fs.federate(rows(4000, 1000 * seed + hour + 1, moved), sites=SITES)
        model.partial_fit(fed, batch=f"hour {hour}", monitor=monitor)
    return monitor


def test_a_sudden_shift_is_found_at_once_with_its_column_and_its_beginning():
    monitor = watched([0, 0, 0, 0, 0, 1.0, 1.0])
    assert [window.drifted for window in monitor.windows] == [False] * 5 + [True] * 2
    last = monitor.windows[-1]
    assert last.columns[0] == "feature 2"
    assert last.since == "hour 5"
    assert last.sites == ("0", "1", "2", "3")
    assert "hour 6" in monitor.summary()


def test_a_shift_too_small_for_one_window_adds_up():
    moves = [0.0] * 4 + [0.08] * 12
    monitor = watched(moves)
    found = [window for window in monitor.windows if window.drifted]
    assert found
    assert found[0].span > 1
    assert not any(window.drifted for window in monitor.windows[:4])


def test_false_alarms_are_rare():
    assert not any(window.drifted for seed in range(3) for window in watched([0.0] * 20, seed=seed).windows)


def test_rows_that_follow_one_another_and_are_alike_count_as_fewer():
    def alarms(alike, moved):
        rng = np.random.default_rng(0)
        noise = rng.normal(size=(48_000, 6)) * np.sqrt(1 - 0.9**2)
        X = np.zeros((48_000, 6))
        for i in range(1, len(X)):
            X[i] = 0.9 * X[i - 1] + noise[i]
        model = fs.FedPCADetector().fit(X[:8000], sites=np.repeat(np.arange(2), 4000))
        monitor = fs.DriftMonitor(model, alike=alike)
        X[-4000:, 1] += moved
        found = [monitor.watch(part, sites=np.repeat(np.arange(2), 2000)) for part in np.split(X[8000:], 10)]
        return [window.drifted for window in found]

    assert sum(alarms(1.0, 0.0)) > 5
    assert alarms(19.0, 1.5) == [False] * 9 + [True]


def test_one_site_that_moves_is_named():
    model = fs.FedPCADetector().fit(rows(4000, 0), sites=SITES)
    monitor = fs.DriftMonitor(model)
    for hour in range(6):
        X = rows(4000, hour + 1)
        X[SITES == 1, 2] += 0.5 * (hour == 5)
        found = monitor.watch(fs.federate(X, sites=SITES))
    assert found.sites == ("1",)
    assert found.drifted
    assert found.since


def test_a_window_is_watched_once_and_an_accepted_drift_is_no_drift():
    monitor = watched([0, 0, 2.0])
    again = fs.federate(rows(4000, 3, 2.0), sites=SITES)
    assert monitor.watch(again, window="hour 2") is None
    assert monitor.watch(again, window="hour 3").drifted
    monitor.accept()
    assert not monitor.watch(fs.federate(rows(4000, 99, 2.0), sites=SITES), window="hour 4").drifted


def test_secure_sums_are_watched_together():
    model = fs.FedPCADetector().fit(rows(2000, 0))
    monitor = fs.DriftMonitor(model)
    fed = fs.federate(rows(400, 1, 2.0), sites=np.arange(400) % 4, policy=fs.Policy(secure_sum=True))
    found = monitor.watch(fed)
    assert found.drifted
    assert found.sites == ()


def test_a_site_that_is_off_is_no_drift():
    """Sites that differ, of which one is off in some windows, and another has more rows."""
    model = fs.FedPCADetector().fit(apart([1000, 1000, 1000], 0))
    monitor = fs.DriftMonitor(model)
    for hour, sizes in enumerate([[1000, 1000, 1000]] * 6 + [[1000, 1000, 0], [500, 1500, 1000], [1000, 1000, 1000]]):
        assert not monitor.watch(apart(sizes, hour + 1)).drifted
    assert monitor.watch(apart([1000, 1000, 0], 20, moved=1.0)).drifted


def apart(sizes, seed, moved=0.0):
    sites = []
    for number, n in enumerate(sizes):
        X = rows(n, 10 * seed + number, moved) + 1.5 * number
        sites += [fs.Site(f"site-{number}", X)] if n else []
    return fs.LocalFederation(sites)


def frames(seed, moved=0.0):
    """Rows with a text column, half of each name: in units of its deviation these are -1 and 1."""
    rng = np.random.default_rng(seed)
    names = rng.permutation(np.repeat(["tcp", "udp"], 600))
    found = pd.DataFrame({"x": rng.normal(size=1200) + moved, "y": rng.normal(size=1200), "proto": names})
    return fs.federate(found, sites=np.arange(1200) % 3)


def test_a_monitor_of_a_pipeline_keeps_its_units_while_these_follow_the_stream(tmp_path):
    model = make_pipeline(fs.FedTabularEncoder(), fs.FedPCADetector())
    fs.partial_fit(model, frames(0))
    monitor = fs.DriftMonitor(model)
    for hour in range(14):
        moved = max(0, hour - 5) * 0.06
        fs.partial_fit(model, frames(hour + 1, moved), decay=0.2, batch=f"hour {hour}", monitor=monitor)
    found = [window.drifted for window in monitor.windows]
    assert not any(found[:6])
    assert all(found[-4:])
    assert monitor.windows[-1].columns == ("x",)
    monitor.save(tmp_path)
    again = frames(99, 1.0)
    assert fs.DriftMonitor.load(tmp_path).watch(again) == monitor.watch(again)


def test_drift_of_a_pipeline_that_learned_on():
    model = make_pipeline(fs.FedTabularEncoder(), fs.FedPCADetector())
    for seed in range(3):
        fs.partial_fit(model, frames(seed, 0.05 * seed))
    assert not fs.drift(model, frames(9, 0.05)).drifted
    assert fs.drift(model, frames(9, 0.05), baseline=frames(8, 1.0)).columns == ("x",)
    assert fs.drift(model, frames(9, 1.0)).columns == ("x",)


def test_it_is_saved_loaded_and_goes_on(tmp_path):
    monitor = watched([0, 0, 0, 0, 0, 1.0], alike=2.0)
    monitor.save(tmp_path / "monitor")
    loaded = fs.DriftMonitor.load(tmp_path / "monitor")
    assert loaded.windows == monitor.windows
    fed = fs.federate(rows(4000, 50, 1.0), sites=SITES)
    assert loaded.watch(fed, window="x") == monitor.watch(fed, window="x")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("alpha", None),
        ("seen", []),
        ("streams", {"": ["x"] * 9}),
        ("windows", [{"rows": 1}]),
        ("edges", {}),
        ("settle", []),
    ],
)
def test_a_crafted_folder_is_refused(tmp_path, name, value):
    watched([0, 1.0]).save(tmp_path / "monitor")
    arrays = dict(np.load(tmp_path / "monitor" / "monitor.npz"))
    arrays["about"] = np.array(json.dumps(json.loads(str(arrays["about"])) | {name: value}))
    np.savez(tmp_path / "monitor" / "monitor.npz", **arrays)
    with pytest.raises(InputError, match="folder of a monitor"):
        fs.DriftMonitor.load(tmp_path / "monitor")


def test_its_page_shows_time_columns_and_windows(tmp_path):
    monitor = watched([0, 0, 1.0])
    text = write_drift_page(tmp_path / "drift.html", monitor, title="Gateways").read_text(encoding="utf-8")
    for words in ("Gateways", "feature 2", "hour 2", "Over time", "1 of 3 windows show drift"):
        assert words in text
    empty = fs.DriftMonitor(fs.FedPCADetector().fit(rows(300, 0)))
    assert "No window" in write_drift_page(tmp_path / "none.html", empty).read_text(encoding="utf-8")


def test_what_cannot_work_is_refused(tmp_path):
    with pytest.raises(InputError, match="takes a detector"):
        fs.DriftMonitor(fs.FedPCA(2))
    model = fs.FedPCADetector().fit(rows(300, 0))
    with pytest.raises(InputError, match="alpha=2 must"):
        fs.DriftMonitor(model, alpha=2)
    with pytest.raises(InputError, match="alike=0 must"):
        fs.DriftMonitor(model, alike=0)
    with pytest.raises(InputError, match="no window yet"):
        fs.DriftMonitor(model).accept()
    with pytest.raises(InputError, match="not the folder of a monitor"):
        fs.DriftMonitor.load(tmp_path)
