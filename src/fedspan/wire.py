"""The message format: flat dicts of arrays, numbers, strings and ``None``, as bytes and back.

Layout (little-endian)::

    "FSPN"  version u8  zero u8*3  total u64  crc32 u32  entries u32      24 bytes
    per entry: key (length, UTF-8), kind u8, then the value, or for an array its dtype, ndim u8 and extents
    the arrays' bytes, C order, each starting at a multiple of 8

Lengths and extents are variable-length integers: seven bits a byte, the lowest first; the top bit marks that more
follow.

No message holds code. The reader compares every declared size with the bytes that are there before it allocates. The
checksum finds damage on the way; the transport and the journal's digests protect against attackers. It is 0 where such
a digest covers the message: large ones are read once less on both sides.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import MessageError

#: An array, number, string or None; not a union, so that a protocol need not narrow what it knows to be an array.
Value = Any
Message = dict[str, Value]

MAGIC = b"FSPN"
VERSION = 1
DEFAULT_MAX_BYTES = 256 * 2**20

_HEAD = struct.Struct("<4sB3sQII")
_ZERO = bytes(3)
_MOST_ENTRIES = 10_000
_FEW_BYTES = 512
_MAX_NDIM = 32
_LARGEST_KEY = 1000
#: No axis of an array without entries may be longer: its reader may make an array of that length. Others have bytes.
LONGEST_EMPTY_AXIS = 2**20
_LARGEST_CODE_POINT = 0x10FFFF
_SMALL = 2**62
_PLAIN = (float, bool, type(None))

#: In place of the checksum of a message that has none.
_NO_CHECKSUM = 0

# Kinds of entries. The numbers are part of the format.
_NONE, _FALSE, _TRUE, _INT, _UINT, _FLOAT, _COMPLEX, _STR, _ARRAY = range(9)
_NUMBERS = {_INT: struct.Struct("<q"), _UINT: struct.Struct("<Q"), _FLOAT: struct.Struct("<d")}
_NUMBERS[_COMPLEX] = struct.Struct("<dd")
_SIGNED, _UNSIGNED, _REAL = struct.Struct("<Bq"), struct.Struct("<BQ"), struct.Struct("<Bd")

# The dtypes that may travel. Their numbers are part of the format; U and S are followed by a width u32.
_DTYPES = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
_TEXT, _BYTES = len(_DTYPES), len(_DTYPES) + 1
_DTYPE_OF_CODE = [np.dtype("<" + name) for name in _DTYPES]
_CODE_OF_DTYPE = {dtype: code for code, dtype in enumerate(_DTYPE_OF_CODE)}

_ALLOWED = "may hold numpy arrays (bool, integers, floats, complex, fixed-width text), numbers, strings and None"


def canonical(message: Mapping[str, object], what: str = "message", *, copy: bool = True) -> Message:
    """Return `message` as ``decode(encode(message))`` gives it, or refuse it with a sentence that names the key.

    Arrays are copied to read-only, C-contiguous, little-endian ones; NumPy scalars become Python numbers. With
    ``copy=False`` arrays that need no other layout stay the caller's own.

    Examples
    --------
    >>> canonical({"n": np.int64(3), "x": [1.0]})
    Traceback (most recent call last):
        ...
    fedspan.errors.MessageError: message key 'x' holds a list, but a message may hold numpy arrays ...
    """
    if type(message) is not dict and not isinstance(message, Mapping):
        raise MessageError(f"a {what} must be a dict of named values, not a {type(message).__name__}")
    if len(message) > _MOST_ENTRIES:
        raise MessageError(f"a {what} has {len(message)} keys, at most {_MOST_ENTRIES} are allowed: use larger arrays")
    result: Message = dict(message)
    key: Any
    value: Any
    for key, value in message.items():
        if key not in _KEY_HEADS:
            _key_head(key, what)
        kind = type(value)
        if kind is int and -_SMALL < value < _SMALL:
            continue
        if kind is np.ndarray and value.size and value.dtype in _CODE_OF_DTYPE and value.ndim <= _MAX_NDIM:
            if copy or not value.flags.c_contiguous:
                result[key] = own = value.copy()
                own.setflags(write=False)
        elif kind not in _PLAIN:
            result[key] = _canonical_value(key, value, what)
    return result


def encode(message: Mapping[str, object], *, checksum: bool = True) -> bytes:
    """Turn a flat dict into bytes; no `checksum` is needed where a digest covers them, or the other process is a child.

    Examples
    --------
    >>> data = encode({"mean": np.zeros(3), "n": 10})
    >>> decode(data)
    {'mean': array([0., 0., 0.]), 'n': 10}
    """
    return encoded(canonical(message, copy=False), checksum=checksum)


def encoded(message: Message, *, checksum: bool = True) -> bytes:
    """Return ``encode(message)`` of a message that is canonical."""
    return b"".join(pieces(message, checksum=checksum))


def pieces(message: Message, *, checksum: bool = True) -> list[bytes | memoryview]:
    """Return the bytes of ``encoded(message)`` in pieces, of which the large ones are the arrays' own memory."""
    head = b"".join(_heads(message))
    arrays = [value for value in message.values() if type(value) is np.ndarray and value.nbytes]
    if not arrays:
        crc = zlib.crc32(head) if checksum else _NO_CHECKSUM
        return [_HEAD.pack(MAGIC, VERSION, _ZERO, _HEAD.size + len(head), crc, len(message)), head]
    parts: list[bytes | memoryview] = [head]
    total = _HEAD.size + len(head)
    for array in arrays:
        parts += [bytes(-total % 8), array.reshape(-1).view(np.uint8).data]
        total += -total % 8 + array.nbytes
    crc = _NO_CHECKSUM
    for part in parts if checksum else ():
        crc = zlib.crc32(part, crc)
    return [_HEAD.pack(MAGIC, VERSION, _ZERO, total, crc, len(message)), *parts]


