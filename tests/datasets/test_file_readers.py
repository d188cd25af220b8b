"""The readers: good files, and files that are cut off, altered or not what they say."""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedspan.datasets.bunch import Source
from fedspan.datasets.data_folder import read_idx, read_npz, read_numbers, read_text
from fedspan.errors import FedspanError, InputError

SOURCE = Source("Toy", "a publisher", "a page", "free.")

# ---- archives of arrays

GOOD = {"x": np.arange(12, dtype=np.uint8).reshape(3, 4), "names": np.array(["a", "b"])}
MEMBERS = {"x": ("u", (3, 4)), "names": ("U", (2,))}


def saved(path: Path, **arrays: np.ndarray) -> Path:
    np.savez_compressed(path, **arrays)
    return path


def test_a_good_archive_is_read(tmp_path: Path) -> None:
    arrays = read_npz(saved(tmp_path / "a.npz", **GOOD), SOURCE, MEMBERS)
    assert np.array_equal(arrays["x"], GOOD["x"])
    assert arrays["names"].tolist() == ["a", "b"]


def test_images_are_accepted_as_rows(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.npz", x=GOOD["x"].reshape(3, 2, 2))
    assert np.array_equal(read_npz(path, SOURCE, {"x": ("u", (3, 4))})["x"], GOOD["x"])


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"names": GOOD["names"]}, "lacks the array x"),
        (GOOD | {"x": GOOD["x"][:2]}, r"array x is uint8 of shape \(2, 4\)"),
        (GOOD | {"x": GOOD["x"].reshape(4, 3)}, r"array x is uint8 of shape \(4, 3\)"),
        (GOOD | {"x": GOOD["x"].astype(float)}, "array x is float64"),
        (GOOD | {"x": np.uint8(3)}, r"array x is uint8 of shape \(\)"),
        (GOOD | {"x": np.array([{"a": 1}], dtype=object)}, "fails with ValueError"),
    ],
)
def test_wrong_members_are_refused(arrays: dict[str, np.ndarray], reason: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=reason):
        read_npz(saved(tmp_path / "a.npz", **arrays), SOURCE, MEMBERS)


def test_a_single_array_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "a.npz").open("wb") as file:
        np.save(file, GOOD["x"])
    with pytest.raises(InputError, match="a single array"):
        read_npz(tmp_path / "a.npz", SOURCE, MEMBERS)


def test_an_encrypted_or_strangely_packed_archive_is_refused(tmp_path: Path) -> None:
    content = saved(tmp_path / "a.npz", **GOOD).read_bytes()
    # In the local header the flags are at byte 6 and the method at 8; in the directory at 8 and 10.
    for local, central, value in ((6, 8, 1), (8, 10, 99)):
        altered = bytearray(content)
        altered[content.index(b"PK\x03\x04") + local] = value
        altered[content.index(b"PK\x01\x02") + central] = value
        (tmp_path / "b.npz").write_bytes(altered)
        with pytest.raises(InputError, match=r"fails with (RuntimeError|NotImplementedError)"):
            read_npz(tmp_path / "b.npz", SOURCE, MEMBERS)


def test_an_array_that_claims_a_petabyte_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive, archive.open("x.npy", "w") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": (2**50,)}
        np.lib.format.write_array_header_1_0(file, header)
    with pytest.raises(InputError, match=r"fails with .*MemoryError"):
        read_npz(tmp_path / "a.npz", SOURCE, MEMBERS)


# ---- tables

TABLE = '\ufeffid,"a",b,word\n1,0.5,-2,x\n2,1e3,4,"y, z"\n'
B_THEN_A = ["b", "a"]


