"""FedPG on UNSW-NB15 as in the paper's setting: 17,000 normal rows, standardised, at 100 sites sorted by ct_srv_src."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.datasets import anomaly_split, split_blocks
from fedspan.federation import EndingKind
from fedspan.pca.fedpg import fedpg
from tests import real_data

pytestmark = pytest.mark.slow

RHO = 50.0  # as the sites use it


class Unsw:
    """The federation, and the exact answers."""

    def __init__(self):
        split = anomaly_split(real_data.unsw(), 17_000)
        X = split.X_train
        sites = split_blocks(X[:, split.feature_names.tolist().index("ct_srv_src")], 100)
        scale = X.std(axis=0)
        self.X = (X - X.mean(axis=0)) / np.where(scale > 0, scale, 1.0)
        self.fed = fs.federate(self.X, sites=sites)
        self.values, self.vectors = np.linalg.eigh(self.X.T @ self.X / len(X))
        parts = [self.X[sites == name] for name in self.fed.sites]
        self.unit = max(np.linalg.eigvalsh(part.T @ part / len(part))[-1] for part in parts)

    def optimum(self, k):
        return float(self.values[:-k].sum())

    def gap(self, U):
        """Return how much the loss of the span of U (d, k) is above the optimum."""
        Q = np.linalg.qr(U)[0]
        return float(np.sum((self.X - self.X @ Q @ Q.T) ** 2) / len(self.X)) - self.optimum(U.shape[1])

    def run(self, seed, k, **settings):
        """Return the basis, the record, and the size of the part of the duals that turns U within its span."""
        with self.fed.begin("test", {}, seed) as going:
            U, _ = fedpg(going, rank=k, n_columns=self.X.shape[1], rho=RHO / self.unit, **settings)
            kept = going.ask(peek)
        assert going.record.metric("rho") == pytest.approx([RHO])
        inner = np.einsum("ldk,ldj->lkj", kept.stack("U"), kept.stack("Y"))
        turning = (inner - inner.transpose(0, 2, 1)) / 2
        return U, going.record, float(np.linalg.norm(turning, axis=(1, 2)).mean())


@fs.step
def peek(site):
    return {"U": site.state["U"], "Y": site.state["Y"]}


@pytest.fixture(scope="module")
def unsw():
    return Unsw()


def test_two_components_in_300_rounds(unsw):
    U, record, turning = unsw.run(1, 2, max_rounds=300)
    assert unsw.gap(U) <= 1e-3
    assert record.metric("consensus")[-1] <= 1e-3
    assert turning < 0.1


def test_ten_components_in_100_rounds(unsw):
    U, _, _ = unsw.run(0, 10, max_rounds=100)
    assert unsw.gap(U) <= 0.1


def test_a_tenth_of_the_sites_at_a_time(unsw):
    U, record, _ = unsw.run(0, 2, participation=0.1, max_rounds=1000, tol=1e-2)
    assert unsw.gap(U) <= 1e-2
    assert max(len(call.asked) for call in record.calls[1:-1]) == 10


def test_as_written_it_leaves_the_solution(unsw):
    """The antisymmetric part of ``U'Y`` is never acted upon, and grows."""
    _, record, turning = unsw.run(0, 2, variant="paper", max_rounds=301)
    losses = record.metric("loss")  # of the Z before each round
    at_100, at_300 = losses[100] - unsw.optimum(2), losses[300] - unsw.optimum(2)
    assert at_100 < 0.05
    assert at_300 > 0.5
    assert turning > 10.0


def test_nothing_set(unsw):
    model = fs.FedPCA(n_components=2, solver="fedpg").fit(unsw.fed)
    assert model.run_.stopped.kind is EndingKind.CONVERGED
    assert unsw.gap(model.components_.T) <= 1e-2
