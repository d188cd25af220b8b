"""The example of CONTRIBUTING.md runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import fedspan as fs
from fedspan.federation.site.steps import _steps


def test_the_example_of_a_protocol_runs():
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    names = {"__name__": "contributing"}
    try:
        exec(re.search(r"```python\n(.*?)```", text, flags=re.DOTALL)[1], names)
        X = np.random.default_rng(0).normal(size=(50, 4)) * [4.0, 3.0, 1.0, 1.0]
        found = fs.federate(X, sites=np.arange(50) % 3).run(names["plain_pca"], rank=2)
    finally:
        _steps.by_id.pop("pca.plain_gram", None)
    np.testing.assert_allclose(np.abs(found), np.abs(np.linalg.svd(X)[2][:2].T), atol=1e-10)
