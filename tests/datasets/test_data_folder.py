"""The data folder, and what every loader says when its file is missing or something else."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

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
from fedspan.errors import DataMissingError, InputError

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
def test_a_missing_file_gets_one_sentence(load: Callable[[], Bunch], name: str, where: str, own_folder: Path) -> None:
    with pytest.raises(DataMissingError) as caught:
        load()
    sentence = str(caught.value)
    assert all(word in sentence for word in (name, str(own_folder), where, "FEDSPAN_DATA"))
    assert "\n" not in sentence
    assert sentence.endswith(".")
    assert isinstance(caught.value, FileNotFoundError)


@every_loader
@pytest.mark.parametrize(
    "content",
    [b"", b"not what it says", b"PK\x03\x04 cut off", gzip.compress(b"a,b\n1,2\n", mtime=0)],
    ids=["empty", "text", "cut", "gzip"],
)
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
