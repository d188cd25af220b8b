"""A site: a name and private data. Steps run next to it, and only what they return leaves it."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np

from fedspan.arrays import Array
from fedspan.errors import InputError, PolicyError
from fedspan.federation.site.call_context import CallContext
from fedspan.federation.site.failing_rows import hiding_failures
from fedspan.federation.site.noise_query import SiteLedger
from fedspan.federation.site.row_stream import RowStream
from fedspan.federation.site.shown_rows import ShownRows
from fedspan.federation.site.site_data import Diagonal, SiteData, raw_bytes
from fedspan.federation.site.state import Changes, State
from fedspan.wire import Message

#: Deviation of a share of the noise, in steps of a secure sum's resolution. From this one on, rounding each part leaves
#: the distribution of their sum unchanged for all purposes.
_LEAST_STEPS = 1024


class Site(ShownRows):
    """A name and private data.

    Parameters
    ----------
    name : str
        Unique within its federation.
    X : array (n, ...), memory map, data frame, sparse matrix or stream
        One row per sample. Steps see it read-only. Frames of polars and tables of pyarrow become frames of pandas. For
        data larger than memory see `fedspan.stream`.
    y, task : array (n,), optional
        Target and task of each row; of a stream, or the name of its column.
    sample_weight : array (n,), optional
        The weight of each row, at least 0; a weight of 2 counts a row twice. Only steps that use weights
        (``@step(weighted=True)``) then run on the rows, and estimators that can't use them refuse the site.
    ledger : fedspan.privacy.Ledger, optional
        The site's own privacy account, with its secret: queries under differential privacy are charged to it, and
        refused where its budget is spent. Such a site copies its data, so that later writes to the caller's arrays do
        not reach it. A memory-mapped file above 1 GiB is not copied, but digested for every charge.

    Attributes
    ----------
    feature_names : tuple of str or None
        The frame's column names.
    state : mutable mapping
        During a run: named arrays and numbers that the site keeps from call to call.
    rng : numpy.random.Generator
        During a run: made from run seed, site name and call number, so that a retry draws the same numbers.

    Examples
    --------
    >>> site = Site("clinic", np.arange(6.0).reshape(3, 2))
    >>> len(site), [batch.X.shape for batch in site.batches(2)]
    (3, [(2, 2), (1, 2)])
    """

    __slots__ = ()

    def __init__(
        self,
        name: str,
        X: Any,
        y: Any = None,
        task: Any = None,
        *,
        sample_weight: Any = None,
        ledger: SiteLedger | None = None,
    ) -> None:
        if ledger is not None and not callable(getattr(ledger, "key", None)):
            raise InputError(f"site {name!r}: ledger={ledger!r} must be a fedspan.privacy.Ledger, or None")
        if isinstance(X, RowStream):
            if isinstance(y, str):
                X, y = X.column(y)
            if isinstance(task, str):
                X, task = X.column(task)
            if isinstance(sample_weight, str):
                X, sample_weight = X.column(sample_weight)
        self._data = SiteData(name, X, y, task, ledger, sample_weight)
        self._context = self._make_context = None

    def __repr__(self) -> str:
        return f"Site({self.name!r}, {'x'.join(map(str, self._data.shape))})"

    # What a step uses.

    @property
    def state(self) -> State:
        """What this site keeps from call to call within a run."""
        context = self.context
        if context.state is None:
            context.state = State(context.base)
        return context.state

    @property
    def rng(self) -> np.random.Generator:
        """The generator of this call; not for noise that protects privacy, because the coordinator can replay it."""
        context = self.context
        if context.rng is None:
            if context.charged:
                raise InputError("a step must draw from site.rng before it charges: what it draws is part of the query")
            context.rng = generator(context.seed, self.name, context.number)
        return context.rng

    # Noise for privacy.

    @property
    def ledger(self) -> SiteLedger | None:
        """The account that this site charges: its own, or in an embedded run without one a simulated one."""
        context = self.begun
        if context is None:
            return self._data.ledger
        if context.ledger is None and context.simulated is not None:
            context.ledger = context.simulated(self.name, context.seed)
        return context.ledger

    def charged(self, *, mu2: float = 0.0, rho: float = 0.0, again: bool = False) -> bytes:
        """Charge the site's ledger for this call's reply; return the key of its noise.

        The same query always gets the same key, and is charged once. A query is the step, its payload and transforms,
        all of the site's data, and its state. `fedspan.privacy.with_noise` makes noise of it. The charge is on disk
        before the reply leaves. Charge before reading data: a strict ledger shows them to no step that has not.

        Parameters
        ----------
        mu2 : float
            Of a Gaussian reply: (sensitivity / deviation of the noise)^2. Infinite where there is no guarantee.
        rho : float
            Of any other, in units of zero-concentrated privacy.
        again : bool, default=False
            Charge, and make other noise, even if the same query was charged before. For a share of the noise of a sum
            (`hidden_among`): the difference of that sum over two sets of sites would reveal a repeated share.
        """
        context, ledger = self.context, self.ledger
        self.refuse_chosen_rows()
        if ledger is None:
            raise InputError(
                f"site {self.name!r} has no ledger, and this step adds noise from a site's own secret: "
                "give the site one, fedspan.Site(name, X, ledger=fedspan.privacy.Ledger(path, ...))"
            )
        mark = ""
        if again:  # simulated noise must be the same when a run is repeated
            mark = f"call {context.seed} {context.number}" if ledger.simulated else secrets.token_hex(16)
        return context.charge(self._data.digest(), mark, mu2, rho)

    def hidden_among(self, sites: float, deviation: float) -> None:
        """Demand that this reply leaves only within a secure sum over at least `sites` sites.

        For noise of which each site adds a share of this `deviation`. Whatever the coordinator requests, the site takes
        part in no sum that fewer sites can uncover, and in none whose resolution would round shares away.
        """
        context = self.context
        vault = context.vault
        if not context.hidden or vault is None:
            raise PolicyError(
                f"site {self.name!r} adds a share of the noise only where a secure sum hides its part "
                "(Policy(secure_sum=True)), and this call is not part of one"
            )
        if not sites <= vault.knows(self.name):
            raise PolicyError(
                f"site {self.name!r} knows {vault.knows(self.name)} sites, itself included, and is to add a share of "
                f"noise that would be enough only among {sites}"
            )
        if not deviation >= _LEAST_STEPS * vault.resolution:
            raise PolicyError(
                f"site {self.name!r} is to add a share of the noise with a deviation of {deviation:g}, which a secure "
                f"sum to {vault.resolution:g} would round away: use a finer resolution"
            )
        context.least = max(context.least, math.ceil(sites))

    # What the engine uses.

    def fingerprint(self) -> str:
        """Describe the data's shape and a digest of at most 2047 rows, so that a journal recognises its data.

        The coordinator holds the journal. Where the site has a ledger, its secret keys the digest, so that others can't
        find rows by trying.
        """
        data = self._open
        digest = blake2b(digest_size=8, key=b"" if data.ledger is None else data.ledger.fingerprint_key())
        shapes = []
        for values in data.blocks(slice(None, None, max(1, len(self) // 1024))):
            digest.update(raw_bytes(values))
            shapes.append(f"{'x'.join(map(str, (len(self), *values.shape[1:])))} {values.dtype}")
        digest.update(repr(data.feature_names).encode())
        return f"{', '.join(shapes)} #{digest.hexdigest()}"

    def digest(self) -> bytes:
        """Return a digest of all of the site's data, as they are without any transform."""
        return self._open.digest()

    def through(
        self,
        transform: Callable[[Any], Array],
        *,
        frames: bool = False,
        elementwise: bool = False,
        diagonal: Diagonal | None = None,
    ) -> Site:
        """Return this site as a transform shows it: same rows, ``X`` transformed when it is read.

        `diagonal` are shift and scale (d,) of a transform that is ``(x - shift) / scale``. An `elementwise` one treats
        a row alike wherever in a block it is (`batches_alone`).

        With `frames` the transform receives a data frame, where the site was made of one and it is the first transform.
        """
        inner = self._open.transform
        takes_frame = self._data.transform_takes_frame if inner else frames and self._data.frame is not None
        if not takes_frame and self._data.stream is None and self._data.sparse is None:
            _ = self._data.X  # made here, so that all views share it
        data = self._data.seen()
        if data.ledger is not None and data.ledger.strict:
            transform = hiding_failures(transform)
        data.transform = _after(inner, transform)
        first, rest = data.parts
        elementwise = elementwise and rest is None
        data.parts = (_after(first, transform), None) if elementwise else (first, _after(rest, transform))
        data.transform_takes_frame = takes_frame
        data.diagonal = _composed(data.diagonal, diagonal)
        few = None if self._data.rewritable else self._few_made()
        if few is not None:
            data.kept = (few, transform)
        elif self._data.kept is not None:
            data.kept = (self._data.kept[0], _after(self._data.kept[1], transform))
        return _site(data, None)

    def in_order(self, names: tuple[str, ...]) -> Site:
        """Return this site with its frame's columns in the order of `names`; itself, where these are not its names."""
        own = self.feature_names
        if own is None or own == names or len(set(own)) < len(own) or set(own) != set(names):
            return self
        return _site(self._data.in_order(names), self.begun)

    def only(self, rows: Array) -> Site:
        """Return this site with some of its rows alone, by number: for folds. Such a site charges for no noise."""
        return _site(self._open.only(rows), self.begun)

    def refuse_chosen_rows(self) -> None:
        """Refuse noise for some of the rows: a ledger's guarantee is about all rows of a site."""
        if self._data.chosen_rows:
            raise PolicyError(
                f"site {self.name!r} adds no noise to sums over a fold of its rows, because its ledger accounts for "
                "all of them: leave whole sites out instead (cv='sites')"
            )

    def with_rows(self, X: Array) -> Site:
        """Return this site with the rows that a private transform made in place of its own.

        Target and task are hidden, because the noise on the rows does not cover them.
        """
        return _site(self._open.replaced(X), None)

    def invented(self, ledger: SiteLedger, scale: float) -> Site:
        """Return this site, in the same call, with made-up rows of this scale in place of its own."""
        return _site(self._open.invented(scale), self.context.afresh(ledger))

    def now_runs(self, step: str, payload: Message) -> None:
        """Note that this call runs another step: a secure sum runs the step whose replies it adds."""
        context = self.context
        context.step, context.payload, context.hidden = step, payload, True

    def changes(self) -> Changes:
        """Return what the call did to the site's state."""
        return self.context.state_changes()


