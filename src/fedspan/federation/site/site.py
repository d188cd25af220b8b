"""A site: a name and private data. Steps run next to it, and only what they return leaves it."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from fedspan.errors import InputError, PolicyError
from fedspan.federation.site.call_context import Asked, Work
from fedspan.federation.site.noise_query import SiteLedger
from fedspan.federation.site.site_data import Array, SiteData, read_only
from fedspan.federation.site.state import NO_CHANGES, Changes, State
from fedspan.wire import Message

if TYPE_CHECKING:
    from fedspan.secure_sum.sum_vault import Vault

T = TypeVar("T")

#: A share of the noise has at least so many steps of a secure sum's resolution as its deviation: then rounding each
#: part changes nothing of the law of their sum that could be told.
_LEAST_STEPS = 1024


@dataclass(frozen=True)
class Batch:
    """Some consecutive rows of a site: ``X`` and, where the site has them, ``y`` and ``task``."""

    X: Array
    y: Array | None
    task: Array | None


class Site:
    """A name and private data.

    Parameters
    ----------
    name : str
        Unique within its federation.
    X : array (n, ...), memory map or data frame
        One row per sample. Steps see it read-only.
    y, task : array (n,), optional
        Target and task of each row.
    ledger : fedspan.privacy.Ledger, optional
        The site's own account of its privacy, with its secret: what is asked under differential privacy is charged to
        it, and refused where its budget is spent. Such a site copies its data: what is later written to the arrays it
        was made of does not reach it (a memory-mapped file above 1 GiB is not copied, and digested for every charge).

    Attributes
    ----------
    feature_names : tuple of str or None
        The frame's column names.
    state : mutable mapping
        During a run: named arrays and numbers that the site keeps from call to call.
    rng : numpy.random.Generator
        During a run: made on first use from run seed, site name and call number, so a retry draws the same numbers.

    Examples
    --------
    >>> site = Site("clinic", np.arange(6.0).reshape(3, 2))
    >>> len(site), [batch.X.shape for batch in site.batches(2)]
    (3, [(2, 2), (1, 2)])
    """

    __slots__ = ("_data", "_work")

    def __init__(self, name: str, X: Any, y: Any = None, task: Any = None, *, ledger: SiteLedger | None = None) -> None:
        if ledger is not None and not callable(getattr(ledger, "key", None)):
            raise InputError(f"site {name!r}: ledger={ledger!r} must be a fedspan.privacy.Ledger, or None")
        self._data = SiteData(name, X, y, task, ledger)
        self._work: Work | None = None

    def __len__(self) -> int:
        return self._data.shape[0]

    def __repr__(self) -> str:
        return f"Site({self.name!r}, {'x'.join(map(str, self._data.shape))})"

    @property
    def name(self) -> str:
        """The site's name."""
        return self._data.name

    @property
    def y(self) -> Array | None:
        """The target of each row."""
        return self._shown("y", self._open.y)

    @property
    def task(self) -> Array | None:
        """The task of each row."""
        return self._shown("task", self._open.task)

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The data frame's column names; none where a transform stands before it."""
        return self._data.feature_names if self._data.lens is None else None

    @property
    def frame(self) -> Any:
        """The data frame that the site was made of, or ``None``: a copy, as far as writing to it goes.

        ``None`` as well where a transform stands before it.
        """
        data = self._open
        return None if data.frame is None or data.lens is not None else data.frame.copy(deep=False)

    @property
    def X(self) -> Array:
        """The data, seen through the federation's transforms if there are any."""
        data = self._open
        lens = data.lens
        if lens is None:
            return data.X
        return self.cached("", lambda: read_only(lens(data.rows(slice(None))), data.name, "X"))

    @property
    def state(self) -> State:
        """What this site keeps from call to call within a run."""
        work = self._at_work
        if work.state is None:
            work.state = State(work.base)
        return work.state

    @property
    def rng(self) -> np.random.Generator:
        """The generator of this call; not for noise that protects privacy, which the coordinator must not replay."""
        work = self._at_work
        if work.rng is None:
            if work.charges:
                raise InputError("a step draws from site.rng before it charges: what it draws is part of the question")
            work.rng = generator(work.seed, self.name, work.call)
        return work.rng

    @property
    def vault(self) -> Vault:
        """The site's keys and its memory of secure sums, which nobody takes back."""
        vault = self._at_work.vault
        if vault is None:
            raise InputError(f"site {self.name!r} has no vault: its engine carries no secure sums")
        return vault

    @property
    def ledger(self) -> SiteLedger | None:
        """The account that this site charges: its own, or in an embedded run without one a simulated one."""
        return self._data.ledger if self._work is None or self._work.ledger is None else self._work.ledger

    def charged(self, *, mu2: float = 0.0, rho: float = 0.0, anew: bool = False) -> bytes:
        """Charge the site's ledger for what this call is about to say; return the key of its noise.

        The key is the same whenever the same question is asked again, and then nothing is charged: a question is the
        step and what it was told, the lenses, all of the site's data, and its state. Noise is made of the key by
        `fedspan.privacy.normal`. The charge is on disk when this returns. Charge before the data are read: a strict
        ledger shows them to no step that has not.

        Parameters
        ----------
        mu2 : float
            Of a Gaussian reply: (sensitivity / deviation of the noise)^2. Infinite where there is no guarantee.
        rho : float
            Of any other, in units of zero-concentrated privacy.
        anew : bool, default=False
            Charge, and make other noise, also where the same was asked before: for a part of the noise of a sum
            (`hidden_among`), which would be bared by the difference of that sum over two sets of sites.
        """
        work, ledger = self._at_work, self.ledger
        if ledger is None:
            raise InputError(
                f"site {self.name!r} has no ledger, and this step adds noise from a site's own secret: "
                "give the site one, fedspan.Site(name, X, ledger=fedspan.privacy.Ledger(path, ...))"
            )
        # Simulated noise can be computed again, and a run with it, so that there the call's number must do.
        mark = f"call {work.seed} {work.call}" if ledger.simulated else secrets.token_hex(16)
        key = ledger.key(work.question(self._data.digest(), mark if anew else ""), mu2=mu2, rho=rho)
        work.charges += 1
        return key

    def hidden_among(self, sites: float, deviation: float) -> None:
        """Demand that this reply leaves only within a secure sum over at least so many sites.

        For noise of which each site adds a share of this `deviation`. The site holds on to it: it takes part in no sum
        that fewer sites can uncover, whatever the coordinator says, and in none whose resolution would swallow shares.
        """
        work = self._at_work
        if not work.hidden or work.vault is None:
            raise PolicyError(
                f"site {self.name!r} adds a share of the noise only where a secure sum hides its part "
                "(Policy(secure_sum=True)), and this call is none"
            )
        known = work.vault.knows(self.name)
        if not sites <= known:
            raise PolicyError(
                f"site {self.name!r} knows {known} sites, itself included, and is to add a share of noise that would "
                f"be enough only among {sites}"
            )
        if not deviation >= _LEAST_STEPS * work.vault.numbers.resolution:
            raise PolicyError(
                f"site {self.name!r} is to add a share of the noise with a deviation of {deviation:g}, which a secure "
                f"sum to {work.vault.numbers.resolution:g} would round away: use a finer resolution"
            )
        work.least = max(work.least, math.ceil(sites))

    def batches(self, rows: int) -> Iterator[Batch]:
        """Yield the data in consecutive blocks of `rows` rows, for data larger than memory."""
        if rows < 1:
            raise InputError(f"rows={rows} must be at least 1")
        data = self._open
        # A frame is in memory anyway: what a lens makes of it is made once. Of arrays it is made block by block.
        lens = None if data.lens_takes_frame else data.lens
        for start in range(0, len(self), rows):
            part = slice(start, start + rows)
            X = self.X[part] if lens is None else lens(data.rows(part))
            yield Batch(X, None if data.y is None else data.y[part], None if data.task is None else data.task[part])

    def cached(self, key: str, make: Callable[[], T]) -> T:
        """Return ``make()``, computed once per site: for what the data alone decide, such as a Gram matrix.

        Unlike `state` it is not recorded: after a restart it is computed again.
        """
        computed = self._open.computed
        if key not in computed:
            computed[key] = make()
        return cast(T, computed[key])

    def last_of(self, kind: str, key: object, make: Callable[[], T]) -> T:
        """Return ``make()`` as it was made for this key, if that was the last of its kind: for what is large."""
        computed = self._open.computed
        before = computed.get(f"last {kind}")
        if before is None or before[0] != key:
            computed.pop(f"last {kind}", None)
            before = computed[f"last {kind}"] = (key, make())
        return cast(T, before[1])

    def fingerprint(self) -> str:
        """Describe the data's shape and a digest of at most 2047 rows: tells a journal of other data from this one's.

        A journal is the coordinator's: where the site has a ledger, the digest is keyed by its secret, so that nobody
        else can find rows by trying.
        """
        data = self._open
        digest = blake2b(digest_size=8, key=b"" if data.ledger is None else data.ledger.fingerprint_key())
        some = slice(None, None, max(1, len(self) // 1024))
        samples = [(data.shape, data.values(some))]
        samples += [(column.shape, column[some]) for column in (data.y, data.task) if column is not None]
        for _, sample in samples:
            digest.update(repr(sample.tolist()).encode() if sample.dtype == object else sample.tobytes())
        digest.update(repr(data.feature_names).encode())
        shapes = [f"{'x'.join(map(str, shape))} {sample.dtype}" for shape, sample in samples]
        return f"{', '.join(shapes)} #{digest.hexdigest()}"

    def through(self, lens: Callable[[Any], Array], *, frames: bool = False) -> Site:
        """Return this site as a transform shows it: same rows, ``X`` transformed when it is read.

        With `frames` a lens gets rows as a data frame where the site was made of one and no lens stands before it.
        """
        inner = self._open.lens
        takes_frame = self._data.lens_takes_frame if inner else frames and hasattr(self._data.frame, "iloc")
        if not takes_frame:
            _ = self._data.X  # made here if it is yet to be made: all views share it
        data = self._data.seen()
        data.lens = (lambda rows: lens(inner(rows))) if inner else lens
        data.lens_takes_frame = takes_frame
        return _site(data, None)

    def with_rows(self, X: Array) -> Site:
        """Return this site with other rows in the place of its own, the ones that a private lens has made.

        Target and task are hidden: what noise on the rows does not cover is not to be seen beside them.
        """
        return _site(self._open.replaced(X), None)

    def digest(self) -> bytes:
        """Return a digest of all of the site's data, as they are without any lens."""
        return self._open.digest()

    def at_work(
        self,
        base: Message,
        seed: int,
        call: int,
        vault: Vault | None = None,
        ledger: SiteLedger | None = None,
        asked: Asked | None = None,
        gate: Callable[[Site], None] | None = None,
    ) -> Site:
        """Return this site as one call sees it, with `state` (a working copy of `base`), `rng`, `vault`, `ledger`.

        A `gate` is called before the data are read, and may refuse.
        """
        return _site(self._data, Work(base, seed, call, vault, ledger, asked or Asked("", "", {}), gate))

    def invented(self, ledger: SiteLedger, scale: float) -> Site:
        """Return this site, at the same call, with invented rows of this size in the place of its own."""
        work = self._at_work
        asked = Work(work.base, work.seed, work.call, work.vault, ledger, work.asked)
        asked.hidden = work.hidden
        return _site(self._open.invented(scale), asked)

    @property
    def in_call(self) -> tuple[str, int]:
        """The run and the number of the call that this site is at work for."""
        work = self._at_work
        return work.asked.run, work.call

    def asked_digest(self, what: str, payload: Message) -> bytes:
        """Return the digest of a step and its payload as this call asks for them, through its lenses."""
        return self._at_work.asked_digest(what, payload)

    def asked_for(self, what: str, payload: Message) -> None:
        """Take note that this call is one for another step: a secure sum asks for the step whose replies it adds."""
        work = self._at_work
        work.asked = Asked(work.asked.run, what, payload, work.asked.lenses)
        work.hidden = True

    @property
    def least_in_sum(self) -> int:
        """The fewest sites that this call's reply may be added up with, as its step demands."""
        return self._at_work.least

    @property
    def said_with_noise(self) -> bool:
        """Whether this call has charged the ledger."""
        return self._at_work.charges > 0

    @property
    def asked(self) -> str:
        """The step that this call is for."""
        return self._at_work.asked.what

    def changes(self) -> Changes:
        """Return what the call that this site is at work for did to its state."""
        state = self._at_work.state
        return NO_CHANGES if state is None else state.changes()

    @property
    def _open(self) -> SiteData:
        """The data, to be read: not before a step of which a strict ledger wants noise has charged."""
        if self._work is not None and self._work.gate is not None:
            self._work.gate(self)
        return self._data

    def _shown(self, what: str, column: Array | None) -> Array | None:
        if what in self._data.hidden:
            raise PolicyError(
                f"site {self.name!r} does not show its {what} beside noisy rows: the noise is on X alone, and would "
                f"not cover it; use the federation as it is without noise where {what} may leave the sites"
            )
        return column

    @property
    def _at_work(self) -> Work:
        if self._work is None:
            raise InputError(f"site {self.name!r} has state and rng only inside a step")
        return self._work


def _site(data: SiteData, work: Work | None) -> Site:
    site = Site.__new__(Site)
    site._data = data
    site._work = work
    return site


def generator(seed: int, *names: object) -> np.random.Generator:
    """Make the generator that belongs to `seed` and `names`: the same whatever was drawn before, anywhere."""
    text = "\0".join([str(seed), *map(str, names)])
    return np.random.default_rng(int.from_bytes(blake2b(text.encode(), digest_size=16).digest(), "little"))


def checked_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return `names` sorted as text, or refuse two that are the same."""
    ordered = tuple(sorted(names))
    for first, second in pairwise(ordered):
        if first == second:
            raise InputError(f"two sites have the name {first!r}: names must be unique")
    if not ordered:
        raise InputError("a federation needs at least one site")
    return ordered
