"""The data folder, and files that are missing, cut off, altered or not what they say."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedspan.datasets import (
    Bunch,
    data_folder,
    load_coil20,
    load_fashion_mnist,
    load_mice_protein,
    load_mnist,
    load_ton_iot,
    load_unsw_nb15,
)
from fedspan.datasets.bunch import Source
from fedspan.datasets.files import read_idx, read_npz, read_numbers, read_text
from fedspan.errors import DataMissingError, FedspanError, InputError

SOURCE = Source("Toy", "a publisher", "a page", "free.")

# Every way to load, the file it needs, and a word that tells where to get it.
LOADERS: list[tuple[Callable[[], Bunch], str, str]] = [
    (load_unsw_nb15, "unsw_nb15_82332.csv.gz", "UNSW Canberra"),
    (partial(load_unsw_nb15, table="training_sample"), "unsw_nb15_train_sample_10k.csv.gz", "sensor-data"),
    (load_ton_iot, "ton_iot_network_211043.csv.gz", "UNSW Canberra"),
    (partial(load_ton_iot, table="fedpca"), "ton_iot_fedpca_repo.npz", "FedPCA_AnomalyDetection"),
    (load_mnist, "mnist.npz", "MNIST database page"),
    (load_fashion_mnist, "t10k-labels-idx1-ubyte.gz", "Zalando"),
    (partial(load_fashion_mnist, part="train"), "train-labels-idx1-ubyte.gz", "dataset-fashion-mnist"),
    (load_coil20, "coil20_32x32.npz", "Columbia University"),
    (load_mice_protein, "mice_protein.csv.gz", "UCI Machine Learning Repository"),
]
every_loader = pytest.mark.parametrize(("load", "name", "where"), LOADERS)


def test_the_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("FEDSPAN_DATA", "/somewhere/else")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert data_folder() == Path("/somewhere/else")
    monkeypatch.setenv("FEDSPAN_DATA", "~/tables")
    assert data_folder() == Path("/home/someone/tables")
    monkeypatch.setenv("FEDSPAN_DATA", "")
    assert data_folder() == Path("/cache/fedspan")
    monkeypatch.delenv("FEDSPAN_DATA")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_folder() == Path("/home/someone/.cache/fedspan")


@every_loader
def test_a_missing_file_gets_one_sentence(
    load: Callable[[], Bunch], name: str, where: str, own_folder: Path
) -> None:
    with pytest.raises(DataMissingError) as caught:
        load()
    sentence = str(caught.value)
    assert all(word in sentence for word in (name, str(own_folder), where, "FEDSPAN_DATA"))
    assert "\n" not in sentence
    assert sentence.endswith(".")
    assert isinstance(caught.value, FileNotFoundError)


@every_loader
@pytest.mark.parametrize("content", [b"", b"not what it says", b"PK\x03\x04 cut off", gzip.compress(b"a,b\n1,2\n")])
def test_a_file_of_something_else_is_refused(
    load: Callable[[], Bunch], name: str, where: str, content: bytes, own_folder: Path
) -> None:
    for file in (name, name.replace("labels-idx1", "images-idx3")):
        (own_folder / file).write_bytes(content)
    with pytest.raises(InputError, match="cannot be used as") as caught:
        load()
    assert name in str(caught.value)
    assert where in str(caught.value)


def test_a_folder_in_place_of_a_file_is_missing(own_folder: Path) -> None:
    (own_folder / "mnist.npz").mkdir()
    with pytest.raises(DataMissingError):
        load_mnist()


@pytest.mark.parametrize(
    ("load", "argument"),
    [
        (load_unsw_nb15, {"table": "all"}),
        (load_ton_iot, {"table": "49"}),
        (load_mnist, {"part": "training"}),
        (load_fashion_mnist, {"part": None}),
        (load_mice_protein, {"missing": "zero"}),
    ],
)
def test_an_unknown_choice_is_refused_before_any_file(
    load: Callable[..., Bunch], argument: dict[str, str], own_folder: Path
) -> None:
    with pytest.raises(InputError, match=rf"{next(iter(argument))}=.* must be one of '"):
        load(**argument)


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


def _readers(folder: Path) -> list[tuple[Path, Callable[[], object]]]:
    npz, plain, csv, idx = (folder / name for name in ("a.npz", "b.npz", "t.csv.gz", "i.gz"))
    np.savez(plain, **GOOD)
    idx.write_bytes(gzip.compress(IDX))
    return [
        (saved(npz, **GOOD), lambda: read_npz(npz, SOURCE, MEMBERS)),
        (plain, lambda: read_npz(plain, SOURCE, MEMBERS)),
        (table(csv), lambda: (read_numbers(csv, SOURCE, B_THEN_A), read_text(csv, SOURCE, ["word"]))),
        (idx, lambda: read_idx(idx, SOURCE, (2, 3, 4))),
    ]


@settings(max_examples=200, deadline=None)
@given(which=st.integers(0, 3), cut=st.floats(0, 1, exclude_max=True))
def test_a_file_cut_off_anywhere_is_refused(
    which: int, cut: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path, read = _readers(tmp_path_factory.getbasetemp())[which]
    content = path.read_bytes()
    path.write_bytes(content[: int(cut * len(content))])
    with pytest.raises(InputError, match="cannot be used as Toy"):
        read()


@settings(max_examples=300, deadline=None)
@given(which=st.integers(0, 3), data=st.data())
def test_altered_bytes_never_raise_a_foreign_error(
    which: int, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path, read = _readers(tmp_path_factory.getbasetemp())[which]
    content = bytearray(path.read_bytes())
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        read()  # some bytes mean nothing, such as a file's date
    except FedspanError as error:
        assert "cannot be used as Toy" in str(error)
