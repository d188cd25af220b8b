"""The regression check: what counts as worse, and what the command says of it. Nothing is timed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from benchmarks import __main__ as command
from benchmarks.battery import check, page, pictures, results, running, scaling
from benchmarks.battery.ratio import LeftOut, Ratio

MACHINE = {"processor": "some", "cores": "2", "system": "Linux", "python": "3.11"}


def ratio(*turns, peer="peer", quality=None):
    return Ratio("work", peer, turns, 1.0, 2.0, "", quality or {})


def kept(*ratios, left_out=()):
    return results.Results(MACHINE, {}, {"module": list(ratios)}, list(left_out))


@pytest.mark.parametrize(
    ("now", "word"),
    [((3.0,), "worse"), ((3.21,), "same"), ((4.0,), "same"), ((4.9,), "same"), ((5.1,), "better")],
)
def test_without_spread_a_fifth_may_be_lost(now, word):
    [verdict] = check.judged(ratio(4.0, 4.0, 4.0), ratio(*now))
    assert verdict.word == word


def test_the_wider_spread_of_the_two_runs_is_what_is_allowed():
    wide = ratio(3.6, 3.8, 4.0, 4.2, 4.4)  # quartiles 3.8 and 4.2: a factor of 1.105, and 1.35 to the third
    for stored, now in ((wide, ratio(3.05)), (ratio(4.0), ratio(2.8, 2.9, 3.05, 3.2, 3.4))):
        assert [verdict.word for verdict in check.judged(stored, now)] == ["same"]
    assert [verdict.word for verdict in check.judged(wide, ratio(2.9))] == ["worse"]


def test_a_spread_that_hides_a_loss_of_half_is_not_called_the_same():
    noisy = ratio(1.0, 2.0, 4.0, 6.0, 8.0)
    assert [verdict.word for verdict in check.judged(noisy, ratio(4.0))] == ["cannot tell"]
    assert [verdict.word for verdict in check.judged(noisy, ratio(0.01))] == ["worse"]


def test_no_noise_hides_a_loss_of_more_than_a_third():
    noisy = ratio(1.0, 1.5, 2.0, 2.3, 6.0)
    [verdict] = check.judged(ratio(7.2), noisy)
    assert (verdict.word, verdict.details) == ("worse", "7.2x then, 2.0x now, tolerance 1.50")
    for before, word in ((3.1, "worse"), (2.9, "cannot tell"), (1.4, "cannot tell"), (1.3, "better")):
        assert [verdict.word for verdict in check.judged(ratio(before), noisy)] == [word]


@pytest.mark.parametrize(
    ("then", "now", "words"),
    [
        ((1.0, 2.0), (2.1, 2.0), ["same", "worse"]),  # ours has 1 s of the processor, the peer 2
        ((1.0, 2.0), (1.9, 2.0), ["same"]),
        ((1.0, 2.0), (2.1, 4.0), ["same"]),  # a busy machine: the peer waits as well
        ((1.0, 2.0), (4.1, 4.0), ["same", "worse"]),
        ((1.0, 4.0), (2.1, 2.0), ["same", "worse"]),  # a peer that waits less excuses nothing
        ((5.0, 2.0), (9.9, 2.0), ["same"]),
        (None, (9.0, 2.0), ["same"]),
        ((1.0, 2.0), None, ["same"]),
    ],
)
def test_ours_is_worse_when_it_begins_to_wait(then, now, words):
    stored, found = (replace(ratio(2.0), clock=clock) for clock in (then, now))
    verdicts = list(check.judged(stored, found))
    assert [verdict.word for verdict in verdicts] == words
    assert verdicts[-1].name.endswith("| waiting") == ("worse" in words)


def test_what_is_stored_without_the_clock_is_said(capsys):
    check.report(kept(ratio(2.0), replace(ratio(2.0, peer="b"), clock=(1.0, 2.0))), kept(ratio(2.0)))
    assert "(1 are stored without the time on the clock" in capsys.readouterr().out


def test_what_should_be_measured_once_more():
    wide = (1.0, 2.0, 4.0, 6.0, 8.0)
    stored = kept(*(ratio(4.0, peer=peer) for peer in "abcd"), ratio(*wide, peer="e"))
    now = kept(ratio(2.0, peer="a"), ratio(*wide, peer="b"), ratio(4.0, peer="c"), ratio(4.0, peer="e"))
    now.ratios["module"] += [ratio(1.0, peer="new")]
    assert check.doubtful(stored, now, "module") == {"work | a", "work | b"}  # more turns do not help what is stored
    assert check.doubtful(stored, now, "other") == set()


@pytest.mark.parametrize(("ours", "word"), [(0.90, "same"), (0.885, "same"), (0.87, "worse"), (0.93, "better")])
def test_quality_is_judged_against_the_peer(ours, word):
    stored = ratio(1.0, quality={"CA10": (0.90, 0.91)})
    verdicts = list(check.judged(stored, ratio(1.0, quality={"CA10": (ours, 0.91)})))
    assert [verdict.word for verdict in verdicts] == ["same", word]
    both = ratio(1.0, quality={"CA10": (0.80, 0.81)})  # other rows, which are harder for both
    assert [verdict.word for verdict in check.judged(stored, both)] == ["same", "same"]


def test_what_is_not_installed_is_said_and_counted_and_is_no_failure(capsys):
    stored = kept(ratio(2.0, peer="gone, T=3"), ratio(2.0))
    now = kept(
        *(ratio(2.0, peer="new"), ratio(2.0)), left_out=[LeftOut("module", "gone or torch is not installed", "gone")]
    )
    assert check.report(stored, now) == 0
    printed = capsys.readouterr().out
    assert "not stored: work | new" in printed
    assert "left out: work | gone, T=3" in printed
    assert "left out: module: gone or torch is not installed" in printed
    assert "0 of 1 became worse; 1 not stored; 1 left out" in printed


@pytest.mark.parametrize("left_out", [(), [LeftOut("module", "why", "gone")], [LeftOut("other", "why")]])
def test_a_stored_comparison_that_is_not_made_for_no_reason_is_a_failure(left_out, capsys):
    stored = kept(ratio(2.0, peer="lost"), ratio(2.0))
    assert check.report(stored, kept(ratio(2.0), left_out=left_out)) == 1
    printed = capsys.readouterr().out
    assert "not measured now: work | lost" in printed
    assert "0 of 1 became worse; 1 not measured now" in printed


def test_a_module_that_has_nothing_now_is_missed_and_one_that_was_not_asked_is_not():
    stored = results.Results(MACHINE, {}, {"a": [ratio(2.0)], "b": [ratio(2.0, peer="b")]})
    asked = results.Results(MACHINE, {}, {"a": [ratio(2.0)], "b": []})
    assert check.report(stored, asked) == 1
    assert check.report(stored, results.Results(MACHINE, {}, {"a": [ratio(2.0)]})) == 0
    asked.left_out = [LeftOut("b", "torch is not installed")]
    assert check.report(stored, asked) == 0


def test_nothing_compared_is_a_failure():
    assert check.report(kept(), kept(ratio(2.0, peer="b"))) == 1


def test_another_machine_is_said(capsys):
    now = kept(ratio(2.0))
    now.machine = MACHINE | {"cores": "64"}
    check.report(kept(ratio(2.0)), now)
    assert "this is some, 64 cores, Linux, Python 3.11: ratios of other machines may differ" in capsys.readouterr().out


@pytest.mark.parametrize(("second", "code"), [(3.9, 0), (2.0, 1)])
def test_the_command_measures_what_seems_worse_a_second_time(second, code, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(results, "STORED", tmp_path / "results.json")
    kept_ones = {"fedpg": [ratio(4.0), ratio(4.0, peer="c")], "feddl": [ratio(4.0, peer="b")]}
    results.Results(MACHINE, {}, kept_ones).save()
    asked = []

    def run(names, times=1):
        asked.append((names, times))
        again = len(asked) == 2
        found = kept_ones | {"fedpg": [ratio(second if again else 2.0), ratio(1.0 if again else 4.0, peer="c")]}
        return results.Results(MACHINE, {}, {name: found[name] for name in names})

    monkeypatch.setattr(running, "run", run)
    assert command.main(["--check", "fedpg", "feddl"]) == code
    assert asked == [(["fedpg", "feddl"], 1), (["fedpg"], 2)]
    printed = capsys.readouterr().out
    assert ("worse        work | peer: 4.0x then, 2.0x now, tolerance 1.25" in printed) == bool(code)
    assert "same         work | c: 4.0x then, 4.0x now" in printed  # it was not in doubt


def test_the_command_leaves_results_page_and_pictures(monkeypatch, tmp_path, capsys):
    (tmp_path / "_static").mkdir()
    monkeypatch.setattr(results, "STORED", tmp_path / "results.json")
    monkeypatch.setattr(page, "PAGE", tmp_path / "benchmarks.md")
    monkeypatch.setattr(running, "run", lambda names: results.Results(MACHINE, {}, {"fedpg": [ratio(4.0)]}))
    size = {"axis": "rows", "sites": 2, "columns": 2, "seconds": 1.0, "loop": 1.0, "bytes": 10}
    points = [size | {"protocol": name, "rows": n} for name in pictures.COLOURS for n in (10, 100)]
    monkeypatch.setattr(scaling, "measured", lambda: points)
    assert command.main([]) == 0
    assert results.Results.load().scaling == points
    written = (tmp_path / "benchmarks.md").read_text(encoding="utf-8")
    assert "| work | 4.0 [4.0, 4.0] | 1.0 s, 2.0 s |" in written.replace("\u00a0", " ")
    assert "(_static/scaling-rows.svg)" in written
    drawn = (tmp_path / "_static" / "scaling-rows.svg").read_text(encoding="utf-8")
    (tmp_path / "benchmarks.md").unlink()
    (tmp_path / "_static" / "scaling-rows.svg").unlink()
    assert command.main(["--page"]) == 0
    assert (tmp_path / "benchmarks.md").read_text(encoding="utf-8") == written
    assert (tmp_path / "_static" / "scaling-rows.svg").read_text(encoding="utf-8") == drawn


def test_a_name_runs_what_the_module_declares(monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(
        running, "declared", lambda: {"a": ({"compare"}, ""), "b": ({"main"}, ""), "c": ({"main", "compare"}, "")}
    )
    monkeypatch.setattr(running, "run", lambda names: asked.append(("compare", *names)))
    monkeypatch.setattr(
        command.importlib, "import_module", lambda name: SimpleNamespace(main=lambda: asked.append(name))
    )
    assert command.main(["a", "b", "c"]) == 0
    assert asked == [("compare", "a"), "benchmarks.b", ("compare", "c"), "benchmarks.c"]


def test_a_name_that_is_none_is_refused(capsys):
    assert command.main(["maps", "fedpq"]) == 2
    assert "there is no benchmark fedpq; there are altgdmin, " in capsys.readouterr().err
