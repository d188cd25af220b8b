"""An example table, and ``site.toml`` files for it."""

from __future__ import annotations

import numpy as np
import pandas as pd


def example_table():
    """Return thirty rows of numbers, text and missing cells."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(30, 3)), columns=["age", "dose", "weight"])
    frame["ward"] = np.array(["A", "B", "C"])[np.arange(30) % 3]
    frame["outcome"] = np.arange(30) % 2
    frame.loc[4, "dose"] = np.nan
    return frame


def site_writer(folder, table):
    """Write a table; return a function that writes a ``site.toml`` beside it and returns its path."""
    table.to_csv(folder / "rows.csv", index=False)

    def write(data='file = "rows.csv"\ncolumns = ["age", "weight"]', rules="", **sections):
        if "level" not in rules:  # most tests are about steps that the default level does not admit
            rules = 'level = "trusted"\n' + ("" if "steps" in rules else 'steps = ["summaries"]\n') + rules
        text = f'[site]\nname = "clinic"\n\n[data]\n{data}\n\n[rules]\n{rules}\n'
        text += "".join(f"\n[{name}]\n{body}\n" for name, body in sections.items())
        path = folder / "site.toml"
        path.write_text(text)
        return path

    return write