def table(path: Path, text: str = TABLE) -> Path:
    path.write_bytes(gzip.compress(text.encode()))
    return path


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv.gz")
    assert read_numbers(path, SOURCE, B_THEN_A).tolist() == [[-2.0, 0.5], [4.0, 1000.0]]
    assert read_numbers(path, SOURCE, ["id"]).tolist() == [[1.0], [2.0]]  # the byte-order mark is not part of it
    assert {k: v.tolist() for k, v in read_text(path, SOURCE, ["word", "b"]).items()} == {
        "word": ["x", "y, z"],
        "b": ["-2", "4"],
    }


def test_a_header_alone_has_no_rows(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv.gz", "a,b,word\n")
    assert read_numbers(path, SOURCE, B_THEN_A).shape == (0, 2)
    assert read_text(path, SOURCE, ["word"])["word"].shape == (0,)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a,word\n1,x\n", "lacks the columns b"),
        ("", "lacks the columns b, a"),
        ("a,b,word\n1,two,x\n", "fails with ValueError"),
        ("a,b,word\n1,2,x\n3\n", "fails with ValueError"),
    ],
)
def test_wrong_tables_are_refused(text: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=reason):
        read_numbers(table(tmp_path / "t.csv.gz", text), SOURCE, B_THEN_A)


def test_a_short_row_of_text_is_refused(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv.gz", "a,word\n1,x\n2\n")
    with pytest.raises(InputError, match="fails with IndexError"):
        read_text(path, SOURCE, ["word"])


def test_a_cell_without_end_is_refused(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv.gz", "a,word\n1," + "x" * 200_000)
    with pytest.raises(InputError, match="fails with Error"):
        read_text(path, SOURCE, ["word"])


# ---- idx files

PIXELS = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
IDX = bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4]) + PIXELS.tobytes()


def test_a_good_idx_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "i.gz"
    path.write_bytes(gzip.compress(IDX))
    read = read_idx(path, SOURCE, (2, 3, 4))
    assert np.array_equal(read, PIXELS)
    assert read.flags.writeable


@pytest.mark.parametrize(
    "content", [IDX[:-1], IDX + b"\0", b"\1" + IDX[1:], IDX[:2] + b"\x09" + IDX[3:], IDX[:7] + b"\3" + IDX[8:]]
)
def test_a_wrong_idx_file_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "i.gz"
    path.write_bytes(gzip.compress(content))
    with pytest.raises(InputError, match="not an idx file"):
        read_idx(path, SOURCE, (2, 3, 4))


# ---- whatever happens to the bytes, the error is ours


def _compressed(path: Path) -> None:
    np.savez_compressed(path, **GOOD)


def _plain(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, **GOOD)


FILES: list[tuple[Callable[[Path], object], Callable[[Path], object]]] = [
    (_compressed, lambda path: read_npz(path, SOURCE, MEMBERS)),
    (_plain, lambda path: read_npz(path, SOURCE, MEMBERS)),
    (table, lambda path: (read_numbers(path, SOURCE, B_THEN_A), read_text(path, SOURCE, ["word"]))),
    (lambda path: path.write_bytes(gzip.compress(IDX)), lambda path: read_idx(path, SOURCE, (2, 3, 4))),
]
every_kind_of_file = pytest.mark.parametrize(("write", "read"), FILES)


@every_kind_of_file
def test_a_file_cut_off_anywhere_is_refused(
    write: Callable[[Path], object], read: Callable[[Path], object], tmp_path: Path
) -> None:
    path = tmp_path / "file.npz"
    write(path)
    read(path)
    content = path.read_bytes()
    for cut in range(len(content)):
        path.write_bytes(content[:cut])
        with pytest.raises(InputError, match="cannot be used as Toy"):
            read(path)


@every_kind_of_file
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_altered_bytes_never_raise_a_foreign_error(
    write: Callable[[Path], object], read: Callable[[Path], object], data: st.DataObject, tmp_path: Path
) -> None:
    path = tmp_path / "file.npz"  # written again for every example
    write(path)
    content = bytearray(path.read_bytes())
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with suppress(FedspanError):  # and nothing else; some bytes mean nothing, such as a file's date
        read(path)