def encoded_size(message: Message) -> int:
    """Return ``len(encode(message))`` for a canonical message, without building the bytes."""
    size = _HEAD.size + sum(map(len, _heads(message)))
    for value in message.values():
        if isinstance(value, np.ndarray) and value.nbytes:
            size += -size % 8 + value.nbytes
    return size


def decode(data: bytes | bytearray | memoryview, max_bytes: int = DEFAULT_MAX_BYTES) -> Message:
    """Read bytes from outside: whatever they are, return a message or raise a `MessageError`.

    Arrays are read-only views into `data` where their alignment allows, so time and memory are bounded by its size.
    """
    view = memoryview(data).cast("B")
    size = len(view)
    if size > max_bytes:
        raise MessageError(f"the message has {size} bytes, more than the {max_bytes} allowed")
    if size < _HEAD.size:
        raise MessageError(f"the message has {size} bytes, fewer than the {_HEAD.size} of a head")
    magic, version, zero, total, crc, entries = _HEAD.unpack_from(view)
    if magic != MAGIC:
        raise MessageError("these bytes are not a fedspan message: the first four are wrong")
    if version != VERSION:
        raise MessageError(f"the message has format version {version}, and this fedspan reads version {VERSION}")
    if total != size or zero != _ZERO:
        raise MessageError(f"the message has {size} bytes, and declares {total}")
    if entries > _MOST_ENTRIES:
        raise MessageError(f"the message has {entries} keys, at most {_MOST_ENTRIES} are allowed")
    if crc != _NO_CHECKSUM and zlib.crc32(view[_HEAD.size :]) != crc:
        raise MessageError("the message was damaged on the way: its checksum is wrong")
    message = _plain_numbers(view, entries)
    if message is not None:
        return message
    reader = _Reader(view, _HEAD.size)
    message = {}
    arrays: list[tuple[str, np.dtype[Any], tuple[int, ...]]] = []
    for _ in range(entries):
        key = reader.key()
        if not key or len(key) > _LARGEST_KEY or key in message:
            raise MessageError(f"the message has an empty, repeated or overlong key {key[:40]!r}")
        kind = reader.byte()
        if kind == _ARRAY:
            dtype, shape = reader.array_head(key)
            arrays.append((key, dtype, shape))
            message[key] = None  # keeps the sender's order of keys
        else:
            message[key] = reader.value(kind)
    for key, dtype, shape in arrays:
        message[key] = reader.array(key, dtype, shape)
    if reader.at != size:
        raise MessageError(f"the message has {size - reader.at} bytes too many after its last entry")
    return message


