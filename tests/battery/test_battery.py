"""The battery: what it is made of, how ratios are made, kept and shown. Nothing is timed."""

from __future__ import annotations

import doctest
import itertools
import json
import re
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from benchmarks import __main__ as main
from benchmarks import mixed_regression
from benchmarks.battery import check, page, pictures, ratio, results, running, scaling
from benchmarks.battery.ratio import LeftOut, Ratio

import fedspan as fs
from fedspan.linalg import polar_factor, subspace_distance
from fedspan.pca.covariance import covariance_pca
from fedspan.pca.fedpg import fedpg
from fedspan.pca.parts.orthogonal_iteration import random_basis
from fedspan.pca.subspace_median import subspace_median

PEERS = Ratio("work", "peer", (1.0, 2.0, 3.0, 4.0, 5.0), 0.5, 1.5, "equal", {"CA10": (0.91234, 0.9)})

CLOCKED = replace(PEERS, clock=(0.76543, 1.5))


@pytest.mark.parametrize("module", [ratio, check, mixed_regression], ids=lambda module: module.__name__)
def test_the_examples_in_docstrings_hold(module):
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0


def test_every_benchmark_declares_what_it_is():
    found = running.declared()
    assert [name for name, (functions, words) in found.items() if not functions or not words] == []
    listed = "geometric_median subspace_median fedpg exact_pca feddl maps mixed_regression engine_overhead wire_format"
    assert sorted(running.battery()) == sorted([*listed.split(), "detector_inference", "streams"])
    assert found["gpu"][0] == {"main"}


def test_the_turns_alternate_and_the_first_does_not_count(monkeypatch):
    calls = []
    times = {"ours": [9.0, 1.0, 2.0, 4.0], "a": [9.0, 2.0, 2.0, 2.0], "b": [9.0, 8.0, 8.0, 8.0]}

    def seconds(work):
        calls.append(work)
        seconds = times[work][calls.count(work) - 1]
        return np.array([seconds, 10.0 * seconds])

    monkeypatch.setattr(ratio, "seconds_of", seconds)
    a, b = ratio.compared("work", "ours", {"a": "a", "b": "b"}, turns=3, per=2, accuracy={"b": "less so"})
    assert calls == ["ours", "a", "b"] * 4
    assert (a.turns, a.ours, a.theirs, a.accuracy) == ((2.0, 1.0, 0.5), 1.0, 1.0, "")
    assert (b.turns, b.ours, b.theirs, b.accuracy) == ((8.0, 4.0, 2.0), 1.0, 4.0, "less so")
    assert b.quartiles == (3.0, 4.0, 6.0)
    assert b.clock == (10.0, 40.0)


def test_fresh_work_gets_a_new_thing_each_time(monkeypatch):
    clock = iter([0.0, 0.002, 1.0, 1.010, 2.0, 2.030])
    wall = iter([0.0, 0.5, 1.0, 1.1, 2.0, 2.3])
    monkeypatch.setattr(ratio.time, "process_time", lambda: next(clock))
    monkeypatch.setattr(ratio.time, "perf_counter", lambda: next(wall))
    made, used = [], []
    work = ratio.Fresh(lambda: made.append(len(made)) or len(made), used.append)
    assert ratio.seconds_of(work) == pytest.approx([0.010, 0.3])  # the median of 2, 10 and 30 ms; the mean
    assert used == [1, 2, 3]


def test_what_only_waits_is_not_repeated_for_long(monkeypatch):
    clock = itertools.count(0.0, 0.4)
    monkeypatch.setattr(ratio.time, "process_time", lambda: 0.0)
    monkeypatch.setattr(ratio.time, "perf_counter", lambda: next(clock))
    calls = []
    assert ratio.seconds_of(lambda: calls.append(1)) == pytest.approx([0.0, 0.4])
    assert len(calls) == 3


def test_the_turns_of_several_processes_are_put_together():
    first, second = Ratio("a", "b", (1.0, 2.0), 1.0, 2.0, "so"), Ratio("a", "b", (3.0, 4.0), 3.0, 4.0, "so")
    both = Ratio("a", "b", (1.0, 2.0, 3.0, 4.0), 2.0, 3.0, "so")
    assert running.merged([[first], [second]]) == [both]
    clocked = [[replace(first, clock=(1.0, 5.0))], [replace(second, clock=(3.0, 9.0))]]
    assert running.merged(clocked) == [replace(both, clock=(2.0, 7.0))]
    assert running._processes("wire_format") == running.PROCESSES == 3
    assert running._processes("maps") == 1


