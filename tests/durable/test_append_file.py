"""Append-only files: torn tails, altered bytes, locks, shared writers and rewriting."""

from __future__ import annotations

import json
import os
import stat

import numpy as np
import pytest

from fedspan.durable.append_file import AppendFile, AppendFileError


@pytest.fixture
def written(tmp_path):
    """A file of three entries, the second with raw bytes."""
    path = tmp_path / "file"
    file = AppendFile(path)
    file.append({"a": 1})
    file.append({"b": [1.5, None]}, [b"x" * 60, memoryview(b"\n{y" * 10)])
    file.append({"c": "text"})
    file.close()
    return path


def entries_of(path, **options):
    found = []
    file = AppendFile(path, accept=found.append, **options)
    bodies = [bytes(file.body(entry)) for entry in found]
    file.close()
    return [(entry.fields, body) for entry, body in zip(found, bodies, strict=True)]


def test_many_small_parts_are_one_write(tmp_path, monkeypatch):
    writes, write = [], os.write
    file = AppendFile(tmp_path / "file")
    monkeypatch.setattr(os, "write", lambda *args: writes.append(args) or write(*args))
    file.append({"a": 1}, [b"%03d" % number for number in range(1000)])
    file.close()
    assert len(writes) <= 3
    assert entries_of(tmp_path / "file")[0][1] == b"".join(b"%03d" % number for number in range(1000))


def test_what_is_written_is_read_again(written):
    assert entries_of(written) == [
        ({"a": 1}, b""),
        ({"b": [1.5, None]}, b"x" * 60 + b"\n{y" * 10),
        ({"c": "text"}, b""),
    ]


def test_an_entry_can_be_read_by_the_process_that_wrote_it(tmp_path):
    found = []
    file = AppendFile(tmp_path / "file", accept=found.append)
    file.append({"a": 1}, [b"raw ", b"bytes"])
    assert (found[0].fields, bytes(file.body(found[0]))) == ({"a": 1}, b"raw bytes")
    file.close()
    with pytest.raises(AppendFileError, match="was closed"):
        file.body(found[0])


def test_bytes_that_quote_an_entry_do_not_keep_a_torn_one(tmp_path):
    path = tmp_path / "file"
    file = AppendFile(path)
    file.append({"a": 1})
    file.append({"b": 2}, [b"\n" + path.read_bytes() + b"\n" + path.read_bytes()])
    file.close()
    raw = path.read_bytes()
    for cut in (1, 5, 30):
        path.write_bytes(raw[:-cut])
        assert entries_of(path) == [({"a": 1}, b"")]


def test_a_changed_length_does_not_drop_the_entries_after_it(written):
    raw = written.read_bytes()
    written.write_bytes(raw.replace(b'"body_bytes": 90', b'"body_bytes": 99'))
    with pytest.raises(AppendFileError, match="entry 1"):
        entries_of(written)
    written.write_bytes(raw.replace(b'"body_bytes": 90', b'"body_bytes": 990'))
    with pytest.raises(AppendFileError, match=r"entry 1 \(its bytes are cut short\)"):
        entries_of(written)


def test_a_changed_end_of_line_does_not_drop_two_entries(tmp_path):
    path = tmp_path / "file"
    file = AppendFile(path)
    for number in range(3):
        file.append({"number": number})
    file.close()
    lines = path.read_bytes().splitlines()
    path.write_bytes(lines[0] + b"\n" + lines[1] + b" " + lines[2] + b"\n")
    with pytest.raises(AppendFileError, match="entry 1"):
        entries_of(path)


def test_only_the_owner_can_read_the_file(written):
    assert stat.S_IMODE(os.stat(written).st_mode) == 0o600


def test_entries_without_bytes_are_json_lines(tmp_path):
    file = AppendFile(tmp_path / "file")
    for number in range(3):
        file.append({"number": number})
    file.close()
    lines = [json.loads(line) for line in (tmp_path / "file").read_text().splitlines()]
    assert [line["number"] for line in lines] == [0, 1, 2]
    assert len({line["chain"] for line in lines}) == 3


def test_a_file_cut_at_any_byte_keeps_its_whole_entries_and_goes_on(written):
    raw = written.read_bytes()
    whole = entries_of(written)
    for cut in range(len(raw)):
        written.write_bytes(raw[:cut])
        kept = entries_of(written)
        assert kept == whole[: len(kept)]
        assert len(kept) < 3
        file = AppendFile(written)
        file.append({"next": True})
        file.close()
        assert entries_of(written) == [*kept, ({"next": True}, b"")]


def test_zeros_that_a_loss_of_power_leaves_at_the_end_are_dropped(written):
    whole = entries_of(written)
    with written.open("ab") as file:
        file.write(b"\0" * 100)
    assert entries_of(written) == whole


def test_a_changed_byte_is_never_read_as_if_it_were_whole(written):
    raw = written.read_bytes()
    whole = entries_of(written)
    rng = np.random.default_rng(0)
    last = raw.rfind(b"{")
    for place in range(len(raw)):
        changed = bytearray(raw)
        changed[place] ^= int(rng.integers(1, 256))
        written.write_bytes(bytes(changed))
        if place < last:
            with pytest.raises(AppendFileError, match=r"damaged or was altered at entry [01]"):
                entries_of(written)
        elif place < len(raw) - 1 and changed[place]:  # the last line is whole, so no kill has cut it short
            with pytest.raises(AppendFileError, match="entry 2"):
                entries_of(written)
        else:  # a kill or a loss of power may have left this, so it is dropped
            assert entries_of(written) == whole[:2]


