"""What a site keeps to itself for secure sums: its key, the keys of the others, and what it answered in each sum.

A vault is not part of the site's `state`. It is in no journal, and a coordinator that takes back the last call takes
nothing back here. It is lost with the site's process. A sum that was under way continues without the site, and the next
one has keys of its own.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from fedspan.errors import FedspanError, LostSumError
from fedspan.federation.policy import SecureSum
from fedspan.federation.site.noise_query import message_digest
from fedspan.secure_sum.sum_fixed_point import FixedPoint
from fedspan.secure_sum.sum_group import Group, given_away
from fedspan.secure_sum.sum_layout import Layout
from fedspan.secure_sum.sum_masks import KEY_BYTES, KeyPair
from fedspan.wire import Message

#: Sums of which a site remembers its answers; an older one is unknown to it.
_MOST_SESSIONS = 16
#: Calls of one run of which a site remembers its answers; older ones are over.
_MOST_CALLS = 32
#: Queries of one run of which a site remembers the sets of sites.
_MOST_QUERIES = 2**16


@dataclass
class Session:
    """One sum at one site: what it adds up, and what the site has answered."""

    asked: bytes  # the digest of the step, its payload and the transforms, in this call
    query: bytes  # the same in all calls
    reply: Message | None  # the site's part of the sum; dropped when it is over. None: the site spoils the sum
    layout: Layout
    numbers: FixedPoint
    key: KeyPair | None  # for the pairwise masks
    least: int = 0  # the fewest sites that the reply may be added up with, because of its noise
    what: str = ""  # the step whose replies are added up
    seed: bytes = b""  # of the site's own mask
    group: Group | None = None
    alive: tuple[bool, ...] = ()  # the sites of the group that have shared their secrets
    left: tuple[bool, ...] = ()  # those of them that have given a masked reply
    shares: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)  # by owner: of its key and of its seed
    answered: dict[str, tuple[bytes, Message | None]] = field(default_factory=dict)

    def once(self, stage: str, query: Mapping[str, object], refusal: str, answer: Callable[[], Message]) -> Message:
        """Answer one query per stage: a repeated one gets the same reply, another one is refused."""
        asked = message_digest(query)
        if stage not in self.answered:
            reply: Message | None = answer()
            self.answered[stage] = (asked, reply)
        before, reply = self.answered[stage]
        if before != asked:
            raise FedspanError(refusal)
        if reply is None:
            raise FedspanError("this sum is over")
        return reply

    def close(self) -> None:
        """Drop the site's part and all secrets."""
        self.reply, self.key, self.seed, self.shares = None, None, b"", {}
        self.answered = {stage: (asked, None) for stage, (asked, _) in self.answered.items()}


@dataclass
class _Answer:
    asked: bytes  # the digest of the request
    alive: tuple[str, ...]  # the sites whose sum the masked reply is for
    left: tuple[str, ...] = ()  # the sites whose sum this site has helped to uncover


class AnsweredQueries:
    """The request and the set of sites that this site has answered, in each call of each run.

    Sums of one call over two sets of sites would reveal their difference. This memory outlasts the run. A coordinator
    that was killed may request the same sum of the same sites again, and gets it under new keys. A call that the site
    has forgotten is over.
    """

    def __init__(self) -> None:
        self._answers: dict[str, dict[int, _Answer]] = {}
        self._sets: dict[
            str, dict[bytes, list[frozenset[str]]]
        ] = {}  # by run and query: the sets that were summed over
        self._over: dict[str, int] = {}  # by run: the last call that is over

    def check(self, run: str, number: int, asked: bytes) -> None:
        """Refuse a call that has ended, or in which this site has answered another request."""
        if number <= self._over.get(run, -1):
            raise FedspanError(f"call {number} of this run is over at this site")
        before = self._answers.get(run, {}).get(number)
        if before is not None and before.asked != asked:
            raise FedspanError(f"this site has given a masked reply to another request in call {number} of this run")

    def masked(self, run: str, number: int, asked: bytes, alive: tuple[str, ...]) -> None:
        """Note a masked reply, or refuse it where there was one for other sites."""
        self.check(run, number, asked)
        answers = self._answers.setdefault(run, {})
        if answers.setdefault(number, _Answer(asked, alive)).alive != alive:
            raise FedspanError(
                f"this site has given a masked reply for another set of sites in call {number} of this run: request "
                "the same sites, or begin a new run"
            )
        while len(answers) > _MOST_CALLS:
            oldest = min(answers)
            self._over[run] = max(self._over.get(run, -1), oldest)
            del answers[oldest]

    def unmasked(self, run: str, number: int, query: bytes, left: tuple[str, ...], least: int) -> None:
        """Note shares, or refuse them where there were some for the sum over other sites.

        Also refuse them where this sum, with earlier ones of the same query in this run, is about fewer than `least`.
        """
        before = self._answers.get(run, {}).get(number)
        if before is None:
            raise FedspanError(f"call {number} of this run is over at this site")
        if before.left and before.left != left:
            raise FedspanError(
                f"this site has helped to uncover the sum over another set of sites in call {number} of this run: "
                "begin a new run"
            )
        queries = self._sets.setdefault(run, {})
        sets = queries.setdefault(query, [])
        few = given_away(sets, frozenset(left), least)
        if few:
            raise FedspanError(
                f"this sum, with earlier ones of the same query in this run, would reveal the sum over {len(few)} "
                f"site{'s' * (len(few) > 1)}, fewer than {least}: request the same sites, or begin a new run"
            )
        sets.append(frozenset(left))
        while len(queries) > _MOST_QUERIES:
            del queries[next(iter(queries))]
        before.left = left


