"""Lines of files that grow, are rotated and hold anything."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

import fedspan as fs
from fedspan.errors import InputError
from fedspan.gateway.gateway_loop import gateway
from fedspan.gateway.kept_sums import KeptSums
from fedspan.gateway.row_reader import RowError, RowReader
from fedspan.gateway.row_source import LONGEST, LineBuffer, RowFile, lines_of


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "detector.npz"
    fs.FedPCADetector().fit(np.random.default_rng(0).normal(size=(200, 2))).export(path)
    return path


def text(*values):
    return "".join(json.dumps([value, value]) + "\n" for value in values)


def run(model, rows):
    folder = rows.parent
    gateway(model, rows=rows, alarms=folder / "out", state=folder / "state.npz")
    return KeptSums.load(folder / "state.npz")


def test_a_file_that_was_rotated_is_read_to_its_end_and_then_those_between(model, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text(text(0.1, 0.2), encoding="utf-8")
    assert run(model, rows).rows == 2
    with rows.open("a", encoding="utf-8") as file:
        file.write(text(0.3)[:-1])  # its last line has no end
    rows.rename(tmp_path / "rows.jsonl.2")
    (tmp_path / "rows.jsonl.1").write_text(text(0.4, 0.4), encoding="utf-8")
    rows.write_text(text(0.5, 0.5, 0.5), encoding="utf-8")
    os.utime(tmp_path / "rows.jsonl.2", (1, 1))
    os.utime(tmp_path / "rows.jsonl.1", (2, 2))
    (tmp_path / "rows.jsonl.alarms").write_text("none of the rows", encoding="utf-8")
    kept = run(model, rows)
    assert (kept.rows, kept.bad) == (8, 0)
    np.testing.assert_allclose(kept.sums["mean"], np.mean([0.1, 0.2, 0.3, 0.4, 0.4, 0.5, 0.5, 0.5]))
    assert run(model, rows).rows == 8


def test_a_file_that_was_rotated_before_its_first_row_is_known_again(model, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("", encoding="utf-8")
    assert run(model, rows).rows == 0
    rows.write_text(text(0.1, 0.2), encoding="utf-8")
    rows.rename(tmp_path / "rows.jsonl.1")
    rows.write_text(text(0.3), encoding="utf-8")
    assert run(model, rows).rows == 3


def test_a_file_of_which_the_names_alone_were_read_is_not_taken_for_a_later_one(model, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("feature 0,feature 1\n", encoding="utf-8")
    assert run(model, rows).lines == 1
    for age in (2, 1):
        with rows.open("a", encoding="utf-8") as file:
            file.write(f"0.{age},0\n")
        os.utime(rows, (10 - age, 10 - age))
        rows.rename(tmp_path / f"rows.csv.{age}")
        rows.write_text("feature 0,feature 1\n", encoding="utf-8")
    kept = run(model, rows)
    assert (kept.rows, kept.bad) == (2, 0)


def test_a_file_that_is_longer_and_not_the_one_that_was_read_is_refused(model, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text(text(0.1, 0.2), encoding="utf-8")
    run(model, rows)
    rows.write_text(text(0.31, 0.32, 0.33), encoding="utf-8")
    with pytest.raises(InputError, match="was replaced, and what was read of it before is in no file beside it"):
        run(model, rows)


def test_a_copy_that_has_grown_is_the_same_file(model, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text(text(0.1, 0.2), encoding="utf-8")
    run(model, rows)
    (tmp_path / "new").write_text(text(0.1, 0.2, 0.3), encoding="utf-8")
    os.replace(tmp_path / "new", rows)
    assert run(model, rows).rows == 3


@pytest.mark.parametrize("how", ["renamed", "cut"])
def test_a_followed_file_is_followed_through_a_rotation(how, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("a,b\n1,1\n", encoding="utf-8")
    found, source = [], RowFile(rows)
    for some in source.lines(follow=True):
        found.append(some if some is None else [line for line, _ in some])
        if len(found) == 2:  # all is read
            if how == "renamed":
                rows.rename(tmp_path / "rows.csv.1")
            rows.write_text("a,b\n", encoding="utf-8")
        if None in found and [b"a,b"] in found:
            break
    source.close()
    assert [some for some in found if some != []] == [[b"a,b", b"1,1"], None, [b"a,b"]]


def test_csv_of_a_next_file_names_its_columns_again(model, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("feature 0,feature 1\n0.5,0.1\n", encoding="utf-8")
    run(model, rows)
    rows.rename(tmp_path / "rows-2026-01-31.csv")
    rows.write_text("\ufefffeature 1,feature 0\n0.1,0.5\n", encoding="utf-8")
    kept = run(model, rows)
    assert (kept.rows, kept.bad) == (2, 0)
    np.testing.assert_allclose(kept.sums["mean"], [0.5, 0.1])


@pytest.mark.parametrize(("line", "found"), [("0.1,0.5", (3, 0)), ("feature 0,other", (1, 2)), ("x,y", (1, 2))])
def test_csv_of_a_next_file_may_have_no_line_of_names(line, found, model, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("feature 1,feature 0\n0.1,0.5\n", encoding="utf-8")
    run(model, rows)
    rows.rename(tmp_path / "rows.csv.1")
    rows.write_text(f"{line}\n0.1,0.5\n", encoding="utf-8")
    kept = run(model, rows)
    assert (kept.rows, kept.bad) == found
    np.testing.assert_allclose(kept.sums["mean"], [0.5, 0.1])
    with rows.open("a", encoding="utf-8") as file:
        file.write("0.1,0.5\n")
    kept = run(model, rows)
    assert kept.rows + kept.bad == 4


@pytest.mark.parametrize(
    ("form", "line"),
    [
        ("jsonl", f"[{10**400}, 0]"),
        ("jsonl", "x" * (3 * LONGEST)),
        ("jsonl", '{"feature 0": [], "feature 1": {}}'),
        ("csv", "1\r2,3"),
        ("csv", "9" * 200_000 + ",1"),
        ("csv", "1,\x00"),
    ],
)
def test_no_line_ends_the_gateway(form, line, model, tmp_path):
    first, good = ("feature 0,feature 1\n", "0,0\n") if form == "csv" else ("", "[0, 0]\n")
    rows = tmp_path / f"rows.{form}"
    rows.write_bytes(f"{first}{good}{line}\n{good}".encode())
    kept = run(model, rows)
    assert (kept.rows, kept.bad, kept.offset) == (2, 1, rows.stat().st_size)


@pytest.mark.parametrize("line", [b"words", b"1,tcp", b"1,tcp,2,3", b" , ,"])
@pytest.mark.parametrize("raw", [True, False])
def test_a_line_of_csv_with_other_cells_than_the_first_is_no_row(line, raw):
    reader = RowReader(["bytes", "proto"] if raw else ["bytes"], "csv", raw=raw)
    assert reader.row(b"bytes,proto,seconds") is None
    with pytest.raises(RowError, match="as the first line has"):
        reader.row(line)
    assert reader.row(b"1,,2") == (["1", ""] if raw else [1.0])


def test_a_row_whose_products_overflow_is_an_alarm_and_in_no_sum(model, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text(text(0.0, 1e200, 0.0), encoding="utf-8")
    kept = run(model, rows)
    assert (kept.rows, kept.alarms, int(kept.sums["n"])) == (3, 1, 2)
    assert np.isfinite(kept.sums["products"]).all()
    alarm = json.loads((tmp_path / "out").read_text(encoding="utf-8"), parse_constant=lambda name: pytest.fail(name))
    assert alarm["score"] > 1e300


def test_alarms_that_were_taken_away_leave_an_empty_file(model, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text(text(50.0), encoding="utf-8")
    run(model, rows)
    (tmp_path / "out").unlink()
    with rows.open("a", encoding="utf-8") as file:
        file.write(text(60.0))
    kept = run(model, rows)
    alarms = (tmp_path / "out").read_bytes()
    assert json.loads(alarms)["line"] == 2
    assert kept.written == len(alarms)


def test_sums_of_another_model_are_closed_and_not_mixed(model, tmp_path):
    rows, other = tmp_path / "rows.jsonl", tmp_path / "other.npz"
    rows.write_text(text(0.1, 0.2), encoding="utf-8")
    run(model, rows)
    fs.FedPCADetector().fit(np.random.default_rng(1).normal(size=(200, 2))).export(other)
    with rows.open("a", encoding="utf-8") as file:
        file.write(text(0.3))
    with pytest.raises(InputError, match="holds the sums of another model"):
        run(other, rows)
    state, periods = tmp_path / "state.npz", tmp_path / "periods"
    gateway(other, rows=rows, alarms=tmp_path / "out", state=state, periods=periods)
    closed = [np.load(file) for file in sorted(periods.iterdir())]
    assert [int(sums["n"]) for sums in closed] == [2, 1]
    assert closed[0]["edges_sum"] != closed[1]["edges_sum"]


def test_lines_are_put_together_from_pieces():
    buffer = LineBuffer()
    assert buffer.whole(b"a\nb") == [(b"a", 2)]
    assert buffer.whole(b"c\n\nd") == [(b"bc", 3), (b"", 1)]
    assert buffer.last() == [(b"d", 2)]
    assert buffer.last() == []


def test_an_input_that_ends_without_a_line_end(tmp_path):
    (tmp_path / "rows").write_bytes(b"a\nb")
    descriptor = os.open(tmp_path / "rows", os.O_RDONLY)
    assert [line for some in lines_of(descriptor) for line, _ in some] == [b"a", b"b"]
    os.close(descriptor)


def test_a_line_without_an_end_that_was_read_is_not_read_again(tmp_path):
    """The place behind it counts the end that it lacks, so that it is one byte behind the file."""
    (tmp_path / "rows").write_bytes(b"a\nb")
    source = RowFile(tmp_path / "rows", 4)
    assert list(source.lines()) == [[]]
    followed = source.lines(follow=True)
    assert [next(followed) for _ in range(4)] == [[], [], [], []]
    source.close()
