"""What the tests of a site's owner share."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from .postgres_server import programs, running_server


@pytest.fixture(scope="session")
def postgres():
    found = programs()
    if found is None:
        pytest.skip("PostgreSQL's programs (Debian's package postgresql) are not installed")
    with running_server(found) as server:
        yield server


@pytest.fixture
def table():
    """Thirty rows of numbers, text and gaps."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(30, 3)), columns=["age", "dose", "weight"])
    frame["ward"] = np.array(["A", "B", "C"])[np.arange(30) % 3]
    frame["outcome"] = np.arange(30) % 2
    frame.loc[4, "dose"] = np.nan
    return frame


@pytest.fixture
def write_site(tmp_path, table):
    """Write a table and a ``site.toml`` beside it; return the path of the latter."""
    table.to_csv(tmp_path / "rows.csv", index=False)

    def write(data='file = "rows.csv"\ncolumns = ["age", "weight"]', rules="", **sections):
        text = f'[site]\nname = "clinic"\n\n[data]\n{data}\n\n[rules]\n{rules}\n'
        text += "".join(f"\n[{name}]\n{body}\n" for name, body in sections.items())
        path = tmp_path / "site.toml"
        path.write_text(text)
        return path

    return write
