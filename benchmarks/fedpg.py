"""FedPG on the embedded engine against a plain client in torch; and the exact path, which needs neither.

The plain client is what one writes first: every local step goes through all rows, puts the whole Lagrangian together,
lets autograd differentiate it, projects the gradient and takes torch's QR. It does the same rounds with the same sites
from the same start, without any federation around it, and arrives at the same result. Sites are fresh each time: what
they prepare from their rows counts on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

import fedspan as fs
from benchmarks.battery.ratio import Fresh, Ratio, compared, duration, processor_seconds
from fedspan.linalg import polar_factor
from fedspan.pca.covariance import covariance_pca
from fedspan.pca.fedpg import fedpg
from fedspan.pca.parts.orthogonal_iteration import random_basis

SITES, ROWS, COLUMNS = 100, 560, 39
SETTINGS = {"participation": 0.1, "max_rounds": 100, "local_steps": 10, "tol": 1e-300}
TURNS = 3
PROCESSES = 1  # it takes long


class PlainClient:
    """One site of FedPG as one writes it in torch. Columns are samples, as in the paper.

    As a reader of the paper would write it: the loss as it stands there, autograd for its gradient, torch's QR.
    """

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


def compare() -> Iterator[Ratio]:
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    shape = rng.normal(size=(COLUMNS, COLUMNS)) / np.sqrt(COLUMNS)
    parts = [rng.normal(size=(ROWS, COLUMNS)) * rng.uniform(0.5, 2.0, size=COLUMNS) @ shape for _ in range(SITES)]
    for k in (2, 10):
        with _federation(parts).begin("start", {}, 0) as run:
            start = random_basis(run.rng, COLUMNS, k)
        U, record = _ours(_federation(parts), k)
        rounds = [[int(name) for name in call.asked] for call in record.calls if call.round is not None]
        rho = record.metric("rho")[0]
        apart = np.abs(U - plain(parts, start, rounds, rho)).max()
        if apart > 1e-8:
            raise RuntimeError(f"the plain client arrives elsewhere, {apart:.0e} away")
        exact = processor_seconds(Fresh(lambda: _federation(parts), lambda fed, k=k: fed.run(covariance_pca, rank=k)))
        for ratio in compared(
            f"FedPG, k = {k} of {COLUMNS}, {SITES} sites of {ROWS} rows, {SETTINGS['max_rounds']} rounds of 10 sites",
            Fresh(lambda: _federation(parts), lambda fed, k=k: _ours(fed, k)),
            {"plain torch client": lambda start=start, rounds=rounds, rho=rho: plain(parts, start, rounds, rho)},
            turns=TURNS,
        ):
            yield replace(ratio, accuracy=f"largest difference {apart:.0e}; the exact path takes {duration(exact)}")


def _federation(parts: list[np.ndarray]) -> fs.LocalFederation:
    return fs.LocalFederation([fs.Site(f"{i:03d}", X) for i, X in enumerate(parts)])


def _ours(fed: fs.Federation, k: int) -> tuple[np.ndarray, fs.RunRecord]:
    with fed.begin("fedpg", {}, 0) as run:
        U, _ = fedpg(run, rank=k, n_columns=COLUMNS, **SETTINGS)
    return U, run.record
