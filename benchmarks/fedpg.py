"""FedPG on the embedded engine against a plain client in torch, and the exact path, which needs neither.

The plain client is what one writes first: every local step goes through all rows, puts the whole Lagrangian together,
lets autograd differentiate it, projects the gradient and takes torch's QR. It does the same rounds with the same sites
from the same start, without any federation around it, and arrives at the same result. One thread for everybody.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
import torch
from threadpoolctl import threadpool_limits

import fedspan as fs
from fedspan.linalg import polar_factor
from fedspan.protocols.covariance_pca import covariance_pca
from fedspan.protocols.fedpg import fedpg
from fedspan.protocols.orthogonal_iteration import random_basis

SITES, ROWS, COLUMNS = 100, 560, 39
SETTINGS = {"participation": 0.1, "max_rounds": 100, "local_steps": 10, "tol": 1e-300}
REPEATS = 3


class PlainClient:
    """One site of FedPG, written without a thought for speed. Columns are samples, as in the paper."""

    def __init__(self, X: np.ndarray) -> None:
        self.X = torch.tensor(X.T)
        self.step = 2.0 * float(torch.linalg.matrix_norm(self.X, 2) ** 2) / ROWS
        self.U: torch.Tensor | None = None

    def train(self, Z: torch.Tensor, rho: float) -> torch.Tensor:
        if self.U is None:
            self.U, self.Y = _qr(Z), torch.zeros_like(Z)
        else:
            self.Y = self.Y + rho * (self.U - Z)
        for _ in range(SETTINGS["local_steps"]):
            U = self.U.clone().requires_grad_(True)
            residual = self.X - torch.matmul(torch.matmul(U, U.T), self.X)
            loss = torch.norm(residual) ** 2 / ROWS
            lagrangian = loss + torch.sum(self.Y * (U - Z)) + 0.5 * rho * torch.norm(U - Z) ** 2
            lagrangian.backward()
            with torch.no_grad():
                inner = torch.matmul(U.T, U.grad)
                projected = U.grad - torch.matmul(U, (inner + inner.T) / 2)
                self.U = _qr(U - projected / (self.step + rho))
        return self.U + self.Y / rho


def _qr(W: torch.Tensor) -> torch.Tensor:
    Q, R = torch.linalg.qr(W)
    return Q * torch.sign(torch.diagonal(R))


def plain(parts: list[np.ndarray], start: np.ndarray, rounds: list[list[int]], rho: float) -> np.ndarray:
    """FedPG as a loop over plain clients; the server averages the last message of every client."""
    clients = [PlainClient(X) for X in parts]
    last: dict[int, torch.Tensor] = {}
    Z = torch.tensor(start)
    for chosen in rounds:
        for i in chosen:
            last[i] = clients[i].train(Z, rho)
        Z = torch.stack(list(last.values())).mean(dim=0)
    return polar_factor(Z.numpy())


def main() -> dict[str, float]:
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    shape = rng.normal(size=(COLUMNS, COLUMNS)) / np.sqrt(COLUMNS)
    parts = [rng.normal(size=(ROWS, COLUMNS)) * rng.uniform(0.5, 2.0, size=COLUMNS) @ shape for _ in range(SITES)]
    figures: dict[str, float] = {}
    with threadpool_limits(1):
        for k in (2, 10):
            times: dict[str, list[float]] = {"ours": [], "plain": [], "exact": []}
            for repeat in range(REPEATS):
                U, record, start, seconds = _ours(parts, k, repeat)
                times["ours"].append(seconds)
                rounds = [[int(name) for name in call.asked] for call in record.calls if call.round is not None]
                began = time.perf_counter()
                V = plain(parts, start, rounds, record.metric("rho")[0])
                times["plain"].append(time.perf_counter() - began)
                apart = np.abs(U - V).max()
                if apart > 1e-8:
                    raise RuntimeError(f"the plain client arrives elsewhere, {apart:.0e} away")
                times["exact"].append(_exact(parts, k))
            ours, naive, exact = (statistics.median(times[name]) for name in ("ours", "plain", "exact"))
            figures[f"plain torch client / fedpg, k={k}"] = naive / ours
            figures[f"exact path, k={k}: seconds"] = exact
            print(f"k={k:2}: fedpg {ours:.3f} s, plain client {naive:.2f} s: {naive / ours:.0f}x; exact {exact:.3f} s")
    print("(aims: at least 20x at k=2 and 9x at k=10; exact path at most 0.1 s; medians of", REPEATS, "repeats)")
    return figures


def _federation(parts: list[np.ndarray]) -> fs.LocalFederation:
    return fs.LocalFederation([fs.Site(f"{i:03d}", X) for i, X in enumerate(parts)])


def _ours(parts: list[np.ndarray], k: int, seed: int) -> tuple[np.ndarray, object, np.ndarray, float]:
    """Return result, record, start and seconds of a run on a fresh federation, that has computed nothing before."""
    fed = _federation(parts)
    with fed.begin("start", {}, seed) as run:
        start = random_basis(run.rng, COLUMNS, k)
    began = time.perf_counter()
    with fed.begin("fedpg", {}, seed) as run:
        U, _ = fedpg(run, rank=k, n_columns=COLUMNS, **SETTINGS)
    return U, run.record, start, time.perf_counter() - began


def _exact(parts: list[np.ndarray], k: int) -> float:
    fed = _federation(parts)
    began = time.perf_counter()
    fed.run(covariance_pca, rank=k)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
