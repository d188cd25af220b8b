"""FedAutoencoderDetector: its score."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from tests.packages import Late, needs

from .curved_rows import QUICK, rows

pytestmark = needs("torch")
torch = Late("torch")


@pytest.fixture(scope="module")
def fitted():
    return fs.FedAutoencoderDetector(**QUICK).fit(rows(), sites=np.arange(900) % 6)


def test_the_autoencoder_s_score_by_torch(fitted):
    detector, X = fitted, rows(50, seed=3)
    model = torch.nn.ModuleDict(
        {
            "encoder": torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.LeakyReLU(0.1), torch.nn.Linear(12, 2)),
            "decoder": torch.nn.Sequential(torch.nn.Linear(2, 12), torch.nn.LeakyReLU(0.1), torch.nn.Linear(12, 6)),
        }
    ).double()
    model.load_state_dict({name: torch.tensor(value) for name, value in detector.state_dict().items()})
    z = torch.tensor((X - detector.mean_) / detector.scale_)
    with torch.no_grad():
        back = model["decoder"](model["encoder"](z))
    np.testing.assert_allclose(detector.score_samples(X), -((z - back) ** 2).sum(dim=1).numpy(), rtol=1e-9)
    np.testing.assert_allclose(detector.reconstruct(X), back.numpy() * detector.scale_ + detector.mean_, rtol=1e-9)
