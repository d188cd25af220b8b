"""A site's disk: whatever moment a process is killed in, what it has said is there, and nothing else."""

from __future__ import annotations

import os
import stat
import time

import numpy as np
import pytest

from fedspan.engines.remote.site import run_file
from fedspan.engines.remote.site.run_file import Recorded, RunFile
from fedspan.engines.remote.site.site_store import SiteStore
from fedspan.errors import FedspanError, InputError
from fedspan.federation.calls.call import Delivery
from fedspan.federation.site.state import Changes

from .network import Killed


def say(file, number, after, value, part=0):
    """Do with a file what a site's host does with a call that puts `value`."""
    if part == 0:
        file.kept.settle(after)
        file.kept.pending_number = number
    changes = Changes({"w": np.full(4, value)}, ("gone",))
    delivery = Delivery(number, {"x": np.full(3, value)}, 5, changes)
    call = Recorded(f"call {number} part {part}".encode(), f"sum {number}")
    file.kept.pending.append((call, delivery))
    file.answered(after, call, delivery)


def as_lists(message):
    return {key: value.tolist() for key, value in message.items()}


def told(file):
    """Return all that a file says."""
    kept = file.kept
    state = as_lists(kept.state)
    pending = [
        (
            call.told,
            call.session,
            d.number,
            d.rows,
            d.reply["x"].tolist(),
            d.changes.put["w"].tolist(),
            d.changes.deleted,
        )
        for call, d in kept.pending
    ]
    return (file.who, file.data, file.serial, file.least, file.ended), kept.number, kept.pending_number, state, pending


def steps(file):
    """Yield after each thing that a site writes."""
    file.begin("alice", "4x3")
    yield
    for number in range(4):
        file.see(10 + number)
        yield
        say(file, number, number - 1, float(number))
        yield
    file.secure(3)
    yield
    say(file, 3, 2, 9.0, part=1)
    yield
    file.kept.settle(3)
    file.kept.pending_number = 4
    file.failed(3, 4)
    yield
    file._write_anew()
    yield
    file.end()
    yield


def test_a_file_says_what_was_written(tmp_path):
    file = RunFile(tmp_path / "x.run")
    for _ in steps(file):
        assert told(RunFile(file.path)) == told(file)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600


@pytest.mark.parametrize("where", ["before", "within", "after"])
def test_a_kill_at_any_write_loses_nothing_that_was_said(tmp_path, monkeypatch, where):
    """Whenever a process is killed, the next one finds what was there before or after the write, never in between."""
    whole_write, whole_place = run_file.write, run_file.take_place
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

    def write(file, data):
        return fatal(lambda: whole_write(file, data), lambda: whole_write(file, data[: len(data) // 2]))

    def take_place(new, old):
        return fatal(lambda: whole_place(new, old), lambda: None)

    monkeypatch.setattr(run_file, "write", write)
    monkeypatch.setattr(run_file, "take_place", take_place)
    for kill in range(1, 100):
        countdown[0] = kill
        file = RunFile(tmp_path / f"{kill}.run")
        before = told(file)
        try:
            for _ in steps(file):
                before = told(file)
        except Killed:
            found = told(RunFile(file.path))
            # A write that was cut short has not happened: for the parts of the file that a reader can see.
            assert found in (before, told(file))
            if where == "after":
                assert RunFile(file.path).serial == file.serial
        else:
            assert kill > 15
            return
    pytest.fail("too many writes")


def test_a_file_is_written_anew_when_it_has_grown(tmp_path, monkeypatch):
    monkeypatch.setattr(run_file, "_LEAST_GROWN", 5000)
    file = RunFile(tmp_path / "x.run")
    file.begin("alice", "4x3")
    for number in range(60):
        file.see(number + 1)
        say(file, number, number - 1, float(number))
        assert file.path.stat().st_size < 6000
    assert told(RunFile(file.path)) == told(file)
    assert file.kept.state["w"].tolist() == [58.0] * 4


def test_damage_is_told_from_a_frame_cut_short(tmp_path):
    file = RunFile(tmp_path / "x.run")
    for _ in steps(file):
        if file.kept.number == 2:
            break
    whole = file.path.read_bytes()
    for at in (30, len(whole) // 2, len(whole) - 3):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        file.path.write_bytes(bytes(damaged))
        with pytest.raises(FedspanError, match=r"x\.run, is damaged"):
            RunFile(file.path)
    for size in range(len(whole) - 1, len(whole) - 200, -7):
        file.path.write_bytes(whole[:size])
        assert RunFile(file.path).kept.number in (1, 2)
        assert file.path.stat().st_size <= size


def test_a_full_disk_is_no_state(tmp_path, monkeypatch):
    """A write that fails is forgotten: what is on the disk counts, and the next write goes after it."""
    store = SiteStore(tmp_path / "a")
    file = store.run("r")
    file.begin("alice", "4x3")
    say(file, 0, -1, 1.0)
    before = told(RunFile(file.path))
    whole = run_file.write

    def full(descriptor, data):
        whole(descriptor, data[:20])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_file, "write", full)
    with pytest.raises(OSError, match="No space"):
        say(file, 1, 0, 2.0)
    monkeypatch.setattr(run_file, "write", whole)
    store.drop("r")
    assert told(store.run("r")) == before
    say(store.run("r"), 1, 0, 3.0)
    assert told(RunFile(file.path)) == told(store.run("r"))


def test_a_folder_is_private_and_used_by_one_process(tmp_path):
    (tmp_path / "deep" / "a").mkdir(parents=True, mode=0o755)
    store = SiteStore(tmp_path / "deep" / "a")
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700
    with pytest.raises(InputError, match="in use by another process"):
        SiteStore(store.folder, patience=0.0)
    store.close()
    SiteStore(store.folder, patience=0.0).close()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be used"):
        SiteStore(tmp_path / "file" / "a")


def test_old_runs_are_removed(tmp_path):
    store = SiteStore(tmp_path, keep_days=2.0)
    for run in ("old", "new"):
        store.run(run).begin("alice", "")
    old = store.run("old").path
    os.utime(old, (time.time() - 3 * 86400,) * 2)
    store.remove_old()
    assert sorted(tmp_path.glob("*.run")) == [store.run("new").path]


def test_runs_that_rest_are_on_the_disk_only(tmp_path):
    store = SiteStore(tmp_path)
    for number in range(100):
        file = store.run(f"run {number}")
        file.begin("alice", "")
        say(file, 0, -1, float(number))
    assert len(store._open) < 50
    assert store.run("run 3").kept.pending[0][1].reply["x"].tolist() == [3.0] * 3


def test_the_secret_is_made_once(tmp_path):
    store = SiteStore(tmp_path)
    assert store.secret() == store.secret()
    assert len(store.secret()) == 32
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
