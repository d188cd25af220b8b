"""``fedspan federation demo``: a real federation on this machine, from its kits to the last byte of a result."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

from fedspan.datasets import load_breast_cancer, split_heavy_tailed
from fedspan.engines.local.embedded import LocalFederation
from fedspan.engines.nvflare.client.connect import connect
from fedspan.engines.nvflare.setup.federation_plan import FederationPlan
from fedspan.engines.nvflare.setup.local_deployment import FederationHere
from fedspan.federation import Federation, Policy, Site
from fedspan.pca.estimator import FedPCA
from fedspan.tables.scaler import FedStandardScaler

SITES = ("north", "south", "west")


def run_federation_demo(seed: int) -> bool:
    """Run it and return whether both engines gave the same bytes."""
    begun = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - begun:5.1f} s  {line}", flush=True)

    rows = _rows(seed)
    with tempfile.TemporaryDirectory(prefix="fedspan-demo-") as folder:
        tomls = _write_sites(Path(folder), rows)
        with FederationHere(Path(folder), "demo", tomls) as here:
            say(f"kits for a coordinator, {len(SITES)} sites and a user, with certificates of their own")
            here.start()
            say(f"coordinator and sites run as processes of their own, mutual TLS on {here.plan.server}")
            with connect(here.kit(_user(here.plan)), seed=seed, policy=Policy(quorum="all")) as fed:
                say(f"connected as {_user(here.plan)}: {', '.join(fed.sites)}")
                real = _study(fed)
            say("study done: standardised, then ten principal components, no row left its site")
        say("all of it is taken down")
    embedded = _study(LocalFederation([Site(name, X) for name, X in rows.items()], seed=seed))
    same = real == embedded
    say("the result equals the embedded engine's, byte for byte" if same else "THE RESULT IS ANOTHER ONE")
    return same


def _user(plan: FederationPlan) -> str:
    return next(iter(plan.users))


def _study(fed: Federation) -> bytes:
    scaler = FedStandardScaler().fit(fed)
    pca = FedPCA(10).fit(scaler.transform(fed))
    return b"".join(np.ascontiguousarray(array).tobytes() for array in (scaler.mean_, scaler.scale_, pca.components_))


def _rows(seed: int) -> dict[str, np.ndarray]:
    bunch = load_breast_cancer()
    labels = split_heavy_tailed(len(bunch.data), len(SITES), min_rows=50, seed=seed)
    kinds = np.unique(labels)
    return {name: np.asarray(bunch.data)[labels == kind] for name, kind in zip(SITES, kinds, strict=True)}


def _write_sites(folder: Path, rows: dict[str, np.ndarray]) -> dict[str, Path]:
    tomls = {}
    for name, X in rows.items():
        home = folder / "owners" / name
        home.mkdir(parents=True)
        np.savez(home / "rows.npz", X=X)
        tomls[name] = home / "site.toml"
        text = f'[site]\nname = "{name}"\n\n[data]\nfile = "rows.npz"\n\n[rules]\nsteps = ["summaries"]\n'
        tomls[name].write_text(text, encoding="utf-8")
    return tomls
