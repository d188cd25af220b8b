"""The wire format: what goes in comes out, and bad bytes are only ever fedspan's own error."""

from __future__ import annotations

import gc
import random
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedspan import wire
from fedspan.errors import MessageError
from fedspan.wire import canonical, decode, encode, encoded_size, non_finite_key

DTYPES = ["b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", ">f8", ">i4"]

arrays = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(np.dtype(dtype), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)
plain_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
texts = st.lists(plain_text, min_size=1, max_size=4).map(np.array)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.complex_numbers(), plain_text
)
keys = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
messages = st.dictionaries(keys, st.one_of(arrays, texts, scalars), max_size=5)


def same(a, b):
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        assert type(a) is type(b) is np.ndarray
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert a.tobytes() == b.tobytes()
    else:
        assert type(a) is type(b)
        assert repr(a) == repr(b)


def with_good_checksum(data: bytearray) -> bytes:
    """Make damage look intended, so that what lies behind the checksum is tested too."""
    if len(data) >= 24:
        data[8:16] = struct.pack("<Q", len(data))
        data[16:20] = struct.pack("<I", zlib.crc32(bytes(data[24:])))
    return bytes(data)


@given(messages)
def test_round_trip_is_exact(message):
    data = encode(message)
    expected = canonical(message)
    decoded = decode(data)
    assert list(decoded) == list(expected) == list(message)
    for key in message:
        same(decoded[key], expected[key])
    assert encode(decoded) == data
    assert encoded_size(expected) == len(data)


@given(arrays)
def test_values_survive(array):
    np.testing.assert_array_equal(decode(encode({"x": array}))["x"], array)


def test_a_message_by_hand():
    # magic, version, padding, total, crc, entries; key "n", kind 3 (int), value 5.
    body = b"\x01n" + struct.pack("<Bq", 3, 5)
    by_hand = struct.pack("<4sB3xQII", b"FSPN", 1, 24 + len(body), zlib.crc32(body), 1) + body
    assert encode({"n": 5}) == by_hand


def test_numpy_scalars_become_python_numbers():
    message = canonical({"a": np.float32(0.5), "b": np.int8(3), "c": np.bool_(True), "d": np.str_("x")})
    assert [type(value) for value in message.values()] == [float, int, bool, str]


