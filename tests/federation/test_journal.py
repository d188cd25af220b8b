"""The journal: a run that was killed at any moment ends with the same bytes as one that never was."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import fedspan as fs
from fedspan.durable.append_file import AppendFile
from fedspan.errors import InputError, JournalError, QuorumError
from fedspan.federation.journal import Journal, read_journal
from tests.durable.entries import entry_bounds

from .conftest import make_sites, walk, wander

PROGRAM = Path(__file__).with_name("killed_run.py")


def federation(folder, wire=False, **options):
    return fs.LocalFederation(make_sites(), seed=3, wire=wire, run_dir=folder, **options)


@pytest.fixture
def expected():
    return fs.LocalFederation(make_sites(), seed=3).run(wander).tobytes()


@pytest.fixture
def journal(tmp_path):
    federation(tmp_path).run(wander)
    return tmp_path / "run-000" / "journal"


def test_a_journal_changes_nothing(tmp_path, wire, expected):
    assert federation(tmp_path, wire).run(wander).tobytes() == expected


def test_files_are_private(journal):
    for path in (journal, journal.with_name("record.jsonl")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_finished_run_returns_its_result_without_asking_anybody(journal, expected):
    folder = journal.parent.parent
    size = journal.stat().st_size
    fed = federation(folder)
    fed._root.engine.call = None  # a call raises an error
    assert fed.run(wander).tobytes() == expected
    assert journal.stat().st_size == size


def test_a_journal_of_other_attacks_or_faults_does_not_fit(journal):
    folder = journal.parent.parent
    with pytest.raises(JournalError, match="does not fit"):
        federation(folder).corrupt(lambda *_: {}, sites=["s0"]).run(wander)
    with pytest.raises(JournalError, match="does not fit"):
        federation(folder).with_faults(fs.FaultPlan(seed=1)).run(wander)


def test_totals_are_the_same_thing_fresh_and_replayed(tmp_path):
    @fs.step
    def parts(site):
        return {"v": np.ones(3), "zero": np.array(2.0), "n": 2}

    def kinds(fed):
        mean, total = fed.mean(parts), fed.sum(parts)
        return [
            (type(value), getattr(value, "flags", None) and value.flags.writeable)
            for value in (*mean.values(), *total.values())
        ]

    fresh = federation(tmp_path).run(kinds)
    assert federation(tmp_path).run(kinds) == fresh
    assert (np.ndarray, False) in fresh


def test_a_sum_that_cannot_be_made_is_journaled_too(tmp_path):
    @fs.step
    def words(site):
        return {"x": "text"}

    def patient(fed):
        try:
            fed.sum(words)
        except fs.errors.InputError as error:
            reported = str(error)
        return reported, fed.sum(walk, pull=0.1)["steps"]

    first = federation(tmp_path).run(patient)
    assert "is not a number" in first[0]
    assert federation(tmp_path).run(patient) == first


def test_a_reply_that_quotes_a_journal_does_not_damage_one(tmp_path):
    """A kill while such a reply is written leaves a torn entry, which looks as if others followed it."""
    federation(tmp_path).run(wander)
    quoted = (tmp_path / "run-000" / "journal").read_bytes()[:20_000]

    @fs.step
    def quote(site):
        return {"x": np.frombuffer(b"\n" + quoted, dtype=np.uint8)}

    def two(fed):
        fed.ask(quote)
        return fed.ask(quote).stack("x").sum()

    expected = federation(tmp_path / "quoting").run(two)
    journal = tmp_path / "quoting" / "run-000" / "journal"
    whole, bounds = journal.read_bytes(), entry_bounds(journal)
    for cut in (bounds[3] - 1, bounds[3] - 300, bounds[2] + len(quoted), bounds[2] - 5):
        journal.write_bytes(whole[:cut])
        assert federation(tmp_path / "quoting").run(two) == expected


def test_cut_within_and_between_entries_a_run_resumes_to_the_same_bytes(journal, expected, wire):
    """Whatever a kill leaves of the file; the sites begin without any state."""
    whole, bounds = journal.read_bytes(), entry_bounds(journal)
    for cut in [*bounds, *range(bounds[-3], bounds[-1], 29), *(start + 7 for start in bounds[:-1])]:
        journal.write_bytes(whole[:cut])
        assert federation(journal.parent.parent, wire).run(wander).tobytes() == expected
        assert len(entry_bounds(journal)) == len(bounds)


def test_a_damaged_entry_is_an_error_that_names_it_and_changes_nothing(journal):
    starts, data = entry_bounds(journal), journal.read_bytes()
    for number in (0, 1, 4):
        for offset in (0, 5, 40, starts[number + 1] - starts[number] - 1):
            damaged = bytearray(data)
            damaged[starts[number] + offset] ^= 0x01
            journal.write_bytes(damaged)
            with pytest.raises(JournalError, match=f"is damaged or was altered at entry {number} "):
                federation(journal.parent.parent).run(wander)
            assert journal.read_bytes() == damaged


def test_a_missing_entry_is_noticed(journal):
    starts, data = entry_bounds(journal), journal.read_bytes()
    journal.write_bytes(data[: starts[3]] + data[starts[4] :])
    with pytest.raises(JournalError, match="entry 3"):
        federation(journal.parent.parent).run(wander)


def test_a_journal_of_something_else_is_refused_with_a_sentence(journal):
    folder = journal.parent.parent

    def other(fed, *, rounds=6):
        return fed.ask(walk, pull=0.5).stack("steps")

    with pytest.raises(JournalError, match=r"its what was .*wander.* and is now .*other"):
        federation(folder).run(other)
    with pytest.raises(JournalError, match="settings was rounds=absent and is now rounds=7"):
        federation(folder).run(wander, rounds=7)
    with pytest.raises(JournalError, match="seed was 3 and is now 4"):
        federation(folder).run(wander, random_state=4)
    with pytest.raises(JournalError, match="sites was s0="):
        fs.LocalFederation(make_sites(rows=9), seed=3, run_dir=folder).run(wander)
    with pytest.raises(JournalError, match="sites was s0="):  # same shapes, other values
        fs.LocalFederation(make_sites(seed=1), seed=3, run_dir=folder).run(wander)
    with pytest.raises(JournalError, match="sites was s6="):
        fs.LocalFederation(make_sites(6), seed=3, run_dir=folder).run(wander)


def test_a_call_that_does_not_fit_is_refused(tmp_path):
    def one(fed):
        return fed.ask(walk, pull=0.5), fed.ask(walk, pull=0.5)

    one(federation(tmp_path))
    fed = federation(tmp_path)
    fed.ask(walk, pull=0.5)
    with pytest.raises(JournalError, match="another payload than this run's call 1"):
        fed.ask(walk, pull=0.6)
    with pytest.raises(JournalError, match="call 0"):
        federation(tmp_path).sum(walk, pull=0.5)
    with pytest.raises(JournalError, match="call 0"):
        federation(tmp_path).ask(walk, ["s0"], pull=0.5)


def test_a_shorter_or_longer_run_than_the_recorded_one_is_refused(tmp_path):
    calls = [3]

    def some(fed):
        for _ in range(calls[0]):
            fed.ask(walk, pull=0.5)

    federation(tmp_path).run(some)
    calls[0] = 2
    with pytest.raises(JournalError, match="recorded calls are left over"):
        federation(tmp_path).run(some)
    calls[0] = 4
    with pytest.raises(JournalError, match="finished run that made 3 calls"):
        federation(tmp_path).run(some)


def test_a_call_below_the_quorum_is_made_again_on_resume(tmp_path):
    ill = [True]

    @fs.step
    def sometimes(site):
        site.state["n"] = site.state.get("n", 0) + 1
        if ill[0] and site.state["n"] == 2:
            raise OSError("the power is off")
        return {"n": site.state["n"]}

    def three(fed):
        return [fed.sum(sometimes)["n"] for _ in range(3)]

    with pytest.raises(QuorumError, match="power is off"):
        federation(tmp_path).run(three)
    ill[0] = False
    assert federation(tmp_path).run(three) == [7, 14, 21]


def test_a_protocol_that_goes_on_without_a_quorum_resumes_too(tmp_path):
    @fs.step
    def never_at_s0(site):
        site.state["n"] = site.state.get("n", 0) + 1
        if site.name == "s0":
            raise OSError("gone")
        return {"n": site.state["n"]}

    def patient(fed):
        found = []
        for names in (["s0"], ["s1", "s2"], ["s0"], ["s1"]):
            try:
                found.append(int(fed.ask(never_at_s0, names).stack("n").sum()))
            except QuorumError as error:
                found.append(-len(error.failed))
        return found

    expected = [-1, 2, -1, 2]
    assert federation(tmp_path).run(patient) == expected
    journal = tmp_path / "run-000" / "journal"
    whole = journal.read_bytes()
    for cut in entry_bounds(journal)[1:]:
        journal.write_bytes(whole[:cut])
        assert federation(tmp_path).run(patient) == expected


def test_sums_keep_the_total_and_not_the_parts(tmp_path):
    secrets = {f"s{i}": 1234.5 + i for i in range(7)}

    @fs.step
    def secret(site):
        return {"x": secrets[site.name]}

    fed = federation(tmp_path)
    total = fed.run(lambda f: f.sum(secret)["x"])
    kept = (tmp_path / "run-000" / "journal").read_bytes()
    assert np.float64(total).tobytes() in kept
    for part in secrets.values():
        assert np.float64(part).tobytes() not in kept
    fed.run(lambda f: f.ask(secret))
    asked = (tmp_path / "run-001" / "journal").read_bytes()
    assert all(np.float64(part).tobytes() in asked for part in secrets.values())


def test_two_runs_of_one_federation_have_a_journal_each(tmp_path, expected):
    for _ in range(2):
        fed = federation(tmp_path)
        assert fed.run(wander).tobytes() == expected
        assert fed.run(wander, rounds=2).shape == (3,)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run-000", "run-001"]


def test_a_federation_that_is_still_open_passes_its_journal_on(tmp_path, expected):
    first = federation(tmp_path)
    wander(first)
    assert wander(federation(tmp_path)).tobytes() == expected
    with pytest.raises(JournalError, match="another federation of this process"):
        first.ask(walk, pull=0.1)


@pytest.mark.slow
def test_a_journal_in_use_by_another_process_is_refused(tmp_path):
    held = Journal(tmp_path / "journal", {"a": 1})
    code = "import sys, pathlib, fedspan.federation as f; f.Journal(pathlib.Path(sys.argv[1]), {'a': 1})"
    run = [sys.executable, "-c", code, str(held.path)]
    refused = subprocess.run(run, capture_output=True, text=True, check=False)
    assert "is in use by another process" in refused.stderr
    held.close()
    assert subprocess.run(run, check=False).returncode == 0


def test_the_record_of_a_resumed_run_is_whole(journal):
    bounds = entry_bounds(journal)
    journal.write_bytes(journal.read_bytes()[: bounds[6]])
    fed = federation(journal.parent.parent)
    with fed.begin(f"{wander.__module__}.wander", {}) as run:
        wander(run)
    record = run.record
    assert [call.replayed for call in record.calls] == [True] * 5 + [False] * 5
    assert [call.number for call in record.calls] == list(range(10))
    lines = journal.with_name("record.jsonl").read_text().splitlines()
    assert fs.RunRecord.from_lines(lines) == record


@pytest.fixture(scope="module")
def program():
    with subprocess.Popen(
        [sys.executable, str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        yield program
        program.stdin.close()


@pytest.mark.slow
@pytest.mark.parametrize(("wire", "faults"), [(0, 0), (1, 1)])
def test_killed_again_and_again_the_bytes_at_the_end_are_the_same(program, tmp_path, wire, faults):
    def start(folder, pause):
        print(folder, wire, faults, pause, file=program.stdin, flush=True)
        return int(program.stdout.readline())

    def ended():
        return program.stdout.readline().strip()

    start(tmp_path / "whole", 0.0)
    undisturbed = ended()
    assert undisturbed
    journal = tmp_path / "killed" / "run-000" / "journal"
    for wanted in (1, 5, 9, 14, 18):
        process = start(tmp_path / "killed", 0.02)
        until = time.monotonic() + 300.0
        while not (journal.exists() and len(entry_bounds(journal)) > wanted + 2):
            assert time.monotonic() < until
            time.sleep(0.001)
        os.kill(process, signal.SIGKILL)
        assert ended() == ""
    start(tmp_path / "killed", 0.0)
    assert ended() == undisturbed


def test_a_journal_is_read_by_others_as_it_was_written(journal):
    whole, bounds = journal.read_bytes(), entry_bounds(journal)
    head, entries = read_journal(journal)
    assert (head["format"], head["run"], head["seed"], head["settings"]) == (1, 0, 3, {})
    entries = list(entries)
    assert [entry.number for entry in entries] == list(range(10))
    assert entries[1].collected.answered == tuple(f"s{i}" for i in range(7))
    assert entries[1].collected.replies[""]["steps"] > 7
    assert journal.read_bytes() == whole
    for cut, left in ((bounds[4] + 9, 3), (bounds[4] - 1, 2), (bounds[4], 3), (bounds[1], 0)):
        journal.write_bytes(whole[:cut])
        assert [entry.number for entry in read_journal(journal)[1]] == list(range(left))
        assert journal.stat().st_size == cut  # nothing is cut off
    damaged = bytearray(whole)
    damaged[bounds[3] + 30] ^= 1
    for wrong in (damaged, whole[: bounds[2]] + whole[bounds[3] :]):
        journal.write_bytes(wrong)
        with pytest.raises(JournalError, match="is damaged or was altered"):
            read_journal(journal)


@fs.step
def first_column(site):
    return {"x": site.X[:, 0]}


def test_replies_of_two_sizes_are_read_as_they_were_written(tmp_path):
    """Those of one size are written with one size."""
    rows = {"a": 2, "b": 3, "c": 3}
    sites = [fs.Site(name, np.full((n, 1), float(n))) for name, n in rows.items()]
    with fs.LocalFederation(sites, run_dir=tmp_path) as fed:
        fed.ask(first_column)
    (entry,) = read_journal(next(tmp_path.glob("run-*")) / "journal")[1]
    assert {name: len(reply["x"]) for name, reply in entry.collected.replies.items()} == rows


def test_an_entry_that_lacks_a_field_is_damage(journal):
    file = AppendFile(journal, accept=lambda entry: None)
    file.append({"number": 10})
    file.close()
    with pytest.raises(JournalError, match="is damaged in one of its calls: KeyError"):
        list(read_journal(journal)[1])


def test_the_bytes_of_a_secure_sum_are_journaled_with_it(tmp_path):
    """Its messages are many, and cannot be counted again from the call."""
    secure = {"policy": fs.Policy(secure_sum=True)}
    with federation(tmp_path, **secure).begin("test") as run:
        run.sum(walk, pull=0.5)
    again = federation(tmp_path, **secure)
    with again.begin("test") as resumed:
        resumed.sum(walk, pull=0.5)
    [first], [call] = run.record.calls, resumed.record.calls
    assert call.replayed
    assert (call.bytes_down, call.bytes_up, call.seconds) == (first.bytes_down, first.bytes_up, first.seconds)
    [entry] = read_journal(tmp_path / "run-000" / "journal")[1]
    assert entry.collected.bytes_down == first.bytes_down
    assert min(entry.collected.bytes_down.values()) > 1000  # keys, shares, tags


def test_what_is_no_journal_is_not_read_as_one(tmp_path):
    with pytest.raises(InputError, match="there is no journal"):
        read_journal(tmp_path / "none")
    (tmp_path / "text").write_text("a text that is no journal")
    with pytest.raises(JournalError, match="is damaged"):
        read_journal(tmp_path / "text")
    (tmp_path / "empty").write_text("")
    with pytest.raises(JournalError, match="is not a journal"):
        read_journal(tmp_path / "empty")


def test_a_journal_that_another_program_cuts_in_a_run_ends_it_with_a_sentence(tmp_path):
    with federation(tmp_path) as fed:
        fed.ask(walk, pull=0.1)
        os.truncate(next(tmp_path.glob("run-*/journal")), 30)
        with pytest.raises(JournalError, match="journal was cut or lengthened by another program while it was in use"):
            fed.ask(walk, pull=0.1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"threads": "\u202e"},
        {"threads": 2**70},
        {"threads": 0},
        {"settings": "x"},
        {"sites": [[]]},
        {"rows": {"a": []}},
    ],
)
def test_a_head_of_other_types_is_refused(tmp_path, wrong):
    """Who writes a file can chain it, too: resuming and auditing such a run raised foreign errors."""
    file = AppendFile(tmp_path / "journal")
    file.append({"head": {"format": 1, "settings": {}, "sites": {}, "rows": {}, "threads": 1} | wrong})
    file.close()
    with pytest.raises(JournalError, match="other types"):
        read_journal(tmp_path / "journal")


def test_an_entry_of_more_messages_than_bytes_is_refused_before_they_are_listed(tmp_path):
    file = AppendFile(tmp_path / "journal")
    file.append({"head": {"sites": {"a": "x"}}})
    sizes = {"sizes": [2**60, 1], "alike": True, "replies": None, "asked": None, "answered": None}
    file.append({"number": 0, "failed": {}, "changes": {}, **sizes})
    file.close()
    with pytest.raises(JournalError, match="more messages than bytes"):
        list(read_journal(tmp_path / "journal")[1])
