"""Image loaders on small files made here, where every pixel of the answer is known."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from fedspan.datasets import load_coil20, load_fashion_mnist, load_mnist, mnist
from fedspan.errors import DataMissingError, InputError


@pytest.fixture
def mnist_parts(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    monkeypatch.setattr(mnist, "ROWS", {"train": 60, "test": 20})
    rng = np.random.default_rng(0)
    return {
        "x_train": rng.integers(0, 256, (60, 784), dtype=np.uint8),
        "x_test": rng.integers(0, 256, (20, 784), dtype=np.uint8),
        "y_train": (np.arange(60) % 7).astype(np.uint8),
        "y_test": (np.arange(20) % 10).astype(np.uint8),
    }


@pytest.mark.parametrize("as_images", [False, True])
def test_mnist_parts(as_images: bool, mnist_parts: dict[str, np.ndarray], own_folder: Path) -> None:
    shaped = {k: v.reshape(-1, 28, 28) if as_images and k[0] == "x" else v for k, v in mnist_parts.items()}
    np.savez_compressed(own_folder / "mnist.npz", **shaped)
    train, test, both = load_mnist(), load_mnist(part="test"), load_mnist(part="all")
    assert np.array_equal(train.data, mnist_parts["x_train"])
    assert np.array_equal(train.target, mnist_parts["y_train"])
    assert np.array_equal(test.data, mnist_parts["x_test"])
    assert np.array_equal(both.data, np.concatenate([train.data, test.data]))
    assert np.array_equal(both.target, np.concatenate([train.target, test.target]))
    assert np.array_equal(test.images[-1].ravel(), test.data[-1])
    assert test.feature_names[29] == "pixel_1_1"


def test_mnist_asks_only_for_the_part_it_needs(mnist_parts: dict[str, np.ndarray], own_folder: Path) -> None:
    np.savez_compressed(own_folder / "mnist.npz", x_test=mnist_parts["x_test"], y_test=mnist_parts["y_test"])
    assert len(load_mnist(part="test").data) == 20
    with pytest.raises(InputError, match="lacks the array x_train"):
        load_mnist()


def write_idx(path: Path, array: np.ndarray) -> None:
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    path.write_bytes(gzip.compress(bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes(), compresslevel=1))


@pytest.fixture
def fashion_idx(mnist_parts: dict[str, np.ndarray], own_folder: Path) -> dict[str, np.ndarray]:
    mnist_parts["y_train"] = (np.arange(60) % 10).astype(np.uint8)
    for stem, part in (("train", "train"), ("t10k", "test")):
        images = mnist_parts[f"x_{part}"].reshape(-1, 28, 28)
        write_idx(own_folder / f"{stem}-images-idx3-ubyte.gz", images)
        write_idx(own_folder / f"{stem}-labels-idx1-ubyte.gz", mnist_parts[f"y_{part}"])
    return mnist_parts


def test_fashion_mnist_from_idx_files(fashion_idx: dict[str, np.ndarray]) -> None:
    both = load_fashion_mnist(part="all")
    assert np.array_equal(both.data, np.concatenate([fashion_idx["x_train"], fashion_idx["x_test"]]))
    assert np.array_equal(both.target, np.concatenate([fashion_idx["y_train"], fashion_idx["y_test"]]))
    assert np.array_equal(load_fashion_mnist().data, fashion_idx["x_test"])
    assert both.target_names[9] == "ankle boot"


def test_fashion_mnist_prefers_the_small_file_for_the_test_rows(
    fashion_idx: dict[str, np.ndarray], own_folder: Path
) -> None:
    other = np.full((20, 784), 3, np.uint8)
    np.savez_compressed(own_folder / "fashion_mnist_t10k.npz", x_test=other, y_test=fashion_idx["y_test"])
    assert np.array_equal(load_fashion_mnist().data, other)
    assert np.array_equal(load_fashion_mnist(part="train").data, fashion_idx["x_train"])


def test_mnist_files_are_not_taken_for_fashion_mnist(fashion_idx: dict[str, np.ndarray], own_folder: Path) -> None:
    uneven = np.minimum(np.arange(60) % 10, 8).astype(np.uint8)
    write_idx(own_folder / "train-labels-idx1-ubyte.gz", uneven)
    with pytest.raises(InputError, match="as MNIST's do in files of the same name"):
        load_fashion_mnist(part="train")


def test_fashion_mnist_images_without_labels_are_missing_a_file(
    fashion_idx: dict[str, np.ndarray], own_folder: Path
) -> None:
    (own_folder / "train-images-idx3-ubyte.gz").unlink()
    with pytest.raises(DataMissingError, match="train-images-idx3-ubyte"):
        load_fashion_mnist(part="train")


def test_coil20(own_folder: Path) -> None:
    images = np.zeros((1440, 32, 32), np.uint8)
    images[3, 1, 2] = 200
    labels, view = np.divmod(np.arange(1440, dtype=np.uint16), 72)
    np.savez_compressed(
        own_folder / "coil20_32x32.npz", images=images, labels=labels.astype(np.uint8), view=view.astype(np.uint8)
    )
    made = load_coil20()
    assert made.data.shape == (1440, 1024)
    assert made.data[3, made.feature_names == "pixel_1_2"] == [200]
    assert np.array_equal(made.images, images)
    assert made.view[73] == 1
    assert made.target_names[made.target[73]] == "object 2"
