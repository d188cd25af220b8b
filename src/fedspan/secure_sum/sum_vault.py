"""What a site keeps to itself for secure sums: its key, the keys of the others, and what it said in each sum.

A vault is not part of the site's `state`: it is in no journal, and a coordinator that takes back the last call does not
take back what the vault remembers. It is lost with the site's process, and loses nothing by that: a sum that was under
way goes on without the site, and the next one has keys of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fedspan.errors import FedspanError, LostSumError
from fedspan.federation.policy import SecureSum
from fedspan.secure_sum.sum_answered_queries import Given
from fedspan.secure_sum.sum_fixed_point import FixedPoint
from fedspan.secure_sum.sum_group import Group, digest
from fedspan.secure_sum.sum_layout import Form
from fedspan.secure_sum.sum_masks import KEY_BYTES, KeyPair
from fedspan.wire import Message

#: Sums of which a site remembers what it said. One that it has forgotten is one that it never heard of.
_MOST_SESSIONS = 16


@dataclass
class Session:
    """One sum at one site: what it is about, and what has been answered."""

    asked: bytes  # the digest of the step, what it was told, and the transforms
    reply: Message | None  # the site's part of the sum; forgotten when it is over. None: it can only spoil the sum
    form: Form
    numbers: FixedPoint
    key: KeyPair | None  # for the pairwise masks
    least: int = 0  # the fewest sites that the reply may be added up with, by its noise
    what: str = ""  # the step whose replies are added up
    seed: bytes = b""  # of the self mask
    group: Group | None = None
    alive: tuple[bool, ...] = ()  # who of the group has shared its secrets
    left: tuple[bool, ...] = ()  # who of these has given a masked reply
    shares: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)  # by owner: of its key and of its seed
    answered: dict[str, tuple[bytes, Message | None]] = field(default_factory=dict)

    def once(self, stage: str, question: Mapping[str, object], refusal: str, answer: Callable[[], Message]) -> Message:
        """Answer one question a stage: a repeated one gets the same reply, another one is refused."""
        asked = digest(question)
        if stage in self.answered:
            before, reply = self.answered[stage]
            if before != asked:
                raise FedspanError(refusal)
            if reply is None:
                raise FedspanError("this sum is over")
            return reply
        reply = answer()
        self.answered[stage] = (asked, reply)
        return reply

    def close(self) -> None:
        """Forget the site's part and all secrets."""
        self.reply, self.key, self.seed, self.shares = None, None, b"", {}
        self.answered = {stage: (asked, None) for stage, (asked, _) in self.answered.items()}


class Vault:
    """A site's keys and its memory of secure sums.

    Parameters
    ----------
    identity : bytes (32,), optional
        The X25519 private key that the other sites know this one by. An engine that has certificates binds its public
        key to the site's own; without one it is drawn when it is first needed.

    Attributes
    ----------
    least : int
        This site takes part in no sum that fewer sites could uncover.
    numbers : FixedPoint
        Range and resolution of all sums that this site takes part in: the federation's, not the coordinator's choice.
    given : Given
        For which sites and to which question it has given masked replies, call by call.
    sums_only : bool
        This site answers nothing that single replies would be needed for.
    """

    def __init__(self, identity: bytes | None = None) -> None:
        self._identity = None if identity is None else KeyPair(identity)
        self._known: dict[str, bytes] = {}
        self._channels: dict[str, bytes] = {}
        self._sessions: dict[str, Session] = {}
        self.given = Given()
        self.take(SecureSum())
        self.sums_only = False

    def take(self, settings: SecureSum) -> None:
        """Fix what the federation has agreed upon: the fewest sites of a sum, and the range and resolution of all."""
        self.least, self.numbers = settings.least, FixedPoint.of(settings)

    @property
    def resolution(self) -> float:
        """The distance of two neighbouring numbers of a sum."""
        return self.numbers.resolution

    @property
    def public(self) -> bytes:
        """The public key that the other sites are to know this one by."""
        return self._own.public

    def introduce(self, keys: Mapping[str, bytes], anew: bool = False) -> None:
        """Tell this site the public keys of the others, by name. A name that has another key already is refused.

        Unless it is told `anew`: for an engine that has checked who says so.
        """
        for name, key in keys.items():
            if len(key) != KEY_BYTES or (not anew and self._known.get(name, key) != key):
                raise FedspanError(f"site {name!r} is known by another key")
            if self._known.get(name) != key:
                self._known[name] = key
                self._channels.pop(name, None)

    def knows(self, me: str) -> int:
        """Return how many sites this one, called `me`, could be in a sum with, itself included."""
        return len(self._known.keys() | {me})

    def channel(self, name: str) -> bytes:
        """Return the secret that only this site and the site `name` share."""
        if name not in self._channels:
            if name not in self._known:
                raise FedspanError(f"this site does not know the key of a site {name!r}")
            self._channels[name] = self._own.agreed(self._known[name])
        return self._channels[name]

    def begin(self, name: str, make: Callable[[], Session]) -> Session:
        """Return the sum called `name`, made if this site has not heard of it."""
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
        """Drop the sums of a run; what was given in its calls stays known."""
        for name in [name for name in self._sessions if name.startswith(f"{run}/")]:
            del self._sessions[name]

    @property
    def _own(self) -> KeyPair:
        if self._identity is None:
            self._identity = KeyPair()
        return self._identity
