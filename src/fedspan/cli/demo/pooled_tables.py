"""Two tables whose federated PCA is that of the pooled rows, to rounding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from fedspan.cli.console import print_line
from fedspan.cli.demo.demo_data import named
from fedspan.datasets import load_breast_cancer, load_digits, split_dirichlet, split_heavy_tailed
from fedspan.engines.local.embedded import federate
from fedspan.linalg import subspace_distance
from fedspan.pca.estimator import FedPCA
from fedspan.report import Scatter, write_report
from fedspan.tables.scaler import FedStandardScaler


def digits_table(folder: Path, seed: int) -> tuple[str, str, str]:
    """Run the digits over ten sites with unequal mixes."""
    digits = load_digits()
    labels = split_dirichlet(digits.target, 10, alpha=0.5, seed=seed)
    return _run(folder, "digits", "ten sites with very unequal mixes of digits (Dirichlet 0.5)", digits, labels, seed)


def cancer_table(folder: Path, seed: int) -> tuple[str, str, str]:
    """Run the breast cancer table over six sites of unequal size."""
    cancer = load_breast_cancer()
    labels = split_heavy_tailed(len(cancer.data), 6, min_rows=20, seed=seed)
    return _run(folder, "breast cancer", "six sites of very unequal size", cancer, labels, seed)


def _run(folder: Path, name: str, split: str, bunch: Any, labels: Any, seed: int) -> tuple[str, str, str]:
    """Scale and analyse one table, leave model and report, and return the address, title and result."""
    frame, sites = named(bunch.data, [str(column) for column in bunch.feature_names]), np.asarray(labels)
    fed = federate(frame, sites=sites, seed=seed)
    scaler = FedStandardScaler().fit(fed)
    pca = FedPCA(10).fit(scaler.transform(fed))
    pca.save(folder / "model.fedspan")
    rows = np.empty(len(sites), dtype=np.int64)  # the number of each row within its site
    for site in np.unique(sites):
        rows[sites == site] = np.arange(np.count_nonzero(sites == site))
    scatter = Scatter(
        pca.transform(scaler.transform(frame))[:, :2],
        sites.astype(str),
        rows,
        np.array([str(bunch.target_names[target]) for target in bunch.target]),
        x_label="component 1",
        y_label="component 2",
    )
    title = f"Federated PCA of {name}"
    write_report(
        folder / "report.html",
        title=title,
        records=[scaler.run_, pca.run_],
        models=[scaler, pca],
        sites={
            str(s): {"rows": int(n), "columns": bunch.data.shape[1]}
            for s, n in zip(*np.unique(sites, return_counts=True), strict=True)
        },
        scatter=scatter,
        settings={"data": f"{name}, from scikit-learn", "split": split, "seed": str(seed)},
    )
    pooled = PCA(10, svd_solver="full").fit(StandardScaler().fit_transform(bunch.data))
    angle = subspace_distance(pca.components_.T, pooled.components_.T, norm="spectral")
    print_line(f"{title}: sine of the largest angle to PCA of the pooled rows: {angle:.1e}")
    sentence = f"over {split}: the sine of the largest angle to PCA of the pooled rows is {angle:.1e}."
    return f"{folder.name}/report.html", title, sentence
