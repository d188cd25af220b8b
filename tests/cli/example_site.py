"""An example site for tests of its owner's commands."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedspan.owner.admission import OwnerRequest

SITE = """
[site]
name = "clinic"

[data]
file = "rows.csv"
drop = ["id"]
label = "outcome"
where = "age > 20"

[schema]
age = "number"
"[bold]dose" = "number"
ward = "text"

[rules]
level = "trusted"
steps = ["summaries"]
users = ["alice"]
largest_reply = 1000000

[privacy]
ledger = "clinic.ledger"
epsilon = 2.0
delta = 1e-5
"""


def write_example(tmp_path):
    """Write a table and its ``site.toml``, and return the path of the latter."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"id": range(50), "age": rng.normal(50, 5, 50), "[bold]dose": rng.normal(size=50)})
    frame["ward"] = "Secretward"
    frame["outcome"] = np.arange(50) % 2
    frame.loc[:6, "[bold]dose"] = np.nan
    frame.loc[3, "age"] = 19.0
    frame.to_csv(tmp_path / "rows.csv", index=False)
    path = tmp_path / "site.toml"
    path.write_text(SITE)
    return path


def request(number=0, user="alice", step="sums.sums"):
    """Return a call of a step."""
    return OwnerRequest(user, "analyst", "call", "r", number, 0, step, (), "ask")
