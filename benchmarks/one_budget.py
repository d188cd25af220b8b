"""One privacy budget for a first look and two models: which share of the numbers stays within 5 % of the truth.

Describe, a histogram, correlations, PCA and a map (``FedTSNE(share="centers")``), with secure sums at ten sites. Each
site has a ledger of epsilon 8 at delta 1e-5, and each analysis a fifth of its mu^2. *TON_IoT*: 15,000 normal flows, the
logarithms of eight columns and the protocol. *Breast cancer*: 569 rows of 30 columns, where it fails. Public bounds are
the ranges of the columns, rounded outwards.

Counted are, where the truth is not 0: counts, means, deviations and quartiles, rows of each name; counts of the
histogram; correlations, within .05 of the truth; explained variances. Of the map it is the share of the ten nearest
neighbours that it keeps, over that of the map without noise. One page (``build/one-budget-*.html``) has these shares,
the records of all runs, and what they spent.

``FEDSPAN_BUDGET_ROWS=15000``. Needs the data folder (FEDSPAN_DATA).
"""

from __future__ import annotations

import math
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits

import fedspan as fs
from fedspan.datasets import load_ton_iot
from fedspan.privacy import GaussianCenters, GaussianMoments, Ledger, epsilon_of, mu_of
from fedspan.statistics import correlation, histogram

EPSILON, DELTA, SITES, PARTS = 8.0, 1e-5, 10, 5
PAGES = Path("build")
ROWS = int(os.environ.get("FEDSPAN_BUDGET_ROWS", "15000"))
COLUMNS = ("duration", "src_bytes", "dst_bytes", "src_pkts", "src_ip_bytes", "dst_pkts", "dst_ip_bytes", "dns_qtype")


def main() -> dict[str, float]:
    figures: dict[str, float] = {}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for name, table, names in (("TON_IoT", *flows()), ("breast cancer", *cancer())):
            figures |= {f"{name}: {what}": value for what, value in _looked_at(name, table, names).items()}
    return figures


def flows() -> tuple[pd.DataFrame, dict[str, list[str]]]:
    found = load_ton_iot()
    frame = pd.DataFrame(found.data, columns=list(found.feature_names))[np.asarray(found.target) == 0]
    frame = frame.sample(min(ROWS, len(frame)), random_state=0).reset_index(drop=True)
    protocols = ["icmp", "tcp", "udp"]
    one_hot = frame[[f"proto_{name}" for name in protocols]].to_numpy()
    table = np.log1p(frame[list(COLUMNS)].clip(lower=0))
    return table.assign(proto=np.array(protocols)[one_hot.argmax(axis=1)]), {"proto": protocols}


def cancer() -> tuple[pd.DataFrame, dict[str, list[str]]]:
    found = load_breast_cancer(as_frame=True)
    return found.data.assign(kind=found.target.map({0: "malignant", 1: "benign"})), {"kind": ["benign", "malignant"]}


