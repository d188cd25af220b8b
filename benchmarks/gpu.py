"""The two heavy kernels of the maps on a graphics card against numpy: a FedDL gradient, and the neighbour search.

40,000 made-up rows of 784 columns, 500 landmarks, single precision; 90 neighbours by 499 landmark coordinates. Rows are
on the card already, as they are in all rounds of FedDL but the first. ``FEDSPAN_DEVICE`` names the device (default:
``cuda`` where there is one, else torch on the processor).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fedspan.linalg.array_backend import to_device
from fedspan.linalg.kernels.gaussian_kernel import kernel_pull, squared_norms
from fedspan.linalg.kernels.landmark_form import LowRankDistances
from fedspan.linalg.kernels.neighbors import nearest
from fedspan.linalg.kernels.tensor_cores import on_tensor_cores, rounded_in_place

ROWS = int(os.environ.get("FEDSPAN_GPU_ROWS", "40000"))
DEVICE = os.environ.get("FEDSPAN_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")
COLUMNS, LANDMARKS, NEIGHBORS = 784, 500, 90


def main() -> dict[str, float]:
    name = torch.cuda.get_device_name(DEVICE) if DEVICE.startswith("cuda") else f"torch on {DEVICE}"
    print(f"device: {name}; numpy on {os.cpu_count()} cores")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 60)) @ rng.normal(size=(60, COLUMNS)) + 0.3 * rng.normal(size=(ROWS, COLUMNS))
    X = ((X - X.mean(axis=0)) / np.sqrt(X.var(axis=0).sum())).astype(np.float32)
    Y = (X.std(axis=0) * rng.normal(size=(LANDMARKS, COLUMNS))).astype(np.float32)
    figures: dict[str, float] = {}

    norms = squared_norms(X)
    (pull, total), slow = _timed(lambda: kernel_pull(X, Y, 0.5, norms))
    there, landmarks = to_device(X, DEVICE), to_device(Y, DEVICE)
    there = rounded_in_place(there) if on_tensor_cores(there) else there
    form = {"norms": squared_norms(there), "rounded": on_tensor_cores(there)}
    (found, same), fast = _timed(lambda: kernel_pull(there, landmarks, 0.5, **form))
    apart = float(np.abs(found - pull).max() / np.abs(pull).max())
    print(
        f"FedDL gradient: numpy {slow:.3f} s, device {fast:.4f} s: {slow / fast:.1f}x; relative difference {apart:.1e}"
    )
    print(f"{'':15} sum of the kernel: relative difference {abs(same / total - 1):.1e}")
    figures |= {"FedDL gradient, numpy / device": slow / fast, "FedDL gradient, relative difference": apart}

    C = np.ascontiguousarray((X @ rng.normal(size=(COLUMNS, LANDMARKS - 1))).astype(np.float32))
    rows = LowRankDistances(C, np.full(LANDMARKS - 1, -2, dtype=np.float32), np.vecdot(C, C), squared=True)
    (exact, _), slow = _timed(lambda: nearest(rows, NEIGHBORS), repeats=1)
    (near, _), fast = _timed(lambda: nearest(rows, NEIGHBORS, device=DEVICE))
    recall = float(np.mean([len(np.intersect1d(a, b)) for a, b in zip(near, exact, strict=True)])) / NEIGHBORS
    print(f"neighbours: numpy {slow:.2f} s, device {fast:.3f} s: {slow / fast:.1f}x; recall against numpy {recall:.6f}")
    figures |= {"neighbours, numpy / device": slow / fast, "neighbours, recall against numpy": recall}
    return figures


def _timed(work: Callable[[], Any], repeats: int = 3) -> tuple[Any, float]:
    """Return the result, which is in the processor's memory and so finished, and the best time."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - began)
    return result, min(times)


if __name__ == "__main__":
    main()