def _after(first: Callable[[Any], Array] | None, then: Callable[[Any], Array]) -> Callable[[Any], Array]:
    """Return one transform after the other."""
    return then if first is None else lambda rows: then(first(rows))


def _composed(first: Diagonal | None, second: Diagonal | None) -> Diagonal | None:
    """Return shift and scale of two transforms ``(x - shift) / scale``, one after the other."""
    if first is None or second is None:
        return None
    (m, s), (shift, scale) = first, second
    moved = shift if s is None or shift is None else s * shift
    m = moved if m is None else m if moved is None else m + moved
    return m, scale if s is None else s if scale is None else s * scale


def _site(data: SiteData, context: CallContext | None) -> Site:
    site = object.__new__(Site)
    site._data, site._context, site._make_context = data, context, None
    return site


def generator(seed: int, *names: object) -> np.random.Generator:
    """Make the generator that belongs to `seed` and `names`, independent of all other draws."""
    text = "\0".join([str(seed), *map(str, names)])
    return np.random.default_rng(int.from_bytes(blake2b(text.encode(), digest_size=16).digest(), "little"))


def checked_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return `names` sorted as text; refuse duplicates."""
    ordered = tuple(sorted(names))
    for first, second in pairwise(ordered):
        if first == second:
            raise InputError(f"two sites have the name {first!r}: names must be unique")
    if not ordered:
        raise InputError("a federation needs at least one site")
    return ordered
