"""A run on a site's disk: whenever a process is killed, what it has sent is there, and nothing else."""

from __future__ import annotations

import os
import shutil
import stat

import numpy as np
import pytest

from fedspan.durable import append_file
from fedspan.engines.remote.site import run_file
from fedspan.engines.remote.site.run_file import RecordedCall, RunFile
from fedspan.engines.remote.site.site_store import SiteStore
from fedspan.errors import FedspanError
from fedspan.federation.calls.call import Delivery
from fedspan.federation.site.state import Changes

from .network import Killed


def reply(file, number, after, value, part=0):
    """Do with a file what a site's host does with a call that puts `value`."""
    if part == 0:
        file.state.settle(after)
        file.state.pending_number = number
    changes = Changes({"w": np.full(4, value)}, ("gone",))
    delivery = Delivery(number, {"x": np.full(3, value)}, 5, changes)
    call = RecordedCall(f"call {number} part {part}".encode(), f"sum {number}")
    file.state.pending.append((call, delivery))
    file.answered(after, call, delivery)


def content(file):
    """Return all that a file holds, as plain values."""
    state = file.state
    pending = [
        (
            call.digest,
            call.session,
            delivery.number,
            delivery.rows,
            delivery.reply["x"].tolist(),
            delivery.changes.put["w"].tolist(),
            delivery.changes.deleted,
        )
        for call, delivery in state.pending
    ]
    values = {key: value.tolist() for key, value in state.state.items()}
    head = (file.who, file.data, file.serial, file.least, file.ended)
    return head, state.number, state.pending_number, values, pending


def on_disk(file):
    """Return all that another process finds in a file."""
    copy = RunFile(shutil.copy(file.path, file.path.with_suffix(".copy")))
    found = content(copy)
    copy.close()
    return found


def steps(file):
    """Yield after each thing that a site writes."""
    file.begin("alice", "4x3")
    yield
    for number in range(4):
        file.see(10 + number)
        yield
        reply(file, number, number - 1, float(number))
        yield
    file.secure(3)
    yield
    reply(file, 3, 2, 9.0, part=1)
    yield
    file.state.settle(3)
    file.state.pending_number = 4
    file.failed(3, 4)
    yield
    file._rewrite()
    yield
    file.end()
    yield


def test_a_file_holds_what_was_written(tmp_path):
    file = RunFile(tmp_path / "x.run")
    for _ in steps(file):
        assert on_disk(file) == content(file)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600


@pytest.mark.parametrize("where", ["before", "within", "after"])
def test_a_kill_at_any_write_loses_nothing_that_was_sent(tmp_path, monkeypatch, where):
    """Whenever a process is killed, the next one finds the content before or after the write, never in between."""
    whole_write, whole_replace = append_file._write, os.replace
    countdown = [0]

    def fatal(do, half):
        countdown[0] -= 1
        if countdown[0] != 0:
            return do()
        if where == "within":
            half()
        if where == "after":
            do()
        raise Killed

    def write(file, parts, at):
        whole = b"".join(parts)
        half = whole[: len(whole) // 2]
        return fatal(lambda: whole_write(file, parts, at), lambda: whole_write(file, (half,), at))

    def replace(new, old):
        return fatal(lambda: whole_replace(new, old), lambda: None)

    monkeypatch.setattr(append_file, "_write", write)
    monkeypatch.setattr(append_file.os, "replace", replace)
    for kill in range(1, 100):
        countdown[0] = kill
        file = RunFile(tmp_path / f"{kill}.run")
        before = content(file)
        try:
            for _ in steps(file):
                before = content(file)
        except Killed:
            if file.path.exists():
                assert on_disk(file) in (before, content(file))
        else:
            assert kill > 15
            return
    pytest.fail("too many writes")


def test_a_file_is_rewritten_when_it_has_grown(tmp_path, monkeypatch):
    monkeypatch.setattr(run_file, "_LEAST_GROWN", 5000)
    file = RunFile(tmp_path / "x.run")
    file.begin("alice", "4x3")
    for number in range(60):
        file.see(number + 1)
        reply(file, number, number - 1, float(number))
        assert file.path.stat().st_size < 6000
    assert file.state.state["w"].tolist() == [58.0] * 4
    assert on_disk(file) == content(file)


def test_damage_is_no_entry_that_was_cut_short(tmp_path):
    file = RunFile(tmp_path / "x.run")
    for _ in steps(file):
        if file.state.number == 2:
            break
    file.close()
    whole = file.path.read_bytes()
    for at in (30, len(whole) // 2):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        file.path.write_bytes(bytes(damaged))
        with pytest.raises(FedspanError, match=r"x\.run, is damaged"):
            RunFile(file.path)
    for size in range(len(whole) - 1, len(whole) - 200, -7):
        file.path.write_bytes(whole[:size])
        other = RunFile(file.path)
        assert other.state.number in (1, 2)
        other.close()
        assert file.path.stat().st_size <= size


def test_a_full_disk_is_no_state(tmp_path, monkeypatch):
    """A write that fails is forgotten: the disk's state counts, and the next write goes after it."""
    store = SiteStore(tmp_path / "a")
    file = store.run("r")
    file.begin("alice", "4x3")
    reply(file, 0, -1, 1.0)
    before = content(file)
    whole = append_file._write

    def full(descriptor, parts, at):
        whole(descriptor, (b"".join(parts)[:20],), at)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(append_file, "_write", full)
    with pytest.raises(FedspanError, match="can't be written"):
        reply(file, 1, 0, 2.0)
    monkeypatch.setattr(append_file, "_write", whole)
    store.drop("r")
    assert content(store.run("r")) == before
    reply(store.run("r"), 1, 0, 3.0)
    after = content(store.run("r"))
    store.drop("r")
    assert content(store.run("r")) == after


def test_a_large_reply_is_written_once(tmp_path, monkeypatch):
    monkeypatch.setattr(run_file, "_LEAST_GROWN", 2**12)
    rewritten = []
    monkeypatch.setattr(RunFile, "_rewrite", lambda self: rewritten.append(self._file.end))
    file = RunFile(tmp_path / "x.run")
    file.begin("alice", "4x3")
    file.state.settle(-1)
    delivery = Delivery(0, {"x": np.arange(5000.0)}, -1, Changes({}, ()))
    file.state.pending.append((run_file.RecordedCall(b"q", ""), delivery))
    file.answered(-1, run_file.RecordedCall(b"q", ""), delivery)
    assert file.path.stat().st_size > 40_000
    assert rewritten == []


@pytest.mark.parametrize("size", [0, 1, 100, 5000])
def test_a_file_that_another_program_cuts_or_lengthens_is_repaired_while_it_is_in_use(size, tmp_path):
    cut, whole = RunFile(tmp_path / "cut.run"), RunFile(tmp_path / "whole.run")
    for number, (_, _) in enumerate(zip(steps(cut), steps(whole), strict=True)):
        if number % 3 == 1:
            os.truncate(cut.path, size)
            cut.see(100 + number)
            whole.see(100 + number)
        if not cut.ended:
            assert on_disk(cut) == content(cut) == content(whole)