def test_a_process_leaves_what_it_finds(tmp_path, monkeypatch):
    folder = tmp_path / "results.json"
    monkeypatch.setattr(running, "comparisons", lambda name: iter([PEERS, LeftOut("fedpg", "why", "peer")]))
    running.alone("fedpg").save(folder)
    found = results.Results.load(folder)
    assert found.left_out == [LeftOut("fedpg", "why", "peer")]
    assert found.ratios["fedpg"][0].turns == PEERS.turns


def test_results_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "results.json"
    found = results.Results(
        {"cores": "2"}, {"numpy": "2"}, {"module": [PEERS, CLOCKED]}, [LeftOut("module", "why")], [{"axis": "sites"}]
    )
    found.save(path)
    again = results.Results.load(path)
    assert again.ratios["module"][0].turns == PEERS.turns
    assert [ratio.clock for ratio in again.ratios["module"]] == [None, (0.7654, 1.5)]
    assert again.ratios["module"][0].quality == {"CA10": (0.9123, 0.9)}
    again.save(path)
    assert results.Results.load(path) == again


def test_a_row_of_the_table():
    expected = "| name | 3.0 [2.0, 4.0] | 500 ms, 1.5 s | CA10 0.912, theirs 0.900; off by 2e-9 |"
    found = page.row("name", replace(PEERS, accuracy="off by 2e-9"))
    assert found.replace("\u00a0", " ").replace("\u2011", "-") == expected
    assert found.count("\u00a0") == 4
    assert page.row("name", CLOCKED).endswith("; equal; on the clock ours takes 765 ms |")
    for clock in ((0.7, 1.5), (0.8, 1.7)):  # little, and what the peer waits as well
        assert page.row("name", replace(CLOCKED, clock=clock)).endswith("; equal |")


def test_one_peer_gives_one_table_and_several_give_one_for_each_thing():
    left_out = [LeftOut("fedpg", "torch is old"), LeftOut("maps", "no")]
    found = results.Results({}, {}, {"fedpg": [PEERS, replace(PEERS, what="more")]}, left_out)
    lines = page.table(found, "fedpg").splitlines()
    assert [line.split(" | ")[0] for line in lines] == [
        *("| against peer", "|---|---|---|---|", "| work", "| more", "", "Left out: fedpg: torch is old."),
    ]
    found.ratios["fedpg"].append(replace(PEERS, what="more", peer="other"))
    lines = page.table(found, "fedpg").splitlines()
    header = ["| against", "|---|---|---|---|"]
    assert [line.split(" | ")[0] for line in lines if line] == [
        *("**work**", *header, "| peer", "**more**", *header, "| peer", "| other", "Left out: fedpg: torch is old."),
    ]
    assert page.table(found, "maps") == "Left out: maps: no."


def test_a_package_that_is_missing_leaves_its_lines_out(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "benchmarks.fedpg", raising=False)
    assert list(running.comparisons("fedpg")) == [LeftOut("fedpg", "torch is not installed")]


def test_a_part_that_is_missing_in_a_package_that_is_there_is_an_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "fedspan.pca.fedpg", None)
    monkeypatch.delitem(sys.modules, "benchmarks.fedpg", raising=False)
    with pytest.raises(ModuleNotFoundError, match="fedspan"):
        list(running.comparisons("fedpg"))


@pytest.mark.parametrize("times", [1, 2])
def test_more_turns_are_more_processes(times, monkeypatch, capsys):
    part = results.Results({}, {}, {"fedpg": [PEERS]}, [LeftOut("fedpg", "why")])
    monkeypatch.setattr(running, "_in_a_process", lambda name: part)
    found = running.run(["fedpg"], times=times)
    assert found.ratios["fedpg"][0].turns == PEERS.turns * (times * running._processes("fedpg"))
    assert found.left_out == part.left_out
    monkeypatch.setattr(running, "_in_a_process", lambda name: replace(part, ratios={}))
    assert running.run(["fedpg"]).ratios == {"fedpg": []}  # it was asked, and has nothing


def test_the_page_has_a_table_of_each_benchmark():
    words = page.WORDS.read_text(encoding="utf-8")
    assert sorted(re.findall(r"<<table (\w+)>>", words)) == sorted(running.battery())


def test_the_page_is_what_the_stored_results_give():
    stored = results.Results.load()
    assert page.PAGE.read_text(encoding="utf-8") == page.written(stored), "run: python -m benchmarks --page"
    assert sorted(stored.ratios) == sorted(running.battery())
    assert stored.left_out == []
    for axis, name in pictures.names(stored.scaling).items():
        drawn = pictures.picture(stored.scaling, axis)
        assert (page.PAGE.parent / "_static" / name).read_text(encoding="utf-8") == drawn
    assert list(pictures.names(stored.scaling)) == list(scaling.SIZES)


