"""Files of real data, which tests need and the project does not have."""

from pathlib import Path

import pytest

from fedspan.datasets import data_folder


def real_file(name: str) -> Path:
    """Return the path of a file in the data folder; where it is not there, skip the test with the reason."""
    path = data_folder() / name
    if not path.is_file():
        pytest.skip(f"needs {name}, which is not in the data folder (FEDSPAN_DATA sets the folder)")
    return path
