"""The wire format against numpy's npz and, for reference, pickle: time there and back, and bytes."""

from __future__ import annotations

import io
import pickle
import statistics
import time

import numpy as np

from fedspan.wire import decode, encode


def npz(message):
    buffer = io.BytesIO()
    np.savez(buffer, **message)
    return buffer.getvalue()


def un_npz(data):
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return {key: arrays[key] for key in arrays.files}


FORMATS = {
    "fedspan": (encode, decode),
    "npz": (npz, un_npz),
    "pickle": (pickle.dumps, pickle.loads),
}


def main() -> dict[str, float]:
    rng = np.random.default_rng(0)
    ratios: dict[str, float] = {}
    for shape in ((20,), (1000, 20), (1000, 1000)):
        message = {"gram": rng.normal(size=shape), "n": np.array(1000)}
        seconds = {}
        for name, (there, back) in FORMATS.items():
            times = []
            for _ in range(15):
                start = time.perf_counter()
                data = there(message)
                back(data)
                times.append(time.perf_counter() - start)
            seconds[name] = statistics.median(times)
            over = len(data) - sum(array.nbytes for array in message.values())
            print(f"{shape!s:14} {name:8} {seconds[name] * 1e6:10.1f} us  {over:6} bytes over the raw arrays")
        ratios[f"npz / fedspan at {shape}"] = seconds["npz"] / seconds["fedspan"]
    for name, ratio in ratios.items():
        print(f"{ratio:8.1f}x {name}")
    return ratios