def test_the_stored_results_name_no_machine_and_no_folder():
    text = results.STORED.read_text(encoding="utf-8")
    assert sorted(json.loads(text)["machine"]) == ["cores", "processor", "python", "system"]
    assert "/home" not in text
    assert "/tmp" not in text
    assert "/work" not in text


def test_a_picture_has_the_points_where_they_belong():
    sizes = [{"axis": "rows", "rows": n, "seconds": 1e-3 * n, "loop": 1e-5 * n, "bytes": 100 * n} for n in (10, 1000)]
    points = [point | {"protocol": name} for point in sizes for name in pictures.COLOURS]
    drawn = ET.fromstring(pictures.picture(points, "rows"))
    words = [found.text for found in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {"exact PCA", "bare loop in numpy", "10", "100", "1,000", "1 s", "1 ms", "10 kB"} <= set(words)
    curves = [
        [float(place.split(",")[1]) for place in found.get("points").split()]
        for found in drawn.iter("{http://www.w3.org/2000/svg}polyline")
    ][4:]  # after those of the legend
    ours, loop = curves[:2]
    assert ours[0] > ours[1]  # more rows are higher up
    assert loop[0] - ours[0] == pytest.approx(ours[0] - ours[1], abs=0.2)  # a hundredth, and a hundred times as many
    assert len(curves) == 9


def test_a_scale_is_logarithmic():
    scale = pictures.Scale(1.0, 10_000.0, 0.0, 100.0)
    assert [scale(value) for value in (1.0, 100.0, 10_000.0)] == [0.0, 50.0, 100.0]
    assert scale.ticks() == [1.0, 10.0, 100.0, 1000.0, 10_000.0]
    assert pictures.Scale(1.0, 1e8, 0.0, 1.0).ticks() == [1e0, 1e2, 1e4, 1e6, 1e8]


@pytest.fixture
def sites():
    parts = scaling._parts(6, 40, 8)
    return parts, fs.LocalFederation([fs.Site(str(i), X) for i, X in enumerate(parts)])


def test_the_bare_loop_of_exact_pca_finds_the_same(sites):
    parts, fed = sites
    axes, _ = fed.run(covariance_pca, rank=scaling.RANK)
    assert subspace_distance(axes.components.T, scaling.exact_loop(parts)) < 1e-10


def test_the_bare_loop_of_the_subspace_median_finds_the_same(sites):
    parts, fed = sites
    found = fed.run(subspace_median, rank=scaling.RANK, output="eigenspace")
    assert subspace_distance(found.basis, scaling.median_loop(parts)) < 1e-5


def test_the_bare_loop_of_fedpg_finds_the_same(sites):
    parts, fed = sites
    with fs.LocalFederation([fs.Site("0", parts[0])]).begin("start", {}, 0) as run:
        start = random_basis(run.rng, 8, scaling.RANK)
    with fed.begin("fedpg", {}, 0) as run:
        found, _ = fedpg(run, **scaling.PROTOCOLS["FedPG"][1], n_columns=8)
    assert np.abs(polar_factor(scaling.fedpg_loop(parts, start)) - found).max() < 1e-8


def test_scaling_counts_bytes_and_times(capsys):
    points = scaling.measured({"sites": [(3, 20, 5)]})
    assert [point["protocol"] for point in points] == list(scaling.PROTOCOLS)
    assert all(point["seconds"] > 0 and point["loop"] > 0 for point in points)
    exact, median, fedpg = (point["bytes"] for point in points)
    assert 3 * 8 * 15 < exact < 3 * (8 * 15 + 200)  # d (d + 1) / 2 numbers a site
    assert 3 * 8 * 15 < median < 3 * (8 * 15 + 200)  # d r numbers a site
    assert fedpg > 2 * 3 * 8 * 15
    assert "3 sites x" in capsys.readouterr().out


def test_some_comparisons_replace_the_stored_ones(monkeypatch):
    def found(name, ours):
        return [Ratio(name, "peer", (1.0,), ours, 1.0)]

    stored = results.Results({"cores": "1"}, {}, {"kept": found("kept", 1.0), "again": found("again", 1.0)})
    monkeypatch.setattr(results.Results, "load", classmethod(lambda cls, path=None: stored))
    monkeypatch.setattr(
        running, "run", lambda names: results.Results({"cores": "2"}, {}, {"again": found("again", 2.0)})
    )
    shown = []
    monkeypatch.setattr(main, "show", shown.append)
    monkeypatch.setattr(results.Results, "save", lambda self, path=None: None)
    main.update(["again"])
    assert [one.ours for name in ("kept", "again") for one in shown[0].ratios[name]] == [1.0, 2.0]
    assert shown[0].machine == {"cores": "2"}