def _plain_numbers(view: memoryview, entries: int) -> Message | None:
    """Return a message of known keys and plain numbers alone, as small sites send many; ``None`` of another one."""
    if len(view) > _FEW_BYTES:
        return None
    data, at, message = view.tobytes(), _HEAD.size, {}
    try:
        for _ in range(entries):
            name_ends = at + 1 + data[at]
            key, kind = _KEYS[data[at + 1 : name_ends]], data[name_ends]
            if not _INT <= kind <= _FLOAT or key in message:
                return None
            message[key] = _NUMBERS[kind].unpack_from(data, name_ends + 1)[0]
            at = name_ends + 9
    except (LookupError, struct.error):
        return None
    return message if at == len(data) else None


def as_array(data: bytes) -> NDArray[np.uint8]:
    """Return bytes as an array, which a message can hold."""
    return np.frombuffer(data, dtype=np.uint8)


def is_long_and_empty(array: NDArray[Any]) -> bool:
    """Return whether an array takes no bytes, and has an axis so long that its reader may run out of memory."""
    return not array.nbytes and max(array.shape, default=0) > LONGEST_EMPTY_AXIS


def non_finite_key(message: Message) -> str | None:
    """Return the first key whose value holds NaN or infinity, or ``None``."""
    for key, value in message.items():
        if isinstance(value, np.ndarray):
            # One sum of squares finds any NaN or infinity without a temporary array, and vdot never warns. Squares of
            # finite values may overflow too: only then check every value.
            small = value.dtype.kind not in "fc" or math.isfinite(abs(np.vdot(value, value)))
            if not small and not np.isfinite(value).all():
                return key
        elif isinstance(value, float):
            if not math.isfinite(value):
                return key
        elif isinstance(value, complex) and not (math.isfinite(value.real) and math.isfinite(value.imag)):
            return key
    return None


def _key_head(key: object, what: str = "message") -> bytes:
    """Return a key as messages have it; refuse anything else."""
    if type(key) is not str:
        raise MessageError(f"a {what} has the key {key!r}: keys must be strings")
    if not key or len(key) > _LARGEST_KEY or not is_plain_text(key):
        raise MessageError(
            f"a {what} has the key {key[:40]!r}: keys must be plain text of 1 to {_LARGEST_KEY} characters"
        )
    name = key.encode()
    head = _varint(len(name)) + name
    if len(_KEY_HEADS) < _MOST_KEYS_KEPT:
        _KEY_HEADS[key] = head
        _KEYS[name] = key
    return head


def _canonical_value(key: str, value: object, what: str) -> Value:
    if isinstance(value, np.ndarray) and is_long_and_empty(value):
        raise MessageError(f"{what} key {key!r} holds an array without entries, of the shape {value.shape}")
    if isinstance(value, np.ndarray):
        return _canonical_array(key, value, what)
    if isinstance(value, np.generic) and not isinstance(value, np.datetime64 | np.timedelta64):
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            raise MessageError(f"{what} key {key!r} holds an integer of more than 64 bits")
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, complex):
        return complex(value)
    if isinstance(value, str):
        if not is_plain_text(value):
            raise MessageError(f"{what} key {key!r} holds text that is not valid Unicode")
        return str(value)
    raise MessageError(f"{what} key {key!r} holds a {type(value).__name__}, but a message {_ALLOWED}")


