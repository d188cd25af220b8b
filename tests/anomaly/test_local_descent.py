"""Training in torch: the same networks as in numpy, and gradient descent as torch does it."""

from __future__ import annotations

import sys
import threading
from itertools import pairwise

import numpy as np
import pytest

from fedspan.anomaly.parts import local_descent
from fedspan.anomaly.parts.local_descent import TorchNetwork, descend, one_thread
from fedspan.anomaly.parts.networks import SLOPE
from fedspan.errors import InputError, MissingPackageError
from tests.packages import Late, needs

from .network_examples import NETWORKS, every_network, weights_of

pytestmark = needs("torch")
torch = Late("torch")


def modules_of(network):
    """The network's chains as torch modules, made by torch itself."""
    return torch.nn.ModuleDict(
        {
            chain: torch.nn.Sequential(
                *[
                    layer
                    for into, out in pairwise(widths)
                    for layer in (torch.nn.Linear(into, out), torch.nn.LeakyReLU(SLOPE))
                ][:-1]
            )
            for chain, widths in network.chains.items()
        }
    )


def squared_error(network):
    """The loss of an autoencoder and its gradient, as `descend` takes them."""

    def gradients(x):
        loss = torch.nn.functional.mse_loss(network.run("decoder", network.run("encoder", x)), x)
        return loss, [network.gradient(loss, "encoder", "decoder")]

    return gradients


@every_network
def test_numpy_and_torch_agree(network):
    weights = weights_of(network)
    trained, modules = TorchNetwork(network, weights), modules_of(network)
    named = network.arrays(weights)
    assert {name: tuple(value.shape) for name, value in modules.state_dict().items()} == dict(network.shapes())
    modules.load_state_dict({name: torch.tensor(value) for name, value in named.items()})
    vector = torch.nn.utils.parameters_to_vector(modules.parameters()).detach().numpy()
    np.testing.assert_array_equal(vector, weights)
    for chain, widths in network.chains.items():
        X = np.random.default_rng(1).normal(size=(50, widths[0]))
        x = torch.tensor(X, dtype=torch.float32)
        with torch.no_grad():
            expected = modules[chain](x).numpy()
            np.testing.assert_array_equal(trained.run(chain, x).numpy(), expected)
        np.testing.assert_allclose(network.functions(weights)[chain](X), expected, atol=1e-6)


@pytest.mark.parametrize(("epochs", "batch", "step_size"), [(1, 100, 0.1), (3, 8, 0.03), (2, 7, 0.5)])
def test_descent_is_torch_s_own_sgd(epochs, batch, step_size):
    """An independent loop: torch's optimiser, its clipping, its modules."""
    network = NETWORKS["autoencoder"]
    weights = weights_of(network)
    X = 3.0 * np.random.default_rng(1).normal(size=(30, 7))
    trained = TorchNetwork(network, weights)
    loss = descend(trained, squared_error(trained), X, np.random.default_rng(5), epochs, batch, step_size)

    model = torch.nn.Sequential(*modules_of(network).values())
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
    np.testing.assert_allclose(trained.values.numpy(), expected, atol=2e-5)
    assert loss == pytest.approx(np.average([v for v, _ in losses], weights=[n for _, n in losses]), rel=1e-4)


def test_a_long_gradient_is_cut_part_by_part():
    network = NETWORKS["autoencoder"]
    weights = weights_of(network)
    trained = TorchNetwork(network, weights)
    parts = [torch.full((10,), 3.0), torch.full((network.size - 10,), 1e-3)]
    descend(trained, lambda x: (torch.tensor(0.0), [part.clone() for part in parts]), np.zeros((4, 7)),
            np.random.default_rng(0), 1, 4, 0.5)  # fmt: skip
    change = trained.values.numpy() - weights
    np.testing.assert_allclose(change[:10], -0.5 / np.sqrt(10), rtol=1e-5)
    np.testing.assert_allclose(change[10:], -0.5e-3, rtol=1e-3)


def test_the_received_weights_are_not_changed():
    network = NETWORKS["autoencoder"]
    weights = weights_of(network)
    before = weights.copy()
    trained = TorchNetwork(network, weights)
    descend(trained, squared_error(trained), np.ones((4, 7)), np.random.default_rng(0), 1, 4, 0.1)
    np.testing.assert_array_equal(weights, before)
    assert (trained.values.numpy() != before).any()


def test_torch_s_own_generator_and_threads_are_left_alone():
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    with one_thread():
        assert torch.get_num_threads() == 1
        TorchNetwork(NETWORKS["bigan"], weights_of(NETWORKS["bigan"]))
        with one_thread():
            pass
        assert torch.get_num_threads() == 1  # the other user has not left
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), before)


def test_a_thread_that_leaves_first_does_not_give_others_more_threads():
    torch.set_num_threads(2)
    inside, leave = threading.Event(), threading.Event()
    try:

        def first():
            with one_thread():
                inside.set()
                leave.wait(120)

        thread = threading.Thread(target=first)
        thread.start()
        inside.wait(120)
        with one_thread():
            leave.set()
            thread.join()
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_numbers_that_are_not_finite_are_refused():
    network = NETWORKS["autoencoder"]
    for value in (1e30, 1e300, np.nan):
        trained = TorchNetwork(network, weights_of(network))
        with pytest.raises(InputError, match="not finite"):
            descend(trained, squared_error(trained), np.full((4, 7), value), np.random.default_rng(0), 1, 4, 0.1)


def test_without_torch_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingPackageError, match=r'needs torch.*pip install "\.\[deep\]"'):
        local_descent.torch_module()
    assert issubclass(MissingPackageError, ImportError)