class Vault:
    """A site's keys and its memory of secure sums.

    Parameters
    ----------
    identity : bytes (32,), optional
        The X25519 private key that identifies this site to the others. An engine with certificates binds its public key
        to the site's own. Default: drawn when it is first needed.
    filling : bytes, optional
        The secret of the bits that fill a number below those that count. With the same one, a repeated sum has the same
        bits. Default: drawn.

    Attributes
    ----------
    settings : SecureSum
        What the federation has agreed upon, not the coordinator's choice; `numbers` are its range and resolution.
    least : int
        This site takes part in no sum that fewer sites could uncover: the federation's number, or a larger one.
    answers : AnsweredQueries
    sums_only : bool
        This site gives no single reply that reveals something.
    """

    def __init__(self, identity: bytes | None = None, filling: bytes | None = None) -> None:
        self.filling = filling or secrets.token_bytes(KEY_BYTES)
        self._identity = None if identity is None else KeyPair(identity)
        self._known: dict[str, bytes] = {}
        self._left: set[str] = set()  # names that were known, and have left the federation
        self._channels: dict[str, bytes] = {}
        self._sessions: dict[str, Session] = {}
        self.answers = AnsweredQueries()
        self.take(SecureSum())
        self.sums_only = False

    def take(self, settings: SecureSum) -> None:
        """Fix what the federation has agreed upon: threshold and fewest sites of a sum, range and resolution of all."""
        self.settings, self.least, self.numbers = settings, settings.least, FixedPoint.of(settings)

    @property
    def resolution(self) -> float:
        """The distance of two neighbouring numbers of a sum."""
        return self.numbers.resolution

    @property
    def public(self) -> bytes:
        """The public key that identifies this site to the others."""
        return self._own.public

    def introduce(self, keys: Mapping[str, bytes], replace: bool = False) -> None:
        """Learn the public keys of the others, by name; refuse another key for a known name.

        An engine that has checked the sender may `replace` known keys.
        """
        for name, key in keys.items():
            if len(key) != KEY_BYTES or (not replace and self._known.get(name, key) != key):
                raise FedspanError(f"site {name!r} is known by another key")
            if self._known.get(name) != key:
                self._known[name] = key
                self._channels.pop(name, None)
                self._left.discard(name)

    def keep(self, names: Collection[str]) -> None:
        """Forget the keys of all other sites: they are in no new sum. One that is under way may end."""
        self.forget_keys(self._known.keys() - set(names))

    def forget_keys(self, names: Collection[str]) -> None:
        """Forget the keys of sites that have left the federation, or have another key by now."""
        self._left |= set(names)
        self._known = {name: key for name, key in self._known.items() if name not in self._left}

    def check_known(self, names: Iterable[str]) -> None:
        """Refuse a set with a site whose key is not known."""
        for name in names:
            if name not in self._known:
                if name in self._left:
                    raise LostSumError(f"site {name!r} has left the federation: make this sum again without it")
                raise FedspanError(f"this site does not know the key of a site {name!r}")

    def knows(self, me: str) -> int:
        """Return the number of sites that this one, called `me`, could be in a sum with, itself included."""
        return len(self._known.keys() | {me})

    def channel(self, name: str) -> bytes:
        """Return the secret that only this site and the site `name` share."""
        if name not in self._channels:
            self.check_known([name])
            self._channels[name] = self._own.agreed(self._known[name])
        return self._channels[name]

    def begin(self, name: str, make: Callable[[], Session]) -> Session:
        """Return the sum called `name`, made if it is new to this site."""
        if name not in self._sessions:
            session = make()
            while len(self._sessions) >= _MOST_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
            self._sessions[name] = session
        return self._sessions[name]

    def session(self, name: str) -> Session:
        """Return a sum that this site takes part in."""
        if name not in self._sessions:
            raise LostSumError("this site knows nothing of this sum: it has not been in it from its beginning")
        return self._sessions[name]

    def about(self, name: str) -> str:
        """Return the step whose replies a sum adds up; empty where this site takes no part in it."""
        return self._sessions[name].what if name in self._sessions else ""

    def forget(self, run: str) -> None:
        """Drop the sums of a run; its answered queries stay known."""
        for name in [name for name in self._sessions if name.rsplit("/", 2)[0] == run]:
            del self._sessions[name]

    @property
    def _own(self) -> KeyPair:
        if self._identity is None:
            self._identity = KeyPair()
        return self._identity
