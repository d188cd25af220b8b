"""The wire format against numpy's npz and, for reference, pickle: time there and back, and bytes."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator

import numpy as np

from benchmarks.battery.ratio import Ratio, compared
from fedspan.wire import decode, encode


def npz(message: dict[str, np.ndarray]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **message)
    return buffer.getvalue()


def un_npz(data: bytes) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return {key: arrays[key] for key in arrays.files}


PEERS = {
    "npz": (npz, un_npz),
    "pickle, which runs whatever code a message holds": (pickle.dumps, pickle.loads),
}


def compare() -> Iterator[Ratio]:
    rng = np.random.default_rng(0)
    for shape in ((20,), (1000, 20), (1000, 1000)):
        message = {"gram": rng.normal(size=shape), "n": np.array(1000)}
        raw = sum(array.nbytes for array in message.values())
        over = len(encode(message)) - raw
        yield from compared(
            f"A message there and back, {' x '.join(map(str, shape))} numbers",
            lambda message=message: decode(encode(message)),
            {
                name: lambda message=message, there=there, back=back: back(there(message))
                for name, (there, back) in PEERS.items()
            },
            turns=5,
            accuracy={
                name: f"{len(there(message)) - raw} bytes beside the numbers, ours {over}"
                for name, (there, _) in PEERS.items()
            },
        )
