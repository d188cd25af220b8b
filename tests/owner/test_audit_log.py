"""The audit log: nothing leaves unlogged, and a changed log is noticed."""

from __future__ import annotations

import json
import os

import pytest

from fedspan.cli import main
from fedspan.durable import append_file
from fedspan.errors import PolicyError
from fedspan.owner import read_owned_site
from fedspan.owner.audit_log import AuditLog, AuditLogError, read_lines

from .owner_desk import Desk


@pytest.fixture
def desk(tmp_path):
    desk = Desk(tmp_path / "a")
    yield desk
    desk.worker.close()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        ("removed", "can't be opened: No such file"),
        ("shorter", "has become shorter"),
        ("open", "can be read by others"),
        ("folder", "can't be opened"),
    ],
)
def test_nothing_leaves_unlogged(desk, spoil, why):
    log = desk.folder / "audit.jsonl"
    assert desk.ask()["n"] == 40
    if spoil == "shorter":
        os.truncate(log, 3)
    elif spoil == "open":
        log.chmod(0o644)
    else:
        log.unlink()
    if spoil == "folder":
        log.mkdir()
    for kind in ("call", "hello", "end"):
        answer = desk.ask(number=1, kind=kind)
        if kind == "hello":
            answer = json.loads(bytes(desk.found.parts["about"]))["refused"]
        assert f"audit log {why}" in answer
        assert "nothing leaves it unlogged" in answer


def test_a_full_disk_refuses_and_leaves_whole_lines(desk, monkeypatch):
    whole = append_file._write

    def full(file, parts, at):
        if b'"outcome": "answered"' in b"".join(parts):
            whole(file, (b"".join(parts)[:20],), at)
            raise OSError(28, "No space left on device")
        whole(file, parts, at)

    desk.ask()
    monkeypatch.setattr(append_file, "_write", full)
    assert "audit log can't be written: No space left on device, and nothing leaves it unlogged" in desk.ask(number=1)
    monkeypatch.setattr(append_file, "_write", whole)
    assert desk.ask(number=2)["n"] == 40
    assert [(line["call"], line["outcome"]) for line in desk.lines()] == [
        (0, "answered"),
        (1, "failed"),
        (2, "answered"),
    ]


def test_a_line_that_a_crash_cut_off_is_dropped(desk):
    desk.ask()
    log = desk.folder / "audit.jsonl"
    log.write_bytes(log.read_bytes() + b'{"when": "20')
    desk.open()
    desk.ask(number=1)
    assert [line["call"] for line in desk.lines()] == [0, 1]


@pytest.mark.parametrize(
    "change",
    [
        lambda found: [found[0].replace("alice", "mallory"), *found[1:]],
        lambda found: [found[0], found[2]],
        lambda found: [found[1], found[0], found[2]],
        lambda found: [found[0], "{}", *found[1:]],
        lambda found: [found[0], "no JSON", *found[1:]],
    ],
)
def test_an_altered_log_is_noticed(desk, change):
    for number in range(3):
        desk.ask(number=number)
    log = desk.folder / "audit.jsonl"
    log.write_text("\n".join(change(log.read_text().splitlines())) + "\n")
    with pytest.raises(PolicyError, match=r"audit log .* altered at entry \d .*, and nothing leaves it unlogged"):
        read_owned_site(desk.folder / "site.toml")
    with pytest.raises(PolicyError, match=r"altered at entry \d"):
        read_lines(log)


def test_no_line_is_written_that_could_not_be_read_again(tmp_path):
    log = AuditLog(tmp_path / "log")
    texts = dict.fromkeys(("who", "role", "run", "step", "stage", "why"), "")
    line = texts | {"transforms": [], "budget_left": None, "how": "ask"}
    good = line | {"call": 0, "part": 0, "bytes": 1, "outcome": "answered", "ran": True}
    log.append(good)
    for key, value in (("call", "abc"), ("call", True), ("part", None), ("who", 3), ("ran", 1), ("transforms", "x")):
        with pytest.raises(AuditLogError, match=f"can't take a line: its '{key}' is missing or of the wrong type"):
            log.append(good | {key: value})
    with pytest.raises(AuditLogError, match="can't take a line"):
        log.append(good | {"when": "soon"})
    log.append(good)
    assert len(read_lines(tmp_path / "log")) == 2


def test_the_log_is_printed_without_control_characters(desk, capsys):
    desk.ask("x\x1b[2J\n2026-11-15T00:00:00  alice  answered fine\u2028\x9b")
    assert main(["site", "log", str(desk.folder / "audit.jsonl"), "--refused"]) == 0
    shown = capsys.readouterr().out
    assert r"refused x\x1b[2J\n2026-11-15T00:00:00  alice  answered fine\u2028\x9b: " in shown
    assert len(shown.splitlines()) == 4
    assert all(line.isprintable() for line in shown.splitlines())


@pytest.mark.parametrize(
    "text", ["hunter22", "hunter22\nsecond", '{"a": 1}', "{", '{"when": 3}\n', "\n", '[1]\n{"when": "']
)
def test_a_file_that_is_no_audit_log_is_left_as_it_is(tmp_path, text):
    secret = tmp_path / "a" / "secret"
    Desk(tmp_path / "a").worker.close()
    secret.write_text(text)
    secret.chmod(0o600)
    with (tmp_path / "a" / "site.toml").open("a") as file:
        file.write('[log]\nfile = "secret"\n')
    if text == "{":  # it may be the beginning of the first line
        read_owned_site(tmp_path / "a" / "site.toml")
        return
    with pytest.raises(PolicyError, match=r"altered at entry 0 \("):
        read_owned_site(tmp_path / "a" / "site.toml")
    assert secret.read_text() == text


def test_a_cut_line_after_an_altered_one_is_left_as_it_is(desk):
    desk.ask()
    desk.ask(number=1, after=0)
    log = desk.folder / "audit.jsonl"
    spoilt = log.read_text().replace("alice", "alicf", 1) + '{"when": "20'
    log.write_text(spoilt)
    with pytest.raises(PolicyError, match="altered at entry 0"):
        read_owned_site(desk.folder / "site.toml")
    assert log.read_text() == spoilt


def test_looking_at_a_log_refuses_what_a_site_would_refuse(tmp_path):
    secret = tmp_path / "password"
    secret.write_bytes(b"hunter22")  # no line is finished
    secret.chmod(0o600)
    with pytest.raises(AuditLogError, match="altered at entry 0"):
        read_lines(secret)