def _looked_at(name: str, table: pd.DataFrame, names: dict[str, list[str]]) -> dict[str, float]:
    numbers = table.drop(columns=list(names))
    part = epsilon_of(mu_of(EPSILON, DELTA) / math.sqrt(PARTS), DELTA)
    low, high = np.floor(numbers.min().to_numpy()), np.ceil(numbers.max().to_numpy())
    high = np.where(high > low, high, low + 1)
    box = GaussianMoments(part, DELTA, lower=low, upper=high)
    with tempfile.TemporaryDirectory() as folder:
        ledgers = {str(s): Ledger(f"{folder}/{s}.ledger", EPSILON, DELTA) for s in range(SITES)}
        whole, bare = (_federation(rows, ledgers) for rows in (table, numbers))
        described = fs.describe(whole, categories=names, privacy=box)
        first = numbers.columns[0]
        bars = histogram(whole, first, bins=10, privacy=GaussianMoments(part, DELTA, lower=low[0], upper=high[0]))
        pairs = correlation(bare, privacy=box)
        pca = _fitted(fs.FedPCA(3, privacy=box), bare)
        scaled = (numbers - low) / (high - low)
        centre = np.full(numbers.shape[1], 0.5)
        clip = float(np.linalg.norm(centre)) / 2
        privacy = GaussianCenters(part, DELTA, clip=clip, center=centre)
        map_ = _fitted(fs.FedTSNE(share="centers", privacy=privacy, random_state=0), _federation(scaled, ledgers))
        spent = max(ledger.spent for ledger in ledgers.values())
        records = [found.run_ for found in (described, bars, pairs, pca, map_) if found is not None]
    figures = {"epsilon spent": spent} | _shares(table, names, described, bars, pairs, pca)
    plain = fs.FedTSNE(share="centers", random_state=0).fit(_federation(scaled))
    kept = [0.0 if one is None else _kept(scaled.to_numpy(), one) for one in (map_, plain)]
    figures["map, neighbours kept over those without noise"] = kept[0] / max(kept[1], 1e-9)
    page = PAGES / f"one-budget-{name.replace(' ', '-')}.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    settings = {what: f"{value:.3f}" for what, value in figures.items()}
    fs.report.write_report(page, title=f"One budget: {name}", records=records, settings=settings)
    print(f"\n{name}: {len(table):,} rows, {page}")
    for what, value in figures.items():
        print(f"  {what:50} {value:.3f}", flush=True)
    return figures


def _fitted(model: Any, fed: fs.Federation) -> Any:
    """Return a fitted model, or ``None`` where the noise hides everything, which its error states."""
    try:
        return model.fit(fed)
    except fs.errors.InputError as error:
        print(f"  {type(model).__name__}: {error}", flush=True)
        return None


def _federation(table: Any, ledgers: dict[str, Ledger] | None = None) -> fs.Federation:
    site = np.arange(len(table)) % SITES
    sites = [fs.Site(str(s), table[site == s], ledger=(ledgers or {}).get(str(s))) for s in range(SITES)]
    return fs.LocalFederation(sites, policy=fs.Policy(secure_sum=True, deadline=600.0))


def _shares(table: Any, names: Any, described: Any, bars: Any, pairs: Any, pca: Any) -> dict[str, float]:
    """Return the share of the numbers of each analysis that are within 5 % of the truth."""
    numbers = table.drop(columns=list(names))
    wanted = numbers.describe().T[["count", "mean", "std", "25%", "50%", "75%"]].to_numpy()
    frame = described.to_frame().loc[numbers.columns, ["count", "mean", "std", "25%", "50%", "75%"]].to_numpy(float)
    (column,) = names
    counts = table[column].value_counts()
    found = described.categories[column]
    named = np.array([counts.get(text, 0) for text in found.names])
    true_bars = np.histogram(numbers.iloc[:, 0], bars.edges)[0]
    variances = np.sort(np.linalg.eigvalsh(np.cov(numbers.to_numpy().T)))[::-1][:3]
    return {
        "describe, within 5 %": _near(np.r_[frame.ravel(), found.counts[0, :-2]], np.r_[wanted.ravel(), named]),
        "histogram, within 5 %": _near(bars.counts[0], true_bars),
        "correlations, within .05": float(np.mean(np.abs(pairs.values - numbers.corr().to_numpy()) <= 0.05)),
        "PCA, variances within 5 %": 0.0 if pca is None else _near(pca.explained_variance_, variances),
    }


def _near(found: Any, truth: Any) -> float:
    known = np.isfinite(truth) & (truth != 0)
    return float(np.mean(np.abs(found - truth)[known] <= 0.05 * np.abs(truth)[known]))


def _kept(rows: np.ndarray, fitted: Any, k: int = 10, most: int = 2000) -> float:
    """Return the share of the nearest neighbours of some rows that are near on the map, too."""
    some = rows[np.random.default_rng(0).choice(len(rows), min(most, len(rows)), replace=False)]
    true, shown = (
        NearestNeighbors(n_neighbors=k + 1).fit(X).kneighbors(X, return_distance=False)[:, 1:]
        for X in (some, np.asarray(fitted.transform(some)))
    )
    return float(np.mean([len(set(a) & set(b)) / k for a, b in zip(true, shown, strict=True)]))


if __name__ == "__main__":
    main()
