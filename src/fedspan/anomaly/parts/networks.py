"""Small fully connected networks whose weights lie one after the other in a single vector.

That vector travels, is averaged and is saved. Running a network needs numpy alone; training it needs torch, see
`fedspan.anomaly.parts.local_descent`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Array
from fedspan.errors import InputError
from fedspan.federation.site.parameters import ArrayOf, Whole

Layers = list[tuple[Any, Any]]
Function = Callable[[Array], NDArray[np.float64]]
# Parameters of the steps and transforms.
Weights = Annotated[NDArray[np.float32], ArrayOf("float", 1)]
Widths = Annotated[NDArray[np.int64], ArrayOf("whole", 1, least=1, most=10**6)]
Width = Annotated[int, Whole(1, 10**6)]
Seed = Annotated[int, Whole(0, 2**32 - 1)]

#: Of the activation below zero. With a plain ReLU, whose slope there is 0, narrow layers can die while they learn.
SLOPE = 0.1


@dataclass(frozen=True)
class Network:
    """Chains of fully connected layers with leaky ReLUs between them, ``max(v, SLOPE v)``.

    Parameters
    ----------
    chains : dict of str to tuple of int
        By name: the widths from a chain's input to its output.

    Examples
    --------
    >>> network = Network({"encoder": (3, 2, 1), "decoder": (1, 3)})
    >>> network.size
    17
    >>> {name: shape for name, shape in network.shapes()}
    {'encoder.0.weight': (2, 3), 'encoder.0.bias': (2,), 'encoder.2.weight': (1, 2), 'encoder.2.bias': (1,),
     'decoder.0.weight': (3, 1), 'decoder.0.bias': (3,)}
    """

    chains: dict[str, tuple[int, ...]]

    @property
    def size(self) -> int:
        """The number of weights."""
        return sum(out * (into + 1) for widths in self.chains.values() for into, out in pairwise(widths))

    def shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield name and shape of every array, in the order of the vector; the names are those of torch's state dict.

        There an activation has a number of its own, so the layers of a chain are 0, 2, 4, ...
        """
        for chain, widths in self.chains.items():
            for i, (into, out) in enumerate(pairwise(widths)):
                yield f"{chain}.{2 * i}.weight", (out, into)
                yield f"{chain}.{2 * i}.bias", (out,)

    def arrays(self, weights: Any) -> dict[str, Any]:
        """Return the vector `weights` (size,), of numpy or torch, as named arrays: views of it."""
        if weights.shape != (self.size,):
            raise InputError(f"weights has the shape {weights.shape}, and this network has {self.size} weights")
        found, at = {}, 0
        for name, shape in self.shapes():
            count = int(np.prod(shape))
            found[name] = weights[at : at + count].reshape(shape)
            at += count
        return found

    def layers(self, weights: Any) -> dict[str, Layers]:
        """Return the weight (out, into) and bias (out,) of each layer, by chain: views of the vector."""
        arrays = iter(self.arrays(weights).values())
        return {chain: [(next(arrays), next(arrays)) for _ in widths[1:]] for chain, widths in self.chains.items()}

    def functions(self, weights: Array) -> dict[str, Function]:
        """Return each chain with these weights as a function of rows (n, into), in double precision."""
        layers = self.layers(weights.astype(np.float64))
        return {chain: partial(_run, found) for chain, found in layers.items()}

    def start(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Return random weights to begin with: Glorot's uniform ones, and biases of 0."""
        weights = np.zeros(self.size, dtype=np.float32)
        for array in self.arrays(weights).values():
            if array.ndim == 2:
                bound = np.sqrt(6.0 / sum(array.shape))
                array[...] = rng.uniform(-bound, bound, array.shape)
        return weights


def _run(layers: Layers, X: Array) -> NDArray[np.float64]:
    """Return the output of a chain of layers for the rows X."""
    for W, b in layers[:-1]:
        X = X @ W.T
        X += b
        np.maximum(X, SLOPE * X, out=X)
    W, b = layers[-1]
    return np.asarray(X @ W.T + b)
