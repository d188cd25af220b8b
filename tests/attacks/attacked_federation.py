"""A federation of seven sites, and two steps to attack."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedspan.engines.local.embedded import LocalFederation
from fedspan.federation import Federation, Site, step


@step
def describe(site: Site) -> dict[str, Any]:
    X = site.X
    basis = np.linalg.svd(X.T, full_matrices=False)[0][:, :2]
    return {"basis": basis, "mean": X.mean(axis=0), "trace": float(np.trace(X.T @ X)), "n": len(X), "half": X[0, 0] / 2}


@step
def fragile(site: Site) -> dict[str, Any]:
    if site.name == "d":
        raise RuntimeError("out of order")
    return {"mean": site.X.mean(axis=0), "name": site.name}


def federation(wire: bool = False, **kwargs: Any) -> LocalFederation:
    rng = np.random.default_rng(4)
    sites = [Site(name, rng.normal(size=(6 + i, 5))) for i, name in enumerate("abcdefg")]
    return LocalFederation(sites, seed=11, wire=wire, **kwargs)


def outcomes(fed: Federation, times: int = 2) -> list[tuple[dict[str, Any], dict[str, str]]]:
    replies = [fed.ask(describe) for _ in range(times)]
    return [(reply.ok, reply.failed) for reply in replies]
