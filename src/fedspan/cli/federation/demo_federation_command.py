"""``fedspan federation demo``: a real federation on this machine, from its kits to the last byte of a result."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

from fedspan.datasets import load_breast_cancer, split_heavy_tailed
from fedspan.engines.local.embedded import LocalFederation
from fedspan.engines.nvflare.client.connect import connect
from fedspan.engines.nvflare.setup.local_deployment import LocalDeployment
from fedspan.federation import Federation, Policy, Site
from fedspan.pca.estimator import FedPCA
from fedspan.tables.scaler import FedStandardScaler

SITES = ("north", "south", "west")
USER = "alice"

#: At the default level a site computes on drawn rows with the moments of its own: equal, but not to the last bit.
_SITE = '[site]\nname = "{name}"\n\n[data]\nfile = "rows.npz"\n\n[rules]\nlevel = "trusted"\n'


def demo(seed: int) -> int:
    """Run the demonstration, and return 0 if both engines gave the same bytes, else 1."""
    begun = time.monotonic()

    def report(line: str) -> None:
        print(f"{time.monotonic() - begun:5.1f} s  {line}", flush=True)

    rows = _rows(seed)
    with tempfile.TemporaryDirectory(prefix="fedspan-demo-") as folder:
        tomls = _write_sites(Path(folder), rows)
        with LocalDeployment(Path(folder), "demo", tomls, {USER: "analyst"}) as deployment:
            report(f"kits for a coordinator, {len(SITES)} sites and a user, with certificates of their own")
            deployment.start()
            report(f"coordinator and sites run as processes of their own, mutual TLS on {deployment.plan.server}")
            with connect(deployment.kit(USER), seed=seed, policy=Policy(quorum="all")) as fed:
                report(f"connected as {USER}: {', '.join(fed.sites)}")
                real = _study(fed)
            report("study done: standardised, then ten principal components, no row left its site")
        report("coordinator and sites are stopped")
    embedded = _study(LocalFederation([Site(name, X) for name, X in rows.items()], seed=seed))
    same = real == embedded
    report("the result equals the embedded engine's, byte for byte" if same else "THE RESULT DIFFERS")
    return 0 if same else 1


def _study(fed: Federation) -> bytes:
    scaler = FedStandardScaler().fit(fed)
    pca = FedPCA(10).fit(scaler.transform(fed))
    return b"".join(np.ascontiguousarray(array).tobytes() for array in (scaler.mean_, scaler.scale_, pca.components_))


def _rows(seed: int) -> dict[str, np.ndarray]:
    X = np.asarray(load_breast_cancer().data)
    labels = split_heavy_tailed(len(X), len(SITES), min_rows=50, seed=seed)
    return {name: X[labels == label] for name, label in zip(SITES, np.unique(labels), strict=True)}


def _write_sites(folder: Path, rows: dict[str, np.ndarray]) -> dict[str, Path]:
    tomls = {}
    for name, X in rows.items():
        home = folder / "owners" / name
        home.mkdir(parents=True)
        np.savez(home / "rows.npz", X=X)
        tomls[name] = home / "site.toml"
        tomls[name].write_text(_SITE.format(name=name), encoding="utf-8")
    return tomls
