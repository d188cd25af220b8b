"""Kernels of rows and landmarks on the tensor cores of a GPU: several times as fast as single precision.

Tensor cores multiply numbers of eleven significant bits, and add up in single precision. So rows are rounded to such
numbers once: to the nearest, so that of many rows the errors of 2^-12 average out. Landmarks are sent in two parts, and
lose nothing. The kernel's values are rounded like rows, and their sums are those of the rounded values.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: Of the 23 bits of a single precision fraction the last 13 are lost: half of a lost unit, and what stays.
_HALF, _STAYS = 1 << 12, ~0x1FFF
#: torch's setting holds for all threads. One entry for each that is in `tensor_products`: the setting before.
_LOCK, _BEFORE = threading.Lock(), list[str]()


def on_tensor_cores(array: Any) -> bool:
    """Return whether an array is in single precision on a device that has tensor cores."""
    return str(array.dtype) == "torch.float32" and array.device.type == "cuda"


def rounded(X: Any) -> Any:
    """Return a tensor in single precision with each number rounded to eleven significant bits."""
    import torch

    return rounded_in_place(torch.clone(X, memory_format=torch.contiguous_format))


def rounded_in_place(X: Any) -> Any:
    """Round each number of a contiguous tensor in single precision to eleven significant bits."""
    import torch

    X.view(torch.int32).add_(_HALF).bitwise_and_(_STAYS)
    return X


@contextmanager
def tensor_products() -> Iterator[None]:
    """Let torch use tensor cores for products of single precision, until the last of several threads has left."""
    import torch

    products = torch.backends.cuda.matmul
    with _LOCK:
        _BEFORE.append(products.fp32_precision if not _BEFORE else _BEFORE[0])
        products.fp32_precision = "tf32"
    try:
        yield
    finally:
        with _LOCK:
            before = _BEFORE.pop()
            if not _BEFORE:
                products.fp32_precision = before


def rounded_kernel(X: Any, Y: Any, gamma: float, norms: Any) -> Any:
    """Return ``exp(-gamma ||x_i - y_j||^2)`` (n, n_y), rounded, of rows that are `rounded` and landmarks.

    `norms` are ``||x_i||^2`` (n,). Few passes over the kernel: each of them takes as long as a product.
    """
    import torch

    factors = (2 * gamma) * Y.T
    leading = rounded(factors)
    K = torch.addmm(-gamma * torch.linalg.vecdot(Y, Y), X, leading)
    K.addmm_(X, factors - leading)
    K.sub_(gamma * norms[:, None]).clamp_(max=0.0).exp_()
    return rounded_in_place(K)