def test_an_entry_that_was_removed_or_moved_is_noticed(tmp_path):
    path = tmp_path / "file"
    file = AppendFile(path)
    for number in range(4):
        file.append({"number": number})
    file.close()
    lines = path.read_bytes().splitlines(keepends=True)
    for order in ([0, 2, 3], [1, 2, 3], [0, 2, 1, 3], [0, 1, 3]):
        path.write_bytes(b"".join(lines[i] for i in order))
        with pytest.raises(AppendFileError, match="digest does not match"):
            entries_of(path)


@pytest.mark.parametrize("text", ["my notes", '{"a": 1}', '{"a": 1}\n', "\n", "[1]"])
def test_another_kind_of_file_is_left_as_it_is(tmp_path, text):
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(AppendFileError, match="is damaged"):
        AppendFile(path)
    assert path.read_text() == text


def test_a_file_in_use_is_refused(written):
    file = AppendFile(written)
    with pytest.raises(AppendFileError, match="in use by another process"):
        AppendFile(written)
    file.close()
    assert len(entries_of(written)) == 3


def test_reading_takes_no_lock_and_changes_nothing(written):
    with written.open("ab") as torn:
        torn.write(b'{"torn": tr')
    before = written.read_bytes()
    file = AppendFile(written, read_only=True)
    assert file.count == 3
    with pytest.raises(AppendFileError, match="for reading only"):
        file.append({"d": 1})
    file.close()
    assert written.read_bytes() == before


def test_two_writers_of_a_shared_file_read_each_other(tmp_path):
    seen = [], []
    files = [AppendFile(tmp_path / "file", shared=True, accept=taken.append) for taken in seen]
    for number in range(6):
        with files[number % 2].locked():
            files[number % 2].append({"number": number})
    for file in files:
        with file.locked():
            assert file.count == 6
    assert [[entry.fields["number"] for entry in taken] for taken in seen] == [list(range(6))] * 2


def test_a_shared_file_that_others_can_read_is_refused(tmp_path):
    file = AppendFile(tmp_path / "file", shared=True)
    with file.locked():
        file.append({"a": 1})
    (tmp_path / "file").chmod(0o644)
    with pytest.raises(AppendFileError, match="chmod 600"), file.locked():
        pass


@pytest.mark.parametrize("change", ["shorter", "replaced"])
def test_a_shared_file_that_changes_behind_its_reader_is_refused(tmp_path, change):
    path = tmp_path / "file"
    file = AppendFile(path, shared=True)
    with file.locked():
        file.append({"a": 1})
        file.append({"a": 2})
    if change == "shorter":
        path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    else:
        path.unlink()
        other = AppendFile(path)
        for number in (8, 9, 10):
            other.append({"a": number})
        other.close()
    with (
        pytest.raises(AppendFileError, match="shorter" if change == "shorter" else "replaced or altered"),
        file.locked(),
    ):
        pass


def test_a_key_of_the_first_entry_is_needed_to_forge_a_chain(tmp_path):
    def secret(fields):
        return bytes.fromhex(fields["secret"])

    path = tmp_path / "file"
    file = AppendFile(path, key_of=secret)
    file.append({"secret": "00" * 16})
    file.append({"charge": 1.0})
    file.close()
    assert len(entries_of(path, key_of=secret)) == 2
    with pytest.raises(AppendFileError, match="digest does not match"):
        entries_of(path)


def test_an_entry_that_is_not_accepted_refuses_the_file(written):
    def accept(entry):
        if "b" in entry.fields:
            raise ValueError("no b is known")

    with pytest.raises(AppendFileError, match=r"entry 1 \(no b is known\)"):
        AppendFile(written, accept=accept)


def test_rewriting_replaces_all_entries_at_once(written):
    file = AppendFile(written)
    file.rewrite([({"new": 1}, (b"bytes",)), ({"new": 2}, ())])
    file.append({"new": 3})
    file.close()
    assert entries_of(written) == [({"new": 1}, b"bytes"), ({"new": 2}, b""), ({"new": 3}, b"")]
    assert list(written.parent.iterdir()) == [written]


def test_a_full_disk_leaves_the_file_as_it_was(written, monkeypatch):
    file = AppendFile(written)

    def full(descriptor, data):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(AppendFileError, match="can't be written: No space left"):
            file.append({"d": 1})
    file.append({"d": 2})
    file.close()
    assert entries_of(written)[-1] == ({"d": 2}, b"")


def test_deeply_nested_text_is_refused_and_does_not_exhaust_the_stack(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(
        b'{"a": ' + b"[" * 100_000 + b', "chain": "' + b"0" * 32 + b'"}\n{"b": 1, "chain": "' + b"0" * 32 + b'"}\n'
    )
    with pytest.raises(AppendFileError, match="damaged"):
        AppendFile(path)


@pytest.mark.parametrize("size", [0, 10, 1000])
def test_a_file_that_another_program_cuts_while_it_is_in_use_gets_no_hole(written, size):
    """What is left of it can be read and continued."""
    file = AppendFile(written)
    os.truncate(written, size)
    with pytest.raises(AppendFileError, match="was cut or lengthened by another program while it was in use"):
        file.append({"d": 4})
    assert written.stat().st_size == size
    file.close()
