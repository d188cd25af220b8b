"""How bytes travel between processes."""

from __future__ import annotations

import numpy as np
import pytest

from fedspan.engines.nvflare.setup import payload_packing
from fedspan.engines.nvflare.setup.payload_packing import INLINE_LIMIT, pack, unpack


@pytest.mark.parametrize("size", [0, 10, INLINE_LIMIT + 1])
def test_a_packed_message_comes_out_as_it_went_in(size):
    message = bytes(np.arange(size, dtype=np.uint8))
    packed = pack(message)
    assert isinstance(packed, bytes) == (size <= INLINE_LIMIT)
    assert unpack(packed) == message


@pytest.mark.parametrize("packed", ["text", np.zeros(3), np.zeros((2, 2), np.uint8), None])
def test_only_bytes_are_unpacked(packed):
    with pytest.raises(TypeError, match="must be bytes"):
        unpack(packed)


def test_the_socket_of_a_deep_kit_has_a_relative_path(tmp_path, monkeypatch):
    deep = tmp_path / ("a" * 60) / ("b" * 60)
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert payload_packing.socket_path(deep) == "worker.sock"
