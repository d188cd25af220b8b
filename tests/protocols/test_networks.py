"""Networks in numpy and in torch are the same; training is gradient descent on what it says it is."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

from fedspan.anomaly.parts import local_descent
from fedspan.anomaly.parts.autoencoder import autoencoder_network
from fedspan.anomaly.parts.bigan import LARGEST_NORM, _Game, bigan_network
from fedspan.anomaly.parts.local_descent import Bound, bound, descend, one_thread
from fedspan.anomaly.parts.networks import SLOPE, Network
from fedspan.errors import InputError, MissingPackageError
from tests.packages import Late, needs

pytestmark = needs("torch")
torch = Late("torch")

NETWORKS = {
    "autoencoder": autoencoder_network(7, np.array([5]), 3),
    "deep autoencoder": autoencoder_network(7, np.array([6, 5, 4]), 2),
    "bigan": bigan_network(6, np.array([5]), 2),
    "deep bigan": bigan_network(6, np.array([5, 4, 3]), 2),
}
every_network = pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)


def weights_of(network, seed=0):
    rng = np.random.default_rng(seed)
    return (network.start(rng) + 0.1 * rng.normal(size=network.size)).astype(np.float32)


def test_by_hand():
    network = Network({"chain": (2, 2, 1)})
    W = np.array([1.0, 2.0, -3.0, 1.0, 0.5, -0.5, 2.0, 10.0, 4.0], dtype=np.float32)
    # first layer: [1 2; -3 1] x + [.5, -.5]; second: [2 10] h + 4
    x = np.array([[1.0, 1.0]])
    expected = 2.0 * 3.5 + 10.0 * (SLOPE * -2.5) + 4.0
    assert network.functions(W)["chain"](x).item() == pytest.approx(expected)
    assert network.size == 9


def test_the_paper_s_sizes():
    """Numbers of weights for 39 columns and a code of 16, as the FedPCA authors' networks have them."""
    assert autoencoder_network(39, np.array([32]), 16).size == 3639
    assert autoencoder_network(39, np.array([32, 16]), 16).size == 4183
    assert bigan_network(39, np.array([16]), 16).size == 2760
    assert bigan_network(39, np.array([20, 16, 8]), 16).size == 4456


@every_network
def test_numpy_and_torch_agree(network):
    weights = weights_of(network)
    modules = bound(network, weights).modules
    assert list(modules) == list(network.chains)
    for chain, widths in network.chains.items():
        X = np.random.default_rng(1).normal(size=(50, widths[0]))
        with torch.no_grad():
            expected = modules[chain](torch.tensor(X, dtype=torch.float32)).numpy()
        np.testing.assert_allclose(network.functions(weights)[chain](X), expected, atol=1e-6)


@every_network
def test_the_arrays_are_torch_s_state_dict(network):
    weights = weights_of(network)
    modules = torch.nn.ModuleDict(Bound(network).modules)
    named = network.arrays(weights)
    assert {name: tuple(value.shape) for name, value in modules.state_dict().items()} == dict(network.shapes())
    modules.load_state_dict({name: torch.tensor(value) for name, value in named.items()})
    vector = torch.nn.utils.parameters_to_vector(modules.parameters()).detach().numpy()
    np.testing.assert_array_equal(vector, weights)


@every_network
def test_rows_are_not_written_to(network):
    weights = weights_of(network)
    for chain, widths in network.chains.items():
        X = np.ones((3, widths[0]))
        X.flags.writeable = False
        network.functions(weights)[chain](X)


def test_weights_of_another_network_are_refused():
    with pytest.raises(InputError, match=r"shape \(5,\), and this network has 9 weights"):
        Network({"chain": (2, 2, 1)}).arrays(np.zeros(5, dtype=np.float32))


def test_the_start_is_glorot_s():
    network = Network({"chain": (300, 200, 100)})
    named = network.arrays(network.start(np.random.default_rng(0)))
    for name, array in named.items():
        if name.endswith("bias"):
            assert not array.any()
        else:
            bound_ = np.sqrt(6.0 / sum(array.shape))
            assert 0.99 * bound_ < np.abs(array).max() <= bound_
            assert array.std() == pytest.approx(bound_ / np.sqrt(3), rel=0.02)


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
        told_apart = (softplus(-real).mean() + softplus(fake).mean()) / 2
        deceived = (softplus(real).mean() + softplus(-fake).mean()) / 2
        error = np.mean((G(E(x)) - x) ** 2)
        return told_apart, error + adversarial * deceived, error

    modules = bound(network, weights)
    modules.gradient.zero_()
    error = _Game(modules, np.random.default_rng(2), latent, adversarial).fill_gradient(torch.tensor(x))
    judge, learner = modules.span("discriminator"), modules.span("encoder", "generator")
    assert (judge.start, judge.stop) == (learner.stop, network.size)
    found = modules.gradient.numpy()
    for side, loss in ((judge, lambda w: losses(w)[0]), (learner, lambda w: losses(w)[1])):
        at = np.arange(network.size)[side]
        np.testing.assert_allclose(found[at], numeric_gradient(loss, weights, at), atol=2e-5)
    assert error.item() == pytest.approx(losses(weights)[2], rel=1e-5)


