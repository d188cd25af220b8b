"""Training at a site: some epochs of momentum gradient descent, by torch.

The same bytes come out for the same seed. Torch itself draws nothing (weights, shuffles and codes come from the
generators of the run). It works on one thread, and on memory of its own, whose alignment is always the same.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.anomaly.parts.networks import SLOPE, Network
from fedspan.errors import InputError, MissingPackageError

#: Of the local steps, and the largest norm of a gradient: a few extreme rows must not throw a network off.
MOMENTUM = 0.9
LARGEST_GRADIENT = 1.0


def torch_module() -> Any:
    """Return torch, imported only for training."""
    try:
        import torch
    except ImportError:
        raise MissingPackageError(
            'training a network needs torch, which is not installed: pip install ".[deep]" in a checkout'
        ) from None
    return torch


class TorchNetwork:
    """A network in torch, whose parameters are views of one vector.

    Attributes
    ----------
    values : torch.Tensor (size,)
        A copy of the weights that it is made of.
    layers : dict of str to list of (weight, bias)
        By chain.
    """

    def __init__(self, network: Network, weights: NDArray[np.float32]) -> None:
        self.torch = torch_module()
        self.values = self.torch.tensor(np.array(weights))
        self.layers = {
            chain: [tuple(array.detach().requires_grad_() for array in layer) for layer in layers]
            for chain, layers in network.layers(self.values).items()
        }

    def run(self, chain: str, x: Any) -> Any:
        """Return the output of a chain for the rows x."""
        functional = self.torch.nn.functional
        *layers, (weight, bias) = self.layers[chain]
        for W, b in layers:
            x = functional.leaky_relu(functional.linear(x, W, b), SLOPE)
        return functional.linear(x, weight, bias)

    def gradient(self, loss: Any, *chains: str, retain: bool = False) -> Any:
        """Return the gradient of a loss with respect to all parameters of some chains, as one vector."""
        parameters = [array for chain in chains for layer in self.layers[chain] for array in layer]
        found = self.torch.autograd.grad(loss, parameters, retain_graph=retain)
        return self.torch.cat([gradient.flatten() for gradient in found])


def descend(
    network: TorchNetwork,
    gradients: Callable[[Any], tuple[Any, list[Any]]],
    X: NDArray[Any],
    rng: np.random.Generator,
    epochs: int,
    batch: int,
    step_size: float,
    blocks: NDArray[np.intp] | None = None,
) -> float:
    """Change the values of `network` by gradient descent on the rows X (n, d); return the mean loss on the way.

    ``gradients(rows)`` returns the loss and the gradient, in parts that follow one another in the vector of weights.
    Parts that are longer are shortened to `LARGEST_GRADIENT`, each on its own. Batches are made of whole `blocks` (n,)
    of rows, by default of single rows: seeds choose batches, and single rows would follow from enough of them.
    """
    torch = network.torch
    with np.errstate(over="ignore"):
        rows = torch.tensor(X.astype(np.float32))
    values = network.values
    velocity, total = torch.zeros_like(values), 0.0
    members = [torch.tensor(own) for own in _rows_by_block(len(rows), blocks)]
    batches = min(-(-len(rows) // batch), len(members))
    for _ in range(epochs):
        for some in np.array_split(rng.permutation(len(members)), batches):
            x = rows[torch.cat([members[k] for k in some])]
            loss, parts = gradients(x)
            total += loss.item() * len(x)
            for part in parts:
                norm = part.norm().item()
                if norm > LARGEST_GRADIENT:
                    part.mul_(LARGEST_GRADIENT / norm)
            velocity.mul_(MOMENTUM).add_(torch.cat(parts))
            values.sub_(velocity, alpha=step_size)
    if not (math.isfinite(total) and torch.isfinite(values).all()):
        raise InputError(
            "training led to numbers that are not finite: scale the columns, unless the received weights are corrupted"
        )
    return total / (epochs * len(rows))


def _rows_by_block(n: int, blocks: NDArray[np.intp] | None) -> list[NDArray[np.intp]]:
    """Return the rows of each block; each of n rows by itself without blocks."""
    known = np.arange(n) if blocks is None else blocks
    order = np.argsort(known, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(known[order])) + 1)


class _Threads:
    """How many users need torch on one thread, and how many threads it had before."""

    lock = threading.Lock()
    users, before = 0, 1


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread, which decides the last bits of sums, until the last of several users has left."""
    torch = torch_module()
    with _Threads.lock:
        if not _Threads.users:
            _Threads.before = torch.get_num_threads()
        _Threads.users += 1
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _Threads.lock:
            _Threads.users -= 1
            if not _Threads.users:
                torch.set_num_threads(_Threads.before)
