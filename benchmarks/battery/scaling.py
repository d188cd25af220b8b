"""How time and bytes of a round grow with sites, rows and columns, beside a bare numpy loop over the same sites.

The loop does the same arithmetic as one writes it without a library, for rows that are all at hand: no federation, no
checks, no record, no certificate. FedPG's round has every site in it, and ten local steps each; its time is that of
three rounds, with what sites prepare before the first, divided by three. The other two have one round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import fedspan as fs
from benchmarks.battery.ratio import Fresh, processor_seconds
from fedspan.pca.covariance import covariance_pca
from fedspan.pca.fedpg import DEFAULT_RHO, fedpg
from fedspan.pca.subspace_median import subspace_median

RANK, ROUNDS, LOCAL_STEPS = 3, 3, 10
TURNS = 3
PATIENCE = 3.0  # seconds: what takes longer in all is not repeated
#: Per axis: sites, rows of each, columns.
SIZES: dict[str, list[tuple[int, int, int]]] = {
    "sites": [(L, 50, 20) for L in (10, 100, 1000, 10_000)],
    "rows": [(20, n, 20) for n in (50, 500, 5000, 50_000)],
    "columns": [(20, 500, d) for d in (10, 32, 100, 316, 1000)],
}

LINE = (
    "{sites:6} sites x {rows:6} rows x {columns:5}, {protocol:16} {seconds:9.2g} s a round, bare loop {loop:9.2g} s, "
    "{bytes:12,} bytes"
)

Parts = list[np.ndarray]


def measured(sizes: dict[str, list[tuple[int, int, int]]] | None = None) -> list[dict[str, Any]]:
    """Return a point for each axis, size and protocol: seconds (median of three) of ours and the loop, bytes."""
    points = []
    with threadpool_limits(1):
        for axis, settings in (sizes or SIZES).items():
            print(f"\n== scaling: {axis}", flush=True)
            for sites, rows, columns in settings:
                parts = _parts(sites, rows, columns)
                for name in PROTOCOLS:
                    size = {"axis": axis, "sites": sites, "rows": rows, "columns": columns}
                    points.append(size | _point(name, parts))
                    print(LINE.format(**points[-1]), flush=True)
    return points


def _point(name: str, parts: Parts) -> dict[str, Any]:
    protocol, settings, loop, rounds = PROTOCOLS[name]
    if rounds > 1:
        settings = settings | {"n_columns": parts[0].shape[1]}
    records: list[fs.RunRecord] = []

    def work(fed: fs.Federation) -> None:
        with fed.begin(name) as run:
            protocol(run, **settings)
        records.append(run.record)

    ours: list[float] = []
    loops: list[float] = []
    while not ours or (len(ours) < TURNS and sum(ours) < PATIENCE):
        ours.append(processor_seconds(Fresh(lambda: _federation(parts), work)))
        loops.append(processor_seconds(lambda: loop(parts)))
    return {
        "protocol": name,
        "seconds": float(f"{np.median(ours) / rounds:.4g}"),
        "loop": float(f"{np.median(loops) / rounds:.4g}"),
        "bytes": round((records[-1].bytes_up + records[-1].bytes_down) / rounds),
    }


def _federation(parts: Parts) -> fs.LocalFederation:
    return fs.LocalFederation([fs.Site(f"{i:05d}", X) for i, X in enumerate(parts)])


def _parts(sites: int, rows: int, columns: int) -> Parts:
    rng = np.random.default_rng(0)
    sizes = np.r_[[4.0, 3.0, 2.0], np.full(columns - RANK, 0.5)]
    turned = np.linalg.qr(rng.normal(size=(columns, columns)))[0] * sizes
    return [rng.normal(size=(rows, columns)) @ turned.T for _ in range(sites)]


def _top(S: np.ndarray) -> np.ndarray:
    return np.linalg.eigh(S)[1][:, : -RANK - 1 : -1]


def exact_loop(parts: Parts) -> np.ndarray:
    """Exact PCA: the sum of the Gram matrices, and its eigenvectors."""
    return _top(sum(X.T @ X for X in parts))


def median_loop(parts: Parts) -> np.ndarray:
    """The subspace median: Weiszfeld's iteration on dense projectors, until the objective falls by less than 1e-12."""
    bases = np.stack([_top(X.T @ X) for X in parts])
    P = (bases @ bases.transpose(0, 2, 1)).reshape(len(parts), -1)
    Z, before = P.mean(axis=0), np.inf
    for _ in range(1000):
        distances = np.linalg.norm(P - Z, axis=1)
        if before - distances.sum() <= 1e-12 * distances.sum():
            break
        before, pulls = distances.sum(), 1.0 / distances
        Z = pulls / pulls.sum() @ P
    return _top(Z.reshape(bases.shape[1], -1))


def fedpg_loop(parts: Parts, start: np.ndarray | None = None) -> np.ndarray:
    """FedPG with the Gram matrices at hand: per site and local step a product, a projection and a QR."""
    grams = [X.T @ X / len(X) for X in parts]
    tops = [np.linalg.eigvalsh(C)[-1] for C in grams]
    rho = DEFAULT_RHO * max(tops)
    Z = np.linalg.qr(np.random.default_rng(0).normal(size=(len(grams[0]), RANK)))[0] if start is None else start
    U, Y = [_positive_qr(Z)] * len(parts), [np.zeros_like(Z)] * len(parts)
    for _ in range(ROUNDS):
        for i, C in enumerate(grams):
            Y[i] = Y[i] + rho * (U[i] - Z)
            for _ in range(LOCAL_STEPS):
                G = -2.0 * C @ U[i] + Y[i] + rho * (U[i] - Z)
                inner = U[i].T @ G
                U[i] = _positive_qr(U[i] - (G - U[i] @ (inner + inner.T) / 2.0) / (2.0 * tops[i] + rho))
        Z = np.mean([u + y / rho for u, y in zip(U, Y, strict=True)], axis=0)
    return Z


def _positive_qr(W: np.ndarray) -> np.ndarray:
    Q, R = np.linalg.qr(W)
    return Q * np.sign(np.diagonal(R))


#: Ours, its settings, the loop, and how many rounds both make.
PROTOCOLS: dict[str, tuple[Callable[..., Any], dict[str, Any], Callable[[Parts], Any], int]] = {
    "exact PCA": (covariance_pca, {"rank": RANK}, exact_loop, 1),
    "subspace median": (subspace_median, {"rank": RANK, "output": "eigenspace"}, median_loop, 1),
    "FedPG": (
        fedpg,
        {"rank": RANK, "max_rounds": ROUNDS, "local_steps": LOCAL_STEPS, "tol": 1e-300},
        fedpg_loop,
        ROUNDS,
    ),
}