def test_the_discriminator_s_layers_are_bounded():
    network = NETWORKS["deep bigan"]
    modules = bound(network, 10 * weights_of(network))
    before = modules.values.clone()
    _Game(modules, np.random.default_rng(0), 2, 0.1).bound_discriminator()
    named = network.arrays(modules.values.numpy())
    for name, array in named.items():
        if name.startswith("discriminator") and array.ndim == 2:
            assert np.linalg.norm(array, 2) == pytest.approx(LARGEST_NORM, rel=1e-5)
    others = modules.span("encoder", "generator")
    np.testing.assert_array_equal(modules.values[others], before[others])
    once = modules.values.clone()
    _Game(modules, np.random.default_rng(0), 2, 0.1).bound_discriminator()
    np.testing.assert_allclose(modules.values, once, rtol=1e-5)


@pytest.mark.parametrize(("epochs", "batch", "step_size"), [(1, 100, 0.1), (3, 8, 0.03), (2, 7, 0.5)])
def test_descent_is_torch_s_own_sgd(epochs, batch, step_size):
    """An independent loop: torch's optimiser, its clipping, its modules."""
    network = NETWORKS["autoencoder"]
    weights = weights_of(network)
    X = 3.0 * np.random.default_rng(1).normal(size=(30, 7))
    modules = bound(network, weights)

    def fill_gradient(x):
        loss = torch.nn.functional.mse_loss(modules.modules["decoder"](modules.modules["encoder"](x)), x)
        loss.backward()
        return loss

    loss = descend(modules, fill_gradient, X, np.random.default_rng(5), epochs, batch, step_size)

    model = torch.nn.Sequential(*Bound(network).modules.values())
    torch.nn.utils.vector_to_parameters(torch.tensor(weights), model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=step_size, momentum=0.9)
    rng, rows, losses = np.random.default_rng(5), torch.tensor(X.astype(np.float32)), []
    for _ in range(epochs):
        order = torch.tensor(rng.permutation(30))
        for x in torch.tensor_split(rows[order], -(-30 // batch)):
            optimizer.zero_grad()
            value = ((model(x) - x) ** 2).mean()
            value.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append((value.item(), len(x)))
    expected = torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy()
    np.testing.assert_allclose(modules.values.numpy(), expected, atol=2e-5)
    assert loss == pytest.approx(np.average([v for v, _ in losses], weights=[n for _, n in losses]), rel=1e-4)


def test_torch_s_own_generator_and_threads_are_left_alone():
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    with one_thread():
        assert torch.get_num_threads() == 1
        Bound(NETWORKS["bigan"])
        with one_thread():
            pass
        assert torch.get_num_threads() == 1  # somebody else is still inside
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), before)


def test_a_thread_that_leaves_first_does_not_give_others_more_threads():
    torch.set_num_threads(2)
    inside, leave = threading.Event(), threading.Event()
    try:

        def first():
            with one_thread():
                inside.set()
                leave.wait(10)

        thread = threading.Thread(target=first)
        thread.start()
        inside.wait(10)
        with one_thread():
            leave.set()
            thread.join()
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_modules_are_made_once_and_get_the_new_weights():
    network = NETWORKS["autoencoder"]
    first = bound(network, weights_of(network, 0))
    again = bound(autoencoder_network(7, np.array([5]), 3), weights_of(network, 1))
    assert again is first
    np.testing.assert_array_equal(again.values.numpy(), weights_of(network, 1))
    assert bound(NETWORKS["bigan"], weights_of(NETWORKS["bigan"])) is not first


def test_numbers_that_are_not_finite_are_refused():
    network = NETWORKS["autoencoder"]
    modules = bound(network, weights_of(network))

    def fill_gradient(x):
        loss = torch.nn.functional.mse_loss(modules.modules["decoder"](modules.modules["encoder"](x)), x)
        loss.backward()
        return loss

    for value in (1e30, 1e300, np.nan):
        with pytest.raises(InputError, match="not finite"):
            descend(modules, fill_gradient, np.full((4, 7), value), np.random.default_rng(0), 1, 4, 0.1)
        modules.values.copy_(torch.tensor(weights_of(network)))


def test_without_torch_there_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingPackageError, match=r'needs torch.*pip install "fedspan\[deep\]"'):
        local_descent.torch_module()
    assert issubclass(MissingPackageError, ImportError)
