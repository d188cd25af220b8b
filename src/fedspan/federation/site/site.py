"""A site: a name and private data. Steps run next to it, and only what they return leaves it."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from fedspan.arrays import Array
from fedspan.errors import InputError, PolicyError
from fedspan.federation.site.call_context import CallContext
from fedspan.federation.site.failing_rows import hiding_failures
from fedspan.federation.site.noise_query import SiteLedger
from fedspan.federation.site.row_stream import HeldRows, RowStream, SpooledRows
from fedspan.federation.site.site_data import (
    Diagonal,
    FewNumbers,
    SiteData,
    check_dense,
    copies_on_write,
    raw_bytes,
    read_only,
)
from fedspan.federation.site.state import Changes, State
from fedspan.wire import Message

T = TypeVar("T")

#: What a transform makes of all rows of a streamed table is kept up to this size, read in blocks of this many rows.
_KEPT_BYTES, _STREAMED_ROWS = 2**28, 2**14
#: A transform that makes at most as many columns of twice as many, or more, is applied once.
_FEW_COLUMNS = 4
#: Deviation of a share of the noise, in steps of a secure sum's resolution. From this one on, rounding each part leaves
#: the distribution of their sum unchanged for all purposes.
_LEAST_STEPS = 1024
#: Bytes of sparse rows that are made dense at a time.
_SPARSE_BLOCK = 2**22


class RowBatch(NamedTuple):
    """Some consecutive rows of a site: ``X`` and, where the site has them, ``y``, ``task`` and ``sample_weight``."""

    X: Array
    y: Array | None
    task: Array | None
    sample_weight: Array | None = None


class Site:
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

    __slots__ = ("_context", "_data", "_make_context")

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
        self._context: CallContext | None = None
        self._make_context: tuple[Any, ...] | None = None

    def __len__(self) -> int:
        return self._data.shape[0]

    def __repr__(self) -> str:
        return f"Site({self.name!r}, {'x'.join(map(str, self._data.shape))})"

    # What a step uses.

    @property
    def name(self) -> str:
        """The site's name."""
        return self._data.name

    @property
    def X(self) -> Array:
        """The data, seen through the federation's transforms if there are any."""
        data = self._open
        transform = data.transform
        if transform is None:
            return data.X
        if data.kept is not None:
            few, shows = data.kept
            return self.cached("", lambda: read_only(shows(few.rows(0, len(self))), data.name, "X"))
        if data.sparse is not None:
            return self.cached("", self._dense_rows)
        if data.stream is not None:
            return self.cached("", lambda: self._kept_rows(transform))
        return self.cached("", lambda: read_only(transform(data.rows(slice(None))), data.name, "X"))

    def no_rows(self) -> Array:
        """Return ``X`` without its rows: the number and kind of columns, as transforms show them. No row is read."""
        data = self._data
        if data.transform is None:
            return data.no_rows
        computed = data.computed
        if "no rows" not in computed:
            takes_frame = data.transform_takes_frame
            computed["no rows"] = np.asarray(data.transform(data.frame.iloc[:0] if takes_frame else data.no_rows))
        return cast(Array, computed["no rows"])

    @property
    def sparse(self) -> bool:
        """Whether the site has a sparse matrix; `batches` shows blocks of its rows as dense ones."""
        return self._data.sparse is not None

    @property
    def sparse_rows(self) -> tuple[Any, Array | None, Array | None] | None:
        """A sparse matrix by rows, and the shift and scale of its columns by which transforms show it.

        The rows are ``(x - shift) / scale``. ``None`` where the rows are not sparse, or transforms mix columns.
        """
        data = self._open
        return None if data.sparse is None or data.diagonal is None else (data.sparse, *data.diagonal)

    def _dense_rows(self) -> Array:
        """Return sparse rows as transforms show them, made block by block."""
        data = self._open
        transform = data.transform
        assert transform is not None
        size = max(1, _SPARSE_BLOCK // (8 * max(1, data.shape[1])))
        first = transform(data.rows(slice(0, size)))
        check_dense((len(self), *first.shape[1:]))
        rest = [transform(data.rows(slice(start, start + size))) for start in range(size, len(self), size)]
        return read_only(np.concatenate([first, *rest]), data.name, "X")

    @property
    def y(self) -> Array | None:
        """The target of each row."""
        return self._shown("y", self._open.y)

    @property
    def task(self) -> Array | None:
        """The task of each row."""
        return self._shown("task", self._open.task)

    @property
    def sample_weight(self) -> Array | None:
        """The weight of each row; ``None`` where every row counts once."""
        return self._shown("sample_weight", self._open.sample_weight)

    @property
    def weighted(self) -> bool:
        """Whether rows have weights."""
        return self._data.sample_weight is not None

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The data frame's column names; ``None`` behind a transform."""
        return self._data.feature_names if self._data.transform is None else None

    @property
    def frame(self) -> Any:
        """The data frame that the site was made of, as a copy; ``None`` behind a transform or without one."""
        data = self._open
        return None if data.frame is None or data.transform is not None else data.frame.copy(deep=not copies_on_write())

    def batches(self, rows: int) -> Iterator[RowBatch]:
        """Yield the data in consecutive blocks of `rows` rows, for data larger than memory."""
        if rows < 1:
            raise InputError(f"rows={rows} must be at least 1")
        data = self._open
        if data.stream is not None:
            yield from self._streamed(rows)
            return
        # A frame is in memory anyway, so that it is transformed once. Arrays are transformed block by block.
        transform = None if data.transform_takes_frame else data.transform
        # A step that has looked at the number of columns may find that there are few.
        few = self._few_numbers(transform) if transform is not None and "no rows" in data.computed else None
        n = len(self)
        if 0 < n <= rows and transform is None and data.sparse is None:
            yield RowBatch(self.X, data.y, data.task, data.sample_weight)
            return
        for start in range(0, n, rows):
            part = slice(start, start + rows)
            if few is not None:
                X = few.rows(start, rows)
            elif transform is None:
                X = self.X[part] if data.sparse is None else data.rows(part)
            else:
                X = transform(data.rows(part))
            columns = (data.y, data.task, data.sample_weight)
            yield RowBatch(X, *(None if column is None else column[part] for column in columns))

    def batches_alone(self, rows: int) -> Iterator[RowBatch]:
        """Yield blocks as `batches` does, of rows that do not depend on the rows beside them, not in the last bit.

        A matrix product rounds a row in another way elsewhere in a block, and large parameters make much of that. So
        each row goes through such transforms by itself. Where sums have noise for one row, no row then moves another.
        """
        data = self._open
        first, rest = data.parts
        if rest is None:
            yield from self.batches(rows)
            return
        columns = (data.y, data.task, data.sample_weight)
        raw = (data.rows(slice(at, at + rows)) for at in range(0, len(self), rows))
        at = 0
        for block in raw if data.stream is None else data.stream.batches(rows):
            X = block if first is None else first(block)
            part = slice(at, at + len(block))
            at += len(block)
            alone = [rest(X.iloc[i : i + 1] if hasattr(X, "iloc") else X[i : i + 1]) for i in range(len(X))]
            yield RowBatch(np.concatenate(alone), *(None if column is None else column[part] for column in columns))

    @property
    def X_alone(self) -> Array:
        """The data as `batches_alone` shows them: for noise on rows, or on sums that one replaced row moves."""
        if self.elementwise or not len(self):
            return self.X
        return self.cached("alone", lambda: np.concatenate([batch.X for batch in self.batches_alone(_STREAMED_ROWS)]))

    @property
    def elementwise(self) -> bool:
        """Whether rows are seen as they are, or through transforms that treat each cell by itself."""
        return self._data.parts[1] is None

    def _streamed(self, rows: int) -> Iterator[RowBatch]:
        """Yield blocks of a streamed table; what a transform makes of all rows is kept where it is small."""
        data, at = self._data, 0
        assert data.stream is not None
        columns = (data.y, data.task, data.sample_weight)
        kept = data.computed.get("") if data.transform is not None else None
        few = self._few_numbers(data.transform) if kept is None and data.transform is not None else None
        blocks: Iterator[Array]
        if few is not None:
            blocks = (few.rows(i, rows) for i in range(0, len(self), rows))
        elif kept is not None:
            blocks = (kept[i : i + rows] for i in range(0, len(kept), rows))
        else:
            blocks = (
                data.stream.batches(rows) if data.transform is None else map(data.transform, data.stream.batches(rows))
            )
        for X in blocks:
            part = slice(at, at + len(X))
            at += len(X)
            yield RowBatch(X, *(None if column is None else column[part] for column in columns))
        self._same_number(at)

    def _few_numbers(self, transform: Callable[[Any], Array]) -> FewNumbers | None:
        """Return what a transform makes of all rows, if it makes few numbers of many: a streamed table's in a file.

        Such numbers, scores say, take longer to make than to read again. What is made of them begins with them.
        """
        data, few = self._data, self.no_rows()
        if (
            few.ndim != 2
            or few.dtype.kind != "f"
            or not 0 < few.shape[1] <= min(_FEW_COLUMNS, self._data.shape[1] // 2)
        ):
            return None
        shows = transform if data.kept is None else data.kept[1]

        def blocks() -> Iterator[Array]:
            places = range(0, len(self), _STREAMED_ROWS)
            if data.kept is not None:
                yield from (data.kept[0].rows(start, _STREAMED_ROWS) for start in places)
            elif data.stream is not None:
                yield from data.stream.batches(_STREAMED_ROWS)
            else:
                yield from (data.rows(slice(start, start + _STREAMED_ROWS)) for start in places)

        def make() -> FewNumbers:
            spooled, held, at = SpooledRows(few.dtype, few.shape[1]) if data.stream else None, [few], 0
            for block in blocks():
                made = shows(block)
                held.append(made) if spooled is None else spooled.append(made)
                at += len(block)
            self._same_number(at)
            return spooled or HeldRows(read_only(np.concatenate(held), data.name, "X"))

        return self.cached("few columns", make)

    def _few_made(self) -> FewNumbers | None:
        """Return the few numbers for each row that this view has made already, if it has."""
        few, rows = (self._data.computed.get(key) for key in ("few columns", ""))
        if few is None and rows is not None and rows.ndim == 2 and rows.shape[1] <= _FEW_COLUMNS:
            return HeldRows(rows)
        return cast(FewNumbers | None, few)

    def _same_number(self, found: int) -> None:
        stream = self._data.stream
        if stream is not None and found != len(self):
            raise InputError(
                f"{stream.label} gave {found} rows to site {self.name!r}, and had {len(self)} before: it has changed"
            )

    def _kept_rows(self, transform: Callable[[Any], Array]) -> Array:
        """Return what a transform makes of all rows of a streamed table, if that is small."""
        data, made, size = self._data, [], 0
        assert data.stream is not None
        for block in data.stream.batches(_STREAMED_ROWS):
            made.append(transform(block))
            size += made[-1].nbytes
            if size > _KEPT_BYTES:
                _ = data.X  # refuses, with the memory that all rows take
        return read_only(np.concatenate(made) if made else transform(np.empty(data.shape)), data.name, "X")

    @property
    def streamed(self) -> bool:
        """Whether the rows are read in blocks from a file or a database (`fedspan.stream`)."""
        return self._data.stream is not None

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

    def cached(self, key: str, make: Callable[[], T]) -> T:
        """Return ``make()``, computed once per site: for what the data alone decide, such as a Gram matrix.

        Unlike `state` it is not recorded: after a restart it is computed again.
        """
        computed = self._open.computed
        if key not in computed:
            computed[key] = make()
        return cast(T, computed[key])

    def last_of(self, kind: str, key: object, make: Callable[[], T]) -> T:
        """Return ``make()``, kept for one `key` per `kind`: for what is large."""
        computed = self._open.computed
        before = computed.get(f"last {kind}")
        if before is None or before[0] != key:
            computed.pop(f"last {kind}", None)
            before = computed[f"last {kind}"] = (key, make())
        return cast(T, before[1])

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

    def in_call(self, context: CallContext | None, make: tuple[Any, ...] | None = None) -> Site:
        """Return this site as one call sees it.

        `make`, a function and its arguments, makes the context when a step first needs one: most need none.
        """
        site = _new(Site)
        site._data, site._context, site._make_context = self._data, context, make
        return site

    def invented(self, ledger: SiteLedger, scale: float) -> Site:
        """Return this site, in the same call, with made-up rows of this scale in place of its own."""
        return _site(self._open.invented(scale), self.context.afresh(ledger))

    def now_runs(self, step: str, payload: Message) -> None:
        """Note that this call runs another step: a secure sum runs the step whose replies it adds."""
        context = self.context
        context.step, context.payload, context.hidden = step, payload, True

    @property
    def context(self) -> CallContext:
        """The call that this site serves."""
        found = self.begun
        if found is None:
            raise InputError(f"site {self.name!r} has state and rng only inside a step")
        return found

    @property
    def begun(self) -> CallContext | None:
        """The call that this site serves, if it serves one."""
        if self._context is None and self._make_context is not None:
            make, *arguments = self._make_context
            self._context = make(*arguments)
        return self._context

    @property
    def used(self) -> CallContext | None:
        """The call, if its step needed more than the data: a generator, a state, a ledger."""
        return self._context

    def changes(self) -> Changes:
        """Return what the call did to the site's state."""
        return self.context.state_changes()

    @property
    def _open(self) -> SiteData:
        """The data, to be read: under a strict ledger not before the step has charged, by a public step never."""
        if self._context is not None and self._context.gate is not None:
            self._context.gate(self)
        return self._data

    def _shown(self, what: str, column: Array | None) -> Array | None:
        if what in self._data.hidden:
            raise PolicyError(
                f"site {self.name!r} does not show its {what} beside noisy rows: the noise is on X alone, and would "
                f"not cover it; use the federation without noise where {what} may leave the sites"
            )
        return column


_new = object.__new__


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
    site = _new(Site)
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
