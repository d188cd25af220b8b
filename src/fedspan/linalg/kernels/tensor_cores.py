"""Kernels of rows and landmarks on the tensor cores of a GPU: several times as fast as single precision.

Tensor cores multiply numbers of eleven significant bits, and add up in single precision. So rows are rounded to such
numbers once: to the nearest, so that of many rows the errors of 2^-12 average out. Landmarks are sent in two parts, and
lose nothing. The kernel's values are rounded like rows, and their sums are those of the rounded values.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: Of the 23 bits of a single precision fraction the last 13 are lost: half of a lost unit, and what stays.
_HALF, _STAYS = 1 << 12, ~0x1FFF


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
    """Let torch use tensor cores for products of single precision."""
    import torch

    products = torch.backends.cuda.matmul
    before = products.fp32_precision
    products.fp32_precision = "tf32"
    try:
        yield
    finally:
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
