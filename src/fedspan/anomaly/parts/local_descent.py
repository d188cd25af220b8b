"""Training at a site: some epochs of momentum gradient descent on torch modules.

The same bytes come out for the same seed: torch itself draws nothing (weights, shuffles and codes come from the
generators of the run), works on one thread, and on memory of its own, whose alignment is always the same.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.anomaly.parts.networks import SLOPE, Network
from fedspan.errors import InputError, MissingPackageError

#: Of the local steps, and the largest norm of a gradient: a few extreme rows must not throw a network off.
MOMENTUM = 0.9
LARGEST_GRADIENT = 1.0


def torch_module() -> Any:
    """Return torch, which is imported only when something is trained."""
    try:
        import torch
    except ImportError:
        raise MissingPackageError(
            'training a network needs torch, which is not installed: pip install "fedspan[deep]"'
        ) from None
    return torch


class Bound:
    """A network as torch modules, whose parameters and gradients are views of two vectors.

    Attributes
    ----------
    modules : dict of str to torch.nn.Sequential
        By chain.
    values, gradient : torch.Tensor (size,)
    """

    def __init__(self, network: Network) -> None:
        torch = torch_module()
        self.network = network
        self.values, self.gradient = torch.zeros(network.size), torch.zeros(network.size)
        self.modules: dict[str, Any] = {}
        at = 0
        for chain, widths in network.chains.items():
            parts: list[Any] = []
            for into, out in pairwise(widths):
                layer = torch.nn.Linear(into, out, device="meta")  # without memory, and without drawing weights
                for name, shape in (("weight", (out, into)), ("bias", (out,))):
                    here = slice(at, at := at + int(np.prod(shape)))
                    parameter = torch.nn.Parameter(self.values[here].view(shape))
                    parameter.grad = self.gradient[here].view(shape)
                    setattr(layer, name, parameter)
                parts += [layer, torch.nn.LeakyReLU(SLOPE)]
            self.modules[chain] = torch.nn.Sequential(*parts[:-1])

    def change(self, weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return how far the values have moved from `weights`."""
        return np.asarray(self.values.numpy() - weights)

    def parameters(self, *chains: str) -> list[Any]:
        """Return the parameters of some chains."""
        return [parameter for chain in chains for parameter in self.modules[chain].parameters()]

    def span(self, first: str, last: str | None = None) -> slice:
        """Return where in the vector the weights of a chain are, or of those from `first` to `last`."""
        names = list(self.network.chains)
        ends = np.cumsum([0, *(Network({name: self.network.chains[name]}).size for name in names)])
        return slice(int(ends[names.index(first)]), int(ends[names.index(last or first) + 1]))


_last = threading.local()


def bound(network: Network, weights: NDArray[np.float32]) -> Bound:
    """Return torch modules with these weights; this thread's last ones, where they fit: making them takes a while."""
    found: Bound | None = getattr(_last, "bound", None)
    if found is None or found.network != network:
        found = _last.bound = Bound(network)
    found.values.copy_(torch_module().tensor(np.array(weights)))
    return found


def descend(
    network: Bound,
    fill_gradient: Callable[[Any], Any],
    X: NDArray[Any],
    rng: np.random.Generator,
    epochs: int,
    batch: int,
    step_size: float,
    clipped: Sequence[slice] = (slice(None),),
) -> float:
    """Change the values of `network` by gradient descent on the rows X (n, d); return the mean loss on the way.

    ``fill_gradient(rows)`` adds to the gradient and returns the loss. The parts `clipped` of the gradient are shortened
    to `LARGEST_GRADIENT` where they are longer.
    """
    torch = torch_module()
    with np.errstate(over="ignore"):
        rows = torch.tensor(X.astype(np.float32))
    values, gradient = network.values, network.gradient
    parts = [gradient[part] for part in clipped]
    velocity, total = torch.zeros_like(values), 0.0
    for _ in range(epochs):
        for x in rows[torch.tensor(rng.permutation(len(rows)))].tensor_split(-(-len(rows) // batch)):
            gradient.zero_()
            total += fill_gradient(x).item() * len(x)
            for part in parts:
                norm = part.norm().item()
                if norm > LARGEST_GRADIENT:
                    part.mul_(LARGEST_GRADIENT / norm)
            velocity.mul_(MOMENTUM).add_(gradient)
            values.sub_(velocity, alpha=step_size)
    if not (math.isfinite(total) and torch.isfinite(values).all()):
        raise InputError(
            "training led to numbers that are not finite: columns are not scaled, or the weights that came are spoilt"
        )
    return total / (epochs * len(rows))


class _OneThread:
    """Counts who needs torch on one thread: the first one in says so, the last one out takes it back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before = 1

    @contextmanager
    def __call__(self) -> Iterator[None]:
        torch = torch_module()
        with self._lock:
            if not self._inside:
                self._before = torch.get_num_threads()
            self._inside += 1
            torch.set_num_threads(1)
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    torch.set_num_threads(self._before)


#: ``with one_thread():`` has torch use one thread, which decides the last bits of sums; sites may do so in parallel.
one_thread = _OneThread()
