"""What the user's process and the relay agree on.

The server passes one command at a time to its relays, whoever asks: so no command may wait long or be large. A call is
brought by ``send`` (a large request before it by ``put``, in pieces), asked after by ``collect``, and a large answer
is fetched in pieces.
"""

from __future__ import annotations

import base64

#: The app command that a relay listens to.
TOPIC = "fedspan"

#: A relay whose user was not heard of for so many seconds ends.
IDLE_LIMIT = 30.0

#: Bytes of messages in one command, at most.
PIECE = 4_000_000

#: Seconds that one command may wait for answers; between two of them the server is free for others.
PATIENCE = 0.1


def to_text(message: bytes | memoryview) -> str:
    """Return bytes as JSON can carry them."""
    return base64.b64encode(message).decode("ascii")


def to_bytes(text: str) -> bytes:
    """Return the bytes that `to_text` wrote."""
    return base64.b64decode(text, validate=True)