def _canonical_array(key: str, value: NDArray[Any], what: str) -> NDArray[Any]:
    if isinstance(value, np.ma.MaskedArray):
        raise MessageError(f"{what} key {key!r} holds a masked array, but a message {_ALLOWED}")
    dtype = value.dtype.newbyteorder("<")
    if dtype.kind in "US":
        dtype = max(dtype, np.dtype(dtype.kind + "1"), key=lambda d: d.itemsize)
    elif dtype not in _CODE_OF_DTYPE:
        raise MessageError(f"{what} key {key!r} holds an array of dtype {value.dtype}, but a message {_ALLOWED}")
    if value.ndim > _MAX_NDIM:
        raise MessageError(
            f"{what} key {key!r} holds an array of {value.ndim} dimensions, at most {_MAX_NDIM} are allowed"
        )
    if dtype.kind == "U" and not _are_code_points(np.ascontiguousarray(value.astype(dtype))):
        raise MessageError(f"{what} key {key!r} holds text that is not valid Unicode")
    array = np.array(value, dtype=dtype, order="C", copy=True, subok=False)
    array.flags.writeable = False
    return array


def is_plain_text(text: str) -> bool:
    """Return whether `text` can be written as UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


def _are_code_points(text: NDArray[Any]) -> bool:
    """Return whether a contiguous ``U`` array holds only Unicode scalar values."""
    points = text.reshape(-1).view(np.uint32)
    return bool(np.all((points <= _LARGEST_CODE_POINT) & ((points < 0xD800) | (points > 0xDFFF))))


def _heads(message: Message) -> list[bytes]:
    """Return all of a canonical message that comes before the arrays' bytes."""
    found = []
    for key, value in message.items():
        found.append(_KEY_HEADS.get(key) or _key_head(key))
        kind = type(value)
        if kind is int and value < _SMALL:
            found.append(_SIGNED.pack(_INT, value))
        elif kind is float:
            found.append(_REAL.pack(_FLOAT, value))
        else:
            found.append(_array_head(value) if kind is np.ndarray else _scalar(value))
    return found


def _scalar(value: Value) -> bytes:
    if value is None or isinstance(value, bool):
        return _ONE_BYTE[_NONE if value is None else _TRUE if value else _FALSE]
    if isinstance(value, int):
        return _SIGNED.pack(_INT, value) if value < 2**63 else _UNSIGNED.pack(_UINT, value)
    if isinstance(value, str):
        text = value.encode()
        return _ONE_BYTE[_STR] + _varint(len(text)) + text
    return struct.pack("<Bdd", _COMPLEX, value.real, value.imag)


def _array_head(array: NDArray[Any]) -> bytes:
    kind = array.dtype.kind
    if kind in "US":
        dtype = bytes([_TEXT if kind == "U" else _BYTES]) + _varint(_width(array.dtype))
    else:
        dtype = bytes([_CODE_OF_DTYPE[array.dtype]])
    return bytes([_ARRAY]) + dtype + bytes([array.ndim]) + b"".join(map(_varint, array.shape))


def _width(dtype: np.dtype[Any]) -> int:
    """Return how many characters or bytes a text dtype holds."""
    return dtype.itemsize // 4 if dtype.kind == "U" else dtype.itemsize


def _varint(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value]
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


_ONE_BYTE = [bytes([value]) for value in range(0x80)]
#: Keys that were seen before, as messages have them and back: a federation has few, and sends each very often.
_KEY_HEADS: dict[object, bytes] = {}
_KEYS: dict[bytes, str] = {}
_MOST_KEYS_KEPT = 10_000


