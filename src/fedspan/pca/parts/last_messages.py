"""The last message of every site: what a coordinator averages where only some of the sites answer at a time."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError, QuorumError
from fedspan.federation import Federation, Replies
from fedspan.federation.federation import StepLike
from fedspan.wire import Message

#: A site that did not answer so many times in a row, when it was asked, is gone until it answers again. Of a site whose
#: replies get lost now and then that must not happen, because the average jumps whenever it does.
PATIENCE = 10


class LastMessages:
    """The last message of each site, and the numbers that came with it.

    A site that has never answered does not count, and one that is gone does so no longer: `names` are those that do.

    Parameters
    ----------
    sites : names of all sites
    shape : tuple of int
        Of a message, the value of a reply's key "message".
    numbers : names
        Of the keys of a reply that are single numbers.

    Examples
    --------
    >>> last = LastMessages(("a", "b"), (2,), ["n", "loss"])
    >>> last.hear(Replies({"b": {"message": np.ones(2), "n": 4, "loss": 0.5}}, {"a": "late"}))
    >>> last.names, last.messages(last.names), last.numbers(last.names)
    (('b',), array([[1., 1.]]), array([[4. , 0.5]]))
    """

    def __init__(self, sites: tuple[str, ...], shape: tuple[int, ...], numbers: Iterable[str]) -> None:
        self._sites = sites
        self._keys = tuple(numbers)
        self._place = {name: i for i, name in enumerate(sites)}
        self._messages = np.zeros((len(sites), *shape))
        self._numbers = np.zeros((len(sites), len(self._keys)))
        self._heard = np.zeros(len(sites), dtype=bool)
        self._silent = np.zeros(len(sites), dtype=np.int64)  # times in a row

    @property
    def names(self) -> tuple[str, ...]:
        """The sites that count, in name order."""
        return tuple(compress(self._sites, (self._heard & ~self._gone).tolist()))

    @property
    def gone(self) -> frozenset[str]:
        """The sites that have not answered for long."""
        return frozenset(compress(self._sites, self._gone.tolist()))

    @property
    def complete(self) -> bool:
        """Whether every site has answered, but for those that are gone."""
        return bool(np.all(self._heard | self._gone))

    def messages(self, names: Iterable[str]) -> NDArray[np.float64]:
        """Return the last messages of these sites, one after the other."""
        return self._messages[[self._place[name] for name in names]]

    def numbers(self, names: Iterable[str]) -> NDArray[np.float64]:
        """Return the last numbers of these sites: one row per site, one column per key."""
        return self._numbers[[self._place[name] for name in names]]

    def ask(self, fed: Federation, some: Federation, step: StepLike, /, **payload: object) -> tuple[str, ...]:
        """Ask `some` of the sites of `fed`, keep what they send, and return who answered.

        The others' last messages are still there, so a missed quorum costs this turn alone. The run ends when fewer
        sites are left, of all, than the policy's quorum.
        """
        try:
            replies = fed.accept(some.ask(step, **payload), self._checked)
        except QuorumError as error:
            self._miss(error.failed)
            if len(fed.sites) - len(self.gone) < fed.policy.needed(len(fed.sites)):
                raise
            return ()
        self.hear(replies)
        return tuple(replies)

    def hear(self, replies: Replies) -> None:
        """Keep replies that are in order, and note who failed."""
        for name, reply in replies.ok.items():
            i = self._place[name]
            self._messages[i] = reply["message"]
            self._numbers[i] = [reply[key] for key in self._keys]
            self._heard[i], self._silent[i] = True, 0
        self._miss(replies.failed)

    @property
    def _gone(self) -> NDArray[np.bool_]:
        return self._silent >= PATIENCE

    def _miss(self, names: Iterable[str]) -> None:
        for name in names:
            self._silent[self._place[name]] += 1

    def _checked(self, reply: Message) -> Message:
        message, shape = reply.get("message"), self._messages.shape[1:]
        if not isinstance(message, np.ndarray) or message.shape != shape or message.dtype.kind != "f":
            raise InputError(f"'message' must be an array {shape} of real numbers")
        for key in self._keys:
            if type(reply.get(key)) not in (int, float):
                raise InputError(f"{key!r} must be a number")
        return reply