@pytest.mark.parametrize(
    "value",
    [
        [1, 2],
        (1,),
        {"nested": 1},
        {1, 2},
        b"bytes",
        object(),
        np.array([object()]),
        np.array(["2020-01-01"], dtype="M8[D]"),
        np.zeros(2, dtype=[("a", "f8")]),
        np.ma.masked_array([1.0], [True]),
        np.zeros(2, dtype=np.longdouble),
        2**64,
        -(2**63) - 1,
        "\ud800",
        np.array(["\ud800"]),
        lambda: None,
        np.zeros((1,) * 33),
        np.datetime64("2020-01-01", "ns"),
        np.timedelta64(5, "ns"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_may_not_travel_is_refused_by_key(value):
    with pytest.raises(MessageError, match="'gradient'"):
        encode({"fine": 1, "gradient": value})


@pytest.mark.parametrize("key", [1, None, b"x", "", "k" * 1001, "\ud800"], ids=repr)
def test_bad_keys_are_refused(key):
    with pytest.raises(MessageError, match="key"):
        encode({key: 1})


def test_what_is_not_a_dict_is_refused():
    with pytest.raises(MessageError, match="must be a dict"):
        canonical([("a", 1)], "reply")  # type: ignore[arg-type]


def test_decoded_and_canonical_arrays_cannot_be_written():
    source = np.zeros(3)
    for array in (decode(encode({"x": source}))["x"], canonical({"x": source})["x"]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0
    canonical({"x": source})["x"].tolist()
    source[0] = 7.0
    assert canonical({"x": source})["x"] is not source


def test_decoding_is_zero_copy():
    data = encode({"k": 1, "x": np.arange(1000.0)})
    array = decode(data)["x"]
    start = np.frombuffer(data, dtype=np.uint8).ctypes.data
    assert start <= array.ctypes.data < start + len(data)


def test_misaligned_bytes_are_copied_and_right():
    data = encode({"x": np.arange(5.0)})
    shifted = memoryview(b"?" + data)[1:]
    array = decode(shifted)["x"]
    assert array.flags.aligned
    np.testing.assert_array_equal(array, np.arange(5.0))


@pytest.mark.parametrize(("shape", "count"), [((1,), 70), ((10, 10), 20), ((1000, 20), 20), ((3, 0), 20)])
def test_overhead_is_at_most_1_kb_and_1_percent(shape, count):
    message = {f"array{i}": np.zeros(shape) for i in range(count)}
    raw = sum(array.nbytes for array in message.values())
    assert len(encode(message)) <= raw + 1000 + 0.01 * raw


def test_endless_numbers_and_too_many_keys_are_refused():
    data = bytearray(encode({"x": 1}))
    data[24:25] = b"\xff" * 12
    with pytest.raises(MessageError, match="endless"):
        decode(with_good_checksum(data))
    with pytest.raises(MessageError, match="at most 10000"):
        encode({f"k{i}": 1 for i in range(10_001)})
    many = bytearray(encode({"x": 1}))
    many[20:24] = struct.pack("<I", 10_001)
    with pytest.raises(MessageError, match="at most 10000"):
        decode(bytes(many))


def test_size_is_checked_before_anything_else():
    data = encode({"x": np.zeros(1000)})
    with pytest.raises(MessageError, match="more than the 100 allowed"):
        decode(data, max_bytes=100)


def test_an_array_that_claims_to_be_huge_allocates_nothing():
    data = bytearray(encode({"x": np.zeros(4)}))
    at = data.index(b"\x0b\x01\x04", 24)  # float64, one dimension, four entries
    data[at + 2 : at + 3] = bytes([0x80] * 6 + [0x20])  # 2 ** 47
    tracemalloc.start()
    with pytest.raises(MessageError, match="declares to be larger"):
        decode(with_good_checksum(data))
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


def test_an_array_without_entries_has_no_long_axis():
    assert decode(encode({"x": np.empty((0, 2**20))}))["x"].shape == (0, 2**20)
    with pytest.raises(MessageError, match="holds an array without entries"):
        encode({"x": np.empty((2**20 + 1, 0))})
    data = bytearray(encode({"x": np.zeros((0, 4))}))
    at = data.index(b"\x0b\x02\x00\x04", 24)
    data[at + 3 : at + 4] = bytes([0xFF] * 8 + [0x7F])
    with pytest.raises(MessageError, match="has no entries, and an axis of"):
        decode(with_good_checksum(data))


@pytest.mark.parametrize(
    ("array", "old", "new", "reason"),
    [
        (np.array([True, False]), b"\x01\x00", b"\x02\x00", "neither 0 nor 1"),
        (np.array(["ab"]), "ab".encode("utf-32-le"), b"\xff\xff\xff\xff\x00\xd8\x00\x00", "not valid Unicode"),
    ],
)
def test_bytes_that_numpy_would_choke_on_later_are_refused(array, old, new, reason):
    data = bytearray(encode({"x": array}))
    at = data.rindex(old)
    data[at : at + len(new)] = new
    with pytest.raises(MessageError, match=reason):
        decode(with_good_checksum(data))


def test_one_flipped_bit_anywhere_is_noticed():
    data = encode({"x": np.arange(4.0), "name": "site"})
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        with pytest.raises(MessageError):
            decode(bytes(damaged))


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data):
    with pytest.raises(MessageError):
        decode(data)


def test_mutated_messages_raise_only_our_error_and_leak_nothing():
    rng = random.Random(0)
    seeds = [
        encode({"x": np.arange(6.0).reshape(2, 3), "n": 3, "who": "é", "none": None, "z": 1j}),
        encode(
            {"t": np.array(["ab", "c"]), "b": np.array([b"x", b"yz"]), "flag": np.array([True]), "e": np.zeros((0, 3))}
        ),
        encode({"u": 2**63, "i": -1, "f": float("nan"), "s": "text", "small": np.arange(3, dtype="i2")}),
    ]
    decoded = 0

    def one(data: bytes) -> None:
        nonlocal decoded
        mutant = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            mutant[rng.randrange(len(mutant))] = rng.choice([0, 1, 255, rng.randrange(256)])
        if rng.random() < 0.2:
            del mutant[rng.randrange(len(mutant)) :]
        raw = with_good_checksum(mutant) if rng.random() < 0.8 else bytes(mutant)
        try:
            message = decode(raw)
        except MessageError:
            return
        decoded += 1
        encode(message)  # what was accepted can be sent on

    def held() -> int:
        """Return the bytes that the wire format has asked for and not given back; other threads' are not counted."""
        gc.collect()
        ours = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, wire.__file__, all_frames=True)])
        return sum(trace.size for trace in ours.traces)

    def growth() -> int:
        before = held()
        for _ in range(500):
            for data in seeds:
                one(data)
        return held() - before

    tracemalloc.start(4)
    # A leak of ten bytes a message shows in every stretch; caches that fill do not.
    assert any(growth() < 15_000 for _ in range(7))
    tracemalloc.stop()
    assert decoded > 100


@pytest.mark.parametrize(
    ("message", "key"),
    [
        ({"a": 1.0, "b": np.array([1.0, np.nan])}, "b"),
        ({"a": float("inf")}, "a"),
        ({"a": complex(0, float("nan"))}, "a"),
        ({"a": np.array([1e308, 1e308]), "b": 1}, None),
        ({"a": np.array([np.inf, -np.inf], dtype="f2")}, "a"),
        ({"a": np.array([1, 2]), "s": "nan", "n": None}, None),
    ],
)
def test_non_finite_values_are_found(message, key):
    assert non_finite_key(canonical(message)) == key


@pytest.mark.parametrize("message", [{"n": 5}, {"x": np.arange(6.0), "why": "none"}])
def test_a_message_without_a_checksum_is_read_as_the_same_message(message):
    data = encode(message, checksum=False)
    assert data[16:20] == bytes(4)
    assert data[:16] + data[20:] == encode(message)[:16] + encode(message)[20:]
    assert encode(decode(data)) == encode(message)
    with pytest.raises(MessageError):
        decode(data[:-1])
