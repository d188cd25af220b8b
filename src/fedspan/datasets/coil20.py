"""COIL-20: twenty objects on a turntable."""

from __future__ import annotations

import numpy as np

from fedspan.datasets.bunch import Bunch, Source, dataset
from fedspan.datasets.data_folder import find_file, read_npz

COIL20_FILE = "coil20_32x32.npz"
ROWS = 20 * 72

_SOURCE = Source(
    name="COIL-20, 32 x 32",
    publisher="Columbia University Image Library, S. A. Nene, S. K. Nayar and H. Murase (CUCS-005-96, 1996)",
    where="Columbia University's COIL-20 page (the images reduced to 32 x 32, as arrays images, labels and view)",
    terms="non-commercial research use (check with the publisher before redistribution).",
)
_ABOUT = (
    "20 objects, 72 views each in steps of 5 degrees, one upright 32 x 32 grey image a row, row by row from "
    "the top. The rows are sorted by object, so a split by position is a split by class. The originals have "
    "128 x 128 pixels; these are means of 4 x 4 of them, rounded to bytes (0 to 255): make them "
    "floating-point before subtracting, or they wrap around."
)


def load_coil20() -> Bunch:
    """Load COIL-20 from ``coil20_32x32.npz`` in the data folder.

    Returns
    -------
    Bunch
        ``data`` (1440, 1024) uint8; ``images`` (1440, 32, 32), a view of it; ``target`` (1440,), the object;
        ``view`` (1440,), the position on the turntable, 0 to 71.

    Raises
    ------
    DataMissingError
        If the file is not in the data folder.
    """
    path = find_file(COIL20_FILE, _SOURCE)
    members = {"images": ("u", (ROWS, 32, 32)), "labels": ("u", (ROWS,)), "view": ("u", (ROWS,))}
    arrays = read_npz(path, _SOURCE, members)
    data = arrays["images"].reshape(ROWS, -1)
    return dataset(
        _SOURCE,
        _ABOUT,
        data=data,
        target=arrays["labels"],
        feature_names=np.array([f"pixel_{row}_{column}" for row in range(32) for column in range(32)]),
        target_names=np.array([f"object {number}" for number in range(1, 21)]),
        images=data.reshape(ROWS, 32, 32),
        view=arrays["view"].astype(np.int64),
    )
