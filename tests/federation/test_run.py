"""Runs: seeds decide results, and observers and records see what happens."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.attacks import SignFlip
from fedspan.errors import (
    InputError,
    MessageError,
)
from fedspan.federation import Observer
from fedspan.federation.record import RunRecord

from .conftest import count, make_sites, wander


def result(seed=3, reverse=False, **options):
    sites = make_sites()
    fed = fs.LocalFederation(sites[::-1] if reverse else sites, seed=seed, **options)
    return fed.run(wander).tobytes()


def test_order_threads_and_wire_change_nothing():
    expected = result()
    assert result(reverse=True) == expected
    assert result(n_jobs=4) == expected
    assert result(wire=True) == expected
    assert result(wire=True, n_jobs=3, reverse=True) == expected


def test_the_seed_decides():
    assert result(seed=3) != result(seed=4)


def test_a_second_run_has_the_same_seed():
    fed = fs.LocalFederation(make_sites(), seed=5)
    first, second = fed.run(wander), fed.run(wander)
    np.testing.assert_array_equal(first, second)
    other = fed.run(wander, random_state=6)
    assert not np.array_equal(first, other)
    np.testing.assert_array_equal(fed.run(wander, random_state=5), first)


def test_protocols_called_on_the_federation_itself_share_one_run():
    fed = fs.LocalFederation(make_sites())
    first = wander(fed)
    np.testing.assert_array_equal(first, fs.LocalFederation(make_sites()).run(wander))
    wander(fed)
    assert [call.number for call in fed.record.calls] == list(range(20))


def test_a_site_draws_by_seed_name_and_call_whichever_other_sites_there_are():
    @fs.step
    def draw(site):
        return {"x": site.rng.random()}

    whole = fs.LocalFederation(make_sites(), seed=1)
    part = fs.LocalFederation(make_sites()[2:4], seed=1)
    assert whole.ask(draw)["s3"]["x"] == part.ask(draw)["s3"]["x"]
    assert whole.ask(draw, ["s3"])["s3"]["x"] == part.ask(draw)["s3"]["x"]
    draws = [reply["x"] for _ in range(3) for reply in whole.ask(draw).values()]
    assert len(set(draws)) == len(draws)


def test_rounds_stop_with_a_reason(fed):
    seen = []
    for t in fed.rounds(10):
        seen.append(t)
        if t == 2:
            fed.stop("close enough")
    assert seen == [0, 1, 2]
    assert fed.record.stopped == "close enough"
    assert list(fed.rounds(2)) == [0, 1]
    assert fed.record.stopped == "all 2 rounds done"


def test_log_takes_numbers_and_words_only(fed):
    for _ in fed.rounds(1):
        fed.ask(count)
        fed.log(loss=np.float32(0.5), note="fine", n=3)
    assert fed.record.metric("loss") == [0.5]
    assert fed.record.metrics[0].round == 0
    with pytest.raises(InputError, match="takes a number or text"):
        fed.log(x=np.zeros(2))
    with pytest.raises(MessageError, match="'x' holds a list"):
        fed.log(x=[1])


def test_leaving_the_loop_early_ends_the_round(fed):
    for t in fed.rounds(5):
        fed.log(round=t, seconds=1.5)
        if t == 1:
            break
    del t
    import gc

    gc.collect()
    fed.ask(count)
    assert fed.record.calls[0].round is None
    frame = fed.record.to_frame()
    assert frame["round (logged)"].tolist() == [1]
    assert frame["seconds"].iloc[0] != 1.5


def test_the_record_of_a_closed_federation(tmp_path):
    with fs.LocalFederation(make_sites(), run_dir=tmp_path) as fed:
        fed.ask(count)
        record = fed.record
    assert record.stopped == "closed"
    assert "closed" in (tmp_path / "run-000" / "record.jsonl").read_text().splitlines()[-1]


def test_a_folder_that_cannot_be_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(fs.errors.InputError, match="cannot be used"):
        fs.LocalFederation(make_sites(), run_dir=tmp_path / "file").ask(count)


def test_the_record_of_a_failed_run():
    fed = fs.LocalFederation(make_sites())
    with pytest.raises(RuntimeError), fed.begin("test") as run:
        raise RuntimeError("out of luck")
    assert run.record.stopped == "failed: RuntimeError: out of luck"
    assert "out of luck" in run.record.summary()


def test_a_package_that_the_run_loads_is_in_its_versions(monkeypatch, tmp_path):
    """At first the record has what is loaded when the run begins, so that a killed run has it; then what came later."""
    import sys

    monkeypatch.delitem(sys.modules, "nvflare", raising=False)
    fed = fs.LocalFederation(make_sites(), run_dir=tmp_path)
    with fed.begin("test") as run:
        file = tmp_path / "run-000" / "record.jsonl"
        run.ask(count)
        early = RunRecord.from_lines(file.read_text().splitlines()).versions
        monkeypatch.setitem(sys.modules, "nvflare", sys)
    assert "nvflare" not in early
    assert early["scipy"] == run.record.versions["scipy"]
    assert "nvflare" in run.record.versions
    assert RunRecord.from_lines(file.read_text().splitlines()).versions == run.record.versions


def test_a_resumed_run_has_the_threads_of_its_journal(tmp_path):
    from threadpoolctl import threadpool_limits

    def begun():
        return fs.LocalFederation(make_sites(), run_dir=tmp_path).begin("test")

    def cut_short():
        with begun() as run:
            run.ask(count)
            raise RuntimeError

    with threadpool_limits(2, user_api="blas"), pytest.raises(RuntimeError):
        cut_short()
    with threadpool_limits(1, user_api="blas"), begun() as run:
        run.ask(count)
        # Also where it is killed now.
        early = RunRecord.from_lines((tmp_path / "run-000" / "record.jsonl").read_text().splitlines())
        assert early.versions["BLAS threads"] == "2"
    assert run.record.versions["BLAS threads"] == "2"


class Listener(Observer):
    """Keeps what it is notified of."""

    def __init__(self):
        self.lines = []

    def began(self, record):
        self.lines.append(("began", record.what))

    def round(self, number, of):
        self.lines.append(("round", number, of))

    def called(self, call):
        self.lines.append(("called", call.number))

    def logged(self, metrics):
        self.lines.append(("logged", metrics.values))

    def ended(self, record):
        self.lines.append(("ended", record.stopped))


def test_observers_are_notified_as_the_run_goes(fed):
    for_all, for_one = Listener(), Listener()
    fed.observe(for_all)
    with fed.begin("test", observers=[for_one]) as run:
        for t in run.rounds(2):
            run.ask(count)
            run.log(t=t)
    rounds = [line for t in (0, 1) for line in (("round", t, 2), ("called", t), ("logged", {"t": t}))]
    expected = [("began", "test"), *rounds, ("ended", "all 2 rounds done")]
    assert for_one.lines == expected
    assert for_all.lines == expected


def test_what_can_not_observe_or_attack_is_refused_before_any_run(fed):
    with pytest.raises(InputError, match="observe takes an Observer"):
        fed.observe(3)
    for attack in ("SignFlip", SignFlip):
        with pytest.raises(InputError, match="an attack is a callable"):
            fed.corrupt(attack, sites=["a"])
