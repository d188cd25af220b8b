"""Progress of work with the time that is left."""

from __future__ import annotations

import sys

import pytest

from fedspan import progress
from fedspan.federation import Metrics, RunRecord
from fedspan.progress import ProgressBar, WorkProgress


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    return now


def test_work_within_two_seconds_is_silent(clock, capsys):
    with WorkProgress("reading", 10) as work:
        clock[0] += 1.9
        work.done(5)
        clock[0] += 9
        work.done(5)  # all is done
    assert capsys.readouterr().err == ""


def test_longer_work_shows_its_share_and_the_time_left(clock, capsys):
    with WorkProgress("reading", 10) as work:
        for _ in range(4):
            clock[0] += 6
            work.done(2)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["reading: 20% done, about 24 s left", "reading: 60% done, about 12 s left"]


def test_a_terminal_gets_a_bar_that_goes_away(clock, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with WorkProgress("reading", 10) as work:
        clock[0] += 3
        work.done(2)
        bar, task = work._bar
        assert bar.tasks[task].completed == 0.2
        clock[0] += 3
        work.done(2)
        assert bar.tasks[task].fields["metrics"] == "about 9 s left"
    assert not bar.live.is_started


def test_rounds_show_the_most_time_that_is_left(clock, capsys):
    bar = ProgressBar()
    bar.began(RunRecord("FedPCA", {}, number=0, seed=0, sites=("a",)))
    bar.round(0, 100)
    clock[0] += 25
    bar.logged(Metrics(0, 0, {"loss": 0.5}))
    bar.round(10, 100)
    assert capsys.readouterr().err == "FedPCA: round 10 of 100, at most 4 min left, loss 0.5\n"
