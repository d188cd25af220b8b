"""``fedspan demo``: an embedded federation on tables that come with scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from fedspan.cli.run import finish, fit_all, versions
from fedspan.cli.tables import SiteTable
from fedspan.datasets import load_breast_cancer, load_digits, split_dirichlet, split_heavy_tailed
from fedspan.engines.local import LocalFederation, site_rows
from fedspan.estimators import FedPCA, FedStandardScaler
from fedspan.linalg import subspace_distance


def run_demo(output: Path, seed: int) -> list[Path]:
    """Run both tables and return the reports."""
    digits, cancer = load_digits(), load_breast_cancer()
    labels = {
        "digits": split_dirichlet(digits.target, 10, alpha=0.5, seed=seed),
        "breast cancer": split_heavy_tailed(len(cancer.data), 6, min_rows=20, seed=seed),
    }
    said = {
        "digits": "ten sites with very unequal mixes of digits (Dirichlet 0.5)",
        "breast cancer": "six sites of very unequal size",
    }
    reports = []
    for name, bunch in (("digits", digits), ("breast cancer", cancer)):
        reports.append(_run(output / name.replace(" ", "-"), name, bunch, labels[name], said[name], seed))
    return reports


def _run(output: Path, name: str, bunch: Any, labels: Any, said: str, seed: int) -> Path:
    output.mkdir(parents=True, exist_ok=True)
    tables = _tables(bunch, labels)
    models = fit_all([FedStandardScaler(), FedPCA(10)], LocalFederation([table.site() for table in tables], seed=seed))
    settings = {"data": f"{name}, from scikit-learn", "split": said, "seed": str(seed), **versions()}
    report = finish(output, f"Federated PCA of {name}", models, tables, settings)
    pooled = PCA(10, svd_solver="full").fit(StandardScaler().fit_transform(bunch.data))
    angle = subspace_distance(models[-1].components_.T, pooled.components_.T, norm="spectral")
    Console().print(f"sine of the largest angle to PCA of the pooled rows: {angle:.1e}\n", highlight=False)
    return report


def _tables(bunch: Any, labels: Any) -> list[SiteTable]:
    frame = pd.DataFrame(bunch.data, columns=[str(name) for name in bunch.feature_names])
    classes = np.array([str(bunch.target_names[target]) for target in bunch.target])
    rows = site_rows(labels, len(frame))
    return [SiteTable(name, frame.iloc[index], classes[index]) for name, index in rows.items()]
