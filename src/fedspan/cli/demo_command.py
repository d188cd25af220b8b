"""``fedspan demo``: an embedded federation on tables that come with scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from fedspan.cli.console import print_line
from fedspan.cli.study.run_command import finish, fit_all
from fedspan.cli.study.run_folder import make_folder
from fedspan.cli.study.study_tables import SiteTable
from fedspan.datasets import load_breast_cancer, load_digits, split_dirichlet, split_heavy_tailed
from fedspan.engines.local.embedded import LocalFederation
from fedspan.errors import InputError
from fedspan.federation.site_labels import site_rows
from fedspan.linalg import subspace_distance
from fedspan.pca.estimator import FedPCA
from fedspan.report import write_index
from fedspan.tables.scaler import FedStandardScaler


def demo(out: Path, seed: int) -> int:
    """Run both tables, and write a page that links to their reports."""
    digits, cancer = load_digits(), load_breast_cancer()
    uneven_mix = split_dirichlet(digits.target, 10, alpha=0.5, seed=seed)
    uneven_size = split_heavy_tailed(len(cancer.data), 6, min_rows=20, seed=seed)
    mix, size = "ten sites with very unequal mixes of digits (Dirichlet 0.5)", "six sites of very unequal size"
    reports = {
        "digits/report.html": _run(out / "digits", "digits", mix, digits, uneven_mix, seed),
        "breast-cancer/report.html": _run(out / "breast-cancer", "breast cancer", size, cancer, uneven_size, seed),
    }
    lead = "Each table is split over sites, scaled and analysed without a row leaving its site."
    index = write_index(out / "report.html", title="fedspan demo", lead=lead, reports=reports)
    print_line(f"both reports: {index}")
    return 0


def _run(output: Path, name: str, split: str, bunch: Any, labels: Any, seed: int) -> dict[str, str]:
    """Run one table, leave its report in `output`, and return its entry in the index."""
    make_folder(output)
    tables = _tables(bunch, labels)
    fed = LocalFederation([table.site() for table in tables], seed=seed)
    models = fit_all([FedStandardScaler(), FedPCA(10)], fed)
    settings = {"data": f"{name}, from scikit-learn", "split": split, "seed": str(seed)}
    title = f"Federated PCA of {name}"
    finish(output, title, models, tables, settings)
    pooled = PCA(10, svd_solver="full").fit(StandardScaler().fit_transform(bunch.data))
    angle = subspace_distance(models[-1].components_.T, pooled.components_.T, norm="spectral")
    print_line(f"sine of the largest angle to PCA of the pooled rows: {angle:.1e}\n")
    return {
        "title": title,
        "split": split,
        "rows, columns": f"{len(bunch.data):,}, {bunch.data.shape[1]}",
        "variance in ten components": f"{models[-1].explained_variance_ratio_.sum():.1%}",
        "sine of the largest angle to PCA of the pooled rows": f"{angle:.1e}",
        "bytes up, all sites": f"{sum(model.run_.bytes_up for model in models):,}",
        "calls": str(sum(len(model.run_.calls) for model in models)),
        "stopped": models[-1].run_.stopped,
    }


def _tables(bunch: Any, labels: Any) -> list[SiteTable]:
    try:
        import pandas as pd
    except ImportError:
        raise InputError("the demo needs pandas: install it with 'pip install fedspan[tables]'") from None
    frame = pd.DataFrame(bunch.data, columns=[str(name) for name in bunch.feature_names])
    classes = np.array([str(bunch.target_names[target]) for target in bunch.target])
    rows = site_rows(labels, len(frame))
    return [SiteTable(name, frame.iloc[index], classes[index]) for name, index in rows.items()]