class _Reader:
    """Reads a message from left to right and never past its end."""

    def __init__(self, view: memoryview, at: int) -> None:
        self.view = view
        self.at = at
        self.size = len(view)

    def take(self, size: int) -> memoryview:
        at = self.at
        if size > self.size - at:
            raise MessageError(f"the message ends in the middle of an entry, at byte {at}")
        self.at = at + size
        return self.view[at : at + size]

    def byte(self) -> int:
        at = self.at
        if at >= self.size:
            raise MessageError(f"the message ends in the middle of an entry, at byte {at}")
        self.at = at + 1
        return self.view[at]

    def key(self) -> str:
        at = self.at
        # A key is mostly shorter than 128 bytes, and one that was there before.
        known = _KEYS.get(bytes(self.view[at + 1 : at + 1 + self.view[at]])) if at < self.size else None
        if known is None:
            return self.text("key")
        self.at = at + 1 + self.view[at]
        return known

    def varint(self) -> int:
        value = 0
        for shift in range(0, 63, 7):
            part = self.byte()
            value |= (part & 0x7F) << shift
            if part < 0x80:
                return value
        raise MessageError(f"the message has an endless number, at byte {self.at}")

    def text(self, what: str) -> str:
        raw = self.take(self.varint())
        try:
            return str(raw, "utf-8")
        except UnicodeDecodeError:
            raise MessageError(f"the message has a {what} that is not valid UTF-8") from None

    def value(self, kind: int) -> Value:
        if kind <= _TRUE:
            return None if kind == _NONE else kind == _TRUE
        if kind in _NUMBERS:
            form, at = _NUMBERS[kind], self.at
            self.take(form.size)
            found = form.unpack_from(self.view, at)
            return complex(*found) if kind == _COMPLEX else found[0]
        if kind == _STR:
            return self.text("string")
        raise MessageError(f"the message has an entry of unknown kind {kind}")

    def array_head(self, key: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
        code = self.byte()
        if code < len(_DTYPE_OF_CODE):
            dtype = _DTYPE_OF_CODE[code]
        elif code in (_TEXT, _BYTES):
            width = self.varint()
            if not 1 <= width <= len(self.view):
                self._refuse_array(key)
            dtype = np.dtype(f"<U{width}" if code == _TEXT else f"S{width}")
        else:
            raise MessageError(f"the message's array {key[:40]!r} has the unknown dtype code {code}")
        ndim = self.byte()
        if ndim > _MAX_NDIM:
            raise MessageError(
                f"the message's array {key[:40]!r} has {ndim} dimensions, at most {_MAX_NDIM} are allowed"
            )
        shape = tuple(self.varint() for _ in range(ndim))
        # An array without entries takes no bytes, whatever its other extents are.
        if 0 in shape and max(shape) > LONGEST_EMPTY_AXIS:
            raise MessageError(f"the message's array {key[:40]!r} has no entries, and an axis of {max(shape)}")
        if math.prod(extent or 1 for extent in shape) * dtype.itemsize >= 2**62:
            self._refuse_array(key)
        return dtype, shape

    def array(self, key: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        size = math.prod(shape) * dtype.itemsize
        if size:
            if any(self.take(-self.at % 8)):
                raise MessageError("the message has something between its entries")
            if size > len(self.view) - self.at:
                self._refuse_array(key)
        array: NDArray[Any] = np.frombuffer(self.take(size), dtype=dtype).reshape(shape)
        if not array.flags.aligned:
            array = array.copy()
        if dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
            raise MessageError(f"the message's array {key[:40]!r} has truth values that are neither 0 nor 1")
        if dtype.kind == "U" and not _are_code_points(array):
            raise MessageError(f"the message's array {key[:40]!r} has text that is not valid Unicode")
        array.flags.writeable = False
        return array

    def _refuse_array(self, key: str) -> NoReturn:
        raise MessageError(f"the message's array {key[:40]!r} declares to be larger than the message")
