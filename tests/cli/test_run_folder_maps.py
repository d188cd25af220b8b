"""``fedspan run`` with maps and clusters: the report has each row with its site, number and label."""

from __future__ import annotations

import base64
import json
import re

import numpy as np
import pandas as pd
import pytest

import fedspan as fs
from fedspan.cli import main

STUDY = """
output = "results"
[data]
file = "all.csv"
site_column = "hospital"
label = "outcome"
[model]
name = "{name}"
n_landmarks = 12
rounds = 3
{more}
"""
MODELS = {"FedTSNE": "n_iter = 20\nearly_exaggeration_iter = 20", "FedSpectralClustering": "n_clusters = 3"}


@pytest.mark.parametrize("name", MODELS)
def test_report_has_the_rows_of_a_map(name, tmp_path, capsys):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(60, 4)), columns=list("abcd"))
    table["hospital"] = rng.choice(["south", "north", "west"], 60)
    table["outcome"] = [f"row {i}" for i in range(60)]
    table.to_csv(tmp_path / "all.csv", index=False)
    (tmp_path / "study.toml").write_text(STUDY.format(name=name, more=MODELS[name]))
    assert main(["run", str(tmp_path / "study.toml")]) == 0
    model = fs.load(tmp_path / "results" / "model.fedspan")
    page = (tmp_path / "results" / "report.html").read_text()
    data = json.loads(re.search(r'id="map-data">(.*?)</script>', page)[1])
    in_order = table.sort_values("hospital", kind="stable")
    assert _names(data["ways"]["label"]) == in_order["outcome"].tolist()
    assert _names(data["ways"]["site"]) == in_order["hospital"].tolist()
    assert _array(data["rows"], "<u4").tolist() == in_order.groupby("hospital").cumcount().tolist()
    if name == "FedTSNE":
        points = _array(data["points"], "<f4").reshape(-1, 2)
        assert np.array_equal(points, model.embedding_.astype(np.float32))
    else:
        assert _names(data["ways"]["cluster"]) == model.labels_.astype(str).tolist()
        assert "Clusters by site" in page
    assert "MMD² per round" in page
    assert "Neighbourhood quality" in page


def _array(packed, kind):
    return np.frombuffer(base64.b64decode(packed["data"]), dtype=kind)


def _names(way):
    return np.array(way["names"])[_array(way["codes"], {"u1": "<u1", "u2": "<u2"}[way["codes"]["kind"]])].tolist()
