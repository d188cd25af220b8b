"""FedBiGANDetector: its score, both sides of the game, its own parameters."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import fedspan as fs
from fedspan.anomaly.bigan_detector import LARGEST_NORM, _bound_discriminator, _gradients
from fedspan.anomaly.parts.local_descent import TorchNetwork
from fedspan.errors import InputError
from tests.packages import Late, needs

from .curved_rows import QUICK, rows
from .network_examples import NETWORKS, weights_of

pytestmark = needs("torch")
torch = Late("torch")


@pytest.fixture(scope="module")
def fitted():
    return fs.FedBiGANDetector(**QUICK).fit(rows(), sites=np.arange(900) % 6)


@pytest.mark.parametrize("alpha", [0.0, 0.4, 0.9, 1.0])
def test_the_bigan_s_score_by_torch(alpha, fitted):
    detector, X = copy.copy(fitted), rows(50, seed=3)
    detector.alpha = alpha
    chains = {"encoder": (6, 12, 2), "generator": (2, 12, 6), "discriminator": (8, 12, 1)}
    model = torch.nn.ModuleDict(
        {
            name: torch.nn.Sequential(torch.nn.Linear(a, b), torch.nn.LeakyReLU(0.1), torch.nn.Linear(b, c))
            for name, (a, b, c) in chains.items()
        }
    ).double()
    model.load_state_dict({name: torch.tensor(value) for name, value in detector.state_dict().items()})
    x = torch.tensor((X - detector.mean_) / detector.scale_)
    with torch.no_grad():
        code = model["encoder"](x)
        lost = (x - model["generator"](code)).abs().sum(dim=1)
        D = torch.sigmoid(model["discriminator"](torch.cat([x, code], 1).tanh()))[:, 0]
    expected = alpha * lost - (1 - alpha) * torch.log(D)
    np.testing.assert_allclose(-detector.score_samples(X), expected.numpy(), rtol=1e-9)


def test_the_adversarial_weight_matters(fitted):
    other = fs.FedBiGANDetector(**QUICK, adversarial=3.0).fit(rows(), sites=np.arange(900) % 6)
    assert other.error_ > fitted.error_


@pytest.mark.parametrize(
    "wrong", [{"alpha": -0.1}, {"alpha": 1.1}, {"adversarial": 0}, {"adversarial": np.inf}, {"adversarial": "much"}]
)
def test_wrong_parameters_of_the_bigan(wrong):
    with pytest.raises(InputError, match=f"{next(iter(wrong))}="):
        fs.FedBiGANDetector(**wrong).fit(rows(20))


def numeric_gradient(loss, weights, at, width=1e-5):
    found = []
    for i in at:
        moved = [np.array(weights, dtype=np.float64) for _ in range(2)]
        moved[0][i] += width
        moved[1][i] -= width
        found.append((loss(moved[0]) - loss(moved[1])) / (2 * width))
    return np.array(found)


def softplus(v):
    return np.logaddexp(0.0, v)


@pytest.mark.parametrize("name", ["bigan", "deep bigan"])
def test_each_side_of_the_game_descends_on_its_own_loss(name):
    network, adversarial, latent = NETWORKS[name], 0.7, 2
    weights = weights_of(network)
    x = np.random.default_rng(1).normal(size=(20, 6)).astype(np.float32)
    z = np.random.default_rng(2).standard_normal((20, latent), dtype=np.float32)

    def losses(w):
        E, G, D = network.functions(w).values()
        judged = [np.hstack(pair) for pair in ((x, E(x)), (G(z), z))]
        real, fake = (D(np.tanh(v)) for v in judged)
        distinguished = (softplus(-real).mean() + softplus(fake).mean()) / 2
        deceived = (softplus(real).mean() + softplus(-fake).mean()) / 2
        error = np.mean((G(E(x)) - x) ** 2)
        return distinguished, error + adversarial * deceived, error

    trained = TorchNetwork(network, weights)
    error, parts = _gradients(latent, adversarial, trained, torch.tensor(x), np.random.default_rng(2))
    learner, judge = np.split(np.arange(network.size), [len(parts[0])])  # encoder and generator, then discriminator
    assert len(parts[1]) == len(judge)
    for part, at, loss in ((parts[1], judge, lambda w: losses(w)[0]), (parts[0], learner, lambda w: losses(w)[1])):
        np.testing.assert_allclose(part.numpy(), numeric_gradient(loss, weights, at), atol=2e-5)
    assert error.item() == pytest.approx(losses(weights)[2], rel=1e-5)


def test_the_discriminator_s_layers_are_bounded():
    network = NETWORKS["deep bigan"]
    trained = TorchNetwork(network, 10 * weights_of(network))
    before = network.arrays(trained.values.numpy().copy())
    _bound_discriminator(trained)
    named = network.arrays(trained.values.numpy())
    for name, array in named.items():
        if name.startswith("discriminator") and array.ndim == 2:
            assert np.linalg.norm(array, 2) == pytest.approx(LARGEST_NORM, rel=1e-5)
        else:
            np.testing.assert_array_equal(array, before[name])
    once = trained.values.clone()
    _bound_discriminator(trained)
    np.testing.assert_allclose(trained.values, once, rtol=1e-5)
