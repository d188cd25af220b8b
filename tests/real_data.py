"""Files of real data, which tests need and the project does not have. A process reads each table once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from fedspan.datasets import Bunch, data_folder, load_mnist, load_ton_iot, load_unsw_nb15


def real_file(name: str) -> Path:
    """Return the path of a file in the data folder; where it is not there, skip the test with the reason."""
    path = data_folder() / name
    if not path.is_file():
        pytest.skip(f"needs {name}, which is not in the data folder (FEDSPAN_DATA sets the folder)")
    return path


def _locked(table: Bunch) -> Bunch:
    for value in table.values():
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
    return table


@cache
def unsw() -> Bunch:
    real_file("unsw_nb15_82332.csv.gz")
    return _locked(load_unsw_nb15(categorical=True))


@cache
def ton() -> Bunch:
    real_file("ton_iot_network_211043.csv.gz")
    return _locked(load_ton_iot())


@cache
def mnist() -> Bunch:
    real_file("mnist.npz")
    return _locked(load_mnist())
