"""MNIST and Fashion-MNIST: 28 x 28 grey images in ten classes."""

from __future__ import annotations

from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from fedspan.checks import one_of
from fedspan.datasets.bunch import Bunch, Source, dataset
from fedspan.datasets.data_folder import damaged, data_folder, find_file, read_idx, read_npz

Part = Literal["train", "test", "all"]
Images = NDArray[np.uint8]

PIXELS = 28 * 28
ROWS = {"train": 60_000, "test": 10_000}
MNIST_FILE = "mnist.npz"
FASHION_FILE = "fashion_mnist_t10k.npz"
IDX_STEMS = {"train": "train", "test": "t10k"}

_MNIST = Source(
    name="MNIST",
    publisher="Y. LeCun, C. Cortes and C. J. C. Burges",
    where="the MNIST database page of its authors (as arrays x_train, y_train, x_test and y_test)",
    terms="commonly distributed under CC BY-SA 3.0 (check with the publisher before redistribution).",
)
_FASHION = Source(
    name="Fashion-MNIST",
    publisher="Zalando SE (H. Xiao, K. Rasul and R. Vollgraf, 2017)",
    where="the Fashion-MNIST page of Zalando Research or Debian's package dataset-fashion-mnist "
    "(four gzipped idx files)",
    terms="MIT licence.",
)
_MNIST_ABOUT = (
    "Handwritten digits, one 28 x 28 image a row, row by row from the top. Pixels are bytes (0 to 255): "
    "make them floating-point before subtracting, or they wrap around."
)
_FASHION_ABOUT = (
    "Images of ten kinds of clothing, one 28 x 28 image a row, row by row from the top, equally many of "
    "each kind. Pixels are bytes (0 to 255): make them floating-point before subtracting, or they wrap "
    "around. The idx files have the same names as MNIST's."
)
_DIGITS = np.array([str(digit) for digit in range(10)])
_CLOTHES = np.array(
    ["T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"]
)


def load_mnist(*, part: Part = "train") -> Bunch:
    """Load MNIST handwritten digits from ``mnist.npz`` in the data folder.

    Parameters
    ----------
    part : {"train", "test", "all"}, default="train"
        60,000 rows, 10,000 rows, or both with the training rows first.

    Returns
    -------
    Bunch
        ``data`` (n, 784) uint8; ``images`` (n, 28, 28), a view of it; ``target`` (n,), the digit.

    Raises
    ------
    DataMissingError
        If the file is not in the data folder.
    """
    wanted = _parts(part)
    path = find_file(MNIST_FILE, _MNIST)
    members = {f"{axis}_{name}": ("u", shape) for name in wanted for axis, shape in _shapes(name).items()}
    arrays = read_npz(path, _MNIST, members)
    pieces = [(arrays[f"x_{name}"], arrays[f"y_{name}"]) for name in wanted]
    return _bunch(_MNIST, _MNIST_ABOUT, pieces, _DIGITS)


def load_fashion_mnist(*, part: Part = "test") -> Bunch:
    """Load Fashion-MNIST from the data folder.

    Parameters
    ----------
    part : {"test", "train", "all"}, default="test"
        The 10,000 test rows (``fashion_mnist_t10k.npz``, or the idx files where that is not there), the
        60,000 training rows, or both with the training rows first. The training rows need the idx files
        ``train-images-idx3-ubyte.gz`` and ``train-labels-idx1-ubyte.gz``; the test rows' files start with
        ``t10k``.

    Returns
    -------
    Bunch
        ``data`` (n, 784) uint8; ``images`` (n, 28, 28), a view of it; ``target`` (n,), the kind of clothing.

    Raises
    ------
    DataMissingError
        If a file is not in the data folder.
    """
    pieces = [_fashion_piece(name) for name in _parts(part)]
    return _bunch(_FASHION, _FASHION_ABOUT, pieces, _CLOTHES)


def _fashion_piece(name: str) -> tuple[Images, Images]:
    shapes = _shapes(name)
    if name == "test" and (data_folder() / FASHION_FILE).is_file():
        path = find_file(FASHION_FILE, _FASHION)
        arrays = read_npz(path, _FASHION, {f"{axis}_test": ("u", shape) for axis, shape in shapes.items()})
        x, y = arrays["x_test"], arrays["y_test"]
    else:
        path = find_file(f"{IDX_STEMS[name]}-labels-idx1-ubyte.gz", _FASHION)
        images = find_file(f"{IDX_STEMS[name]}-images-idx3-ubyte.gz", _FASHION)
        y = read_idx(path, _FASHION, shapes["y"])
        x = read_idx(images, _FASHION, (ROWS[name], 28, 28)).reshape(shapes["x"])
    # MNIST's idx files have the same names, but not equally many images of each class.
    if len(set(np.bincount(y, minlength=10))) != 1:
        raise damaged(path, _FASHION, "its ten classes differ in size, as MNIST's do in files of the same name")
    return x, y


def _parts(part: Part) -> tuple[str, ...]:
    one_of("part", part, ("train", "test", "all"))
    return ("train", "test") if part == "all" else (cast(str, part),)


def _shapes(name: str) -> dict[str, tuple[int, ...]]:
    return {"x": (ROWS[name], PIXELS), "y": (ROWS[name],)}


def _bunch(source: Source, about: str, pieces: list[tuple[Images, Images]], names: NDArray[np.str_]) -> Bunch:
    data = np.concatenate([x for x, _ in pieces])
    return dataset(
        source,
        about,
        data=data,
        target=np.concatenate([y for _, y in pieces]),
        feature_names=np.array([f"pixel_{row}_{column}" for row in range(28) for column in range(28)]),
        target_names=names,
        images=data.reshape(-1, 28, 28),
    )
