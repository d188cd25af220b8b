"""What the user's process and the relay agree on.

Calls travel as messages between their cells, so that bytes stay bytes and nobody waits for anybody else's call. What
keeps a relay (is it alive, whom to give up, when to end) are app commands, of which the server passes on one at a time.
"""

from __future__ import annotations

#: The app command that a relay listens to, and the channel of its calls.
TOPIC = "fedspan"

#: A relay whose user was not heard of for so many seconds ends.
IDLE_LIMIT = 30.0
