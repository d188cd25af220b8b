"""Reading a journal without taking part in its run: nothing is locked, cut off or written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

from fedspan.errors import InputError, JournalError
from fedspan.federation.journal import _DIGEST, _FRAME, Entry, _frame_head, _parse_call, frame_parts


def read_journal(path: Path) -> tuple[dict[str, Any], Iterator[Entry]]:
    """Return a journal's head, and its calls one by one; a last frame that was cut short is left out."""
    try:
        frames = _frames(path)
        first = next(frames, None)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    if first is None:
        raise JournalError(f"{path} is no journal, or is damaged in its head")
    return json.loads(bytes(first[0])), (entry for parts in frames if (entry := _parse_call(parts, path)) is not None)


def _frames(path: Path) -> Iterator[list[memoryview]]:
    """Yield the parts of each frame, as long as frames are whole."""
    last = b""
    with path.open("rb") as file:
        number = 0
        while len(head := file.read(_FRAME.size)) == _FRAME.size:
            _, _, length, _ = _FRAME.unpack(head)
            if head != _frame_head(number, length):
                return
            body = file.read(length + _DIGEST)
            digest = blake2b(last + body[:-_DIGEST], digest_size=_DIGEST).digest()
            if len(body) < length + _DIGEST or digest != body[-_DIGEST:]:
                return
            yield frame_parts(memoryview(body)[:-_DIGEST])
            last, number = digest, number + 1
