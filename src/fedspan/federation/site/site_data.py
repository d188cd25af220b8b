"""What a site holds: arrays, memory maps or data frames, and how they are read."""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from hashlib import blake2b
from mmap import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Array
from fedspan.checks import held
from fedspan.errors import InputError
from fedspan.federation.site.noise_query import SiteLedger
from fedspan.federation.site.row_stream import HeldRows, RowStream, SpooledRows
from fedspan.wire import is_plain_text

Diagonal = tuple[Array | None, Array | None]
FewNumbers = SpooledRows | HeldRows

_DIGEST_ROWS = 4096
_INVENTED_ROWS = 2**16
#: A site with a ledger copies what it is given, and memory-mapped files up to this size.
_COPIED_BYTES = 2**30
#: Sparse rows of at most this size become a dense table where a step needs one.
MOST_DENSE_BYTES = 2**28


class SiteData:
    """What all copies of a site share; `computed` is what steps keep with `Site.cached`.

    The noise of a reply is made from a digest of the data. If the data changed without the digest, two replies with the
    same noise would reveal their difference. So a site with a ledger copies all that it is given. It does not copy
    memory-mapped files above 1 GiB. It digests them again for every query that is charged, which takes some 2 to 4
    seconds for each GiB. They must not be rewritten during a call.
    """

    def __init__(
        self, name: str, X: Any, y: Any, task: Any, ledger: SiteLedger | None = None, sample_weight: Any = None
    ) -> None:
        if not isinstance(name, str) or not name or not is_plain_text(name):
            raise InputError(f"a site's name must be a non-empty string of plain text, not {name!r}")
        self.name = name
        self.ledger = ledger
        self._rewritable = False  # whether the data are a file that others may write to
        self.frame: Any = None
        self.sparse: Any = None  # a matrix of scipy, by rows
        #: What transforms have made of sparse rows so far, (x - shift) / scale; None where it is something else.
        self.diagonal: Diagonal | None = (None, None)
        self.feature_names: tuple[str, ...] | None = None
        self.stream: RowStream | None = None
        if isinstance(X, RowStream):
            if ledger is not None:
                raise InputError(f"site {name!r}: a ledger needs a digest of all rows, and {X.label} is streamed")
            self.stream, self.feature_names = X, X.feature_names
        X = as_pandas(X)
        if hasattr(X, "iloc") and hasattr(X, "columns"):
            self.feature_names = tuple(str(column) for column in X.columns)
            if len(set(self.feature_names)) < len(self.feature_names):
                twice = [one for one in self.feature_names if self.feature_names.count(one) > 1]
                raise InputError(f"site {name!r}: X has two columns named {twice[0]!r}: rename one of them")
            # Later writes to the caller's frame do not reach the site, nor with a ledger those to its arrays.
            self.frame = X.copy(deep=ledger is not None or not copies_on_write())
        if hasattr(X, "tocsr"):
            self.sparse = _by_rows(X, name, ledger)
        elif self.frame is None and self.stream is None:
            self.X = self._own(X, "X")
        elsewhere = self.frame is not None or self.stream is not None or self.sparse is not None
        self.shape: tuple[int, ...] = X.shape if elsewhere else self.X.shape
        if not self.shape:
            raise InputError(f"site {name!r}: X must have rows, and is a single value")
        self.y = self._column(y, "y")
        self.task = self._column(task, "task")
        self.sample_weight = self._weights(sample_weight)
        self._digest: list[bytes] = []  # of all of the data, made when it is needed and shared by all views
        self.transform: Callable[[Any], Array] | None = None
        self.transform_takes_frame = False
        #: The transforms up to the first that is not elementwise, and all from that one on; together, `transform`.
        self.parts: tuple[Callable[[Any], Array] | None, Callable[[Any], Array] | None] = (None, None)
        #: What an earlier view keeps of the rows, a few numbers for each, and what shows these rows as this view does.
        self.kept: tuple[FewNumbers, Callable[[Any], Array]] | None = None
        self.chosen_rows = False  # whether these are some of the site's rows, which a request has chosen
        self.hidden: tuple[str, ...] = ()  # columns that noise on the rows does not cover
        self._computed: tuple[bytes, dict[str, Any]] = (b"", {})

    @cached_property
    def X(self) -> Array:
        """The values. Those of a frame are made when first needed: they may double its memory."""
        if self.sparse is not None:
            check_dense(self.shape)
            return read_only(self.sparse.toarray(), self.name, "X")
        if self.stream is not None:
            n, d = self.stream.shape
            raise InputError(
                f"the rows of site {self.name!r} are streamed from {self.stream.label}, and this needs all of them in "
                f"memory, {8 * n * d / 2**30:.3g} GiB: use a method by sums, or load the rows"
            )
        return read_only(_frame_values(self.frame), self.name, "X")

    @property
    def no_rows(self) -> Array:
        """The values without their rows, (0, ...): how many columns there are, and of which kind."""
        if self.frame is not None:
            return _frame_values(self.frame.iloc[:0])
        if self.sparse is None and self.stream is None:
            return self.X[:0]
        if self.stream is not None:
            return np.empty((0, *self.shape[1:]), dtype=object if self.stream.text else np.float64)
        return np.empty((0, *self.shape[1:]), dtype=self.sparse.dtype)

    def values(self, part: slice) -> Array:
        """Return the values of some rows, without those of the others."""
        if self.sparse is not None:
            return np.asarray(self.sparse[part].toarray())
        if self.stream is not None:
            return np.frombuffer(self.stream.stamp().encode(), dtype=np.uint8)[:, None]
        return self.X[part] if self.frame is None else _frame_values(self.frame.iloc[part])

    def rows(self, part: slice) -> Any:
        """Return the rows that the transform receives: of the data frame, if it takes one, or of the values."""
        if self.sparse is not None:
            return self.values(part)
        return self.frame.iloc[part] if self.transform_takes_frame else self.X[part]

    def blocks(self, part: slice) -> Iterator[Array]:
        """Yield some rows of X, y, task and weights."""
        if self.sparse is None:
            yield self.values(part)
        else:
            some = self.sparse[part]
            yield from (some.data, some.indices, some.indptr)
        yield from (column[part] for column in (self.y, self.task, self.sample_weight) if column is not None)

    @property
    def computed(self) -> dict[str, Any]:
        """What steps computed from the data; empty again after a file was rewritten."""
        digest = self._digest[0] if self._rewritable and self._digest else b""
        if self._computed[0] != digest:
            self._computed = (digest, {})
        return self._computed[1]

    def digest(self) -> bytes:
        """Return a digest (32 bytes) of all of the site's data, as they are without any transform."""
        if self._rewritable or not self._digest:
            digest = blake2b(repr((self.name, self.shape, self.feature_names)).encode(), digest_size=32)
            for start in range(0, self.shape[0], _DIGEST_ROWS):
                for values in self.blocks(slice(start, start + _DIGEST_ROWS)):
                    digest.update(f"{values.dtype} {values.shape};".encode() + raw_bytes(values))
            self._digest[:] = [digest.digest()]
        return self._digest[0]

    @property
    def rewritable(self) -> bool:
        """Whether the data are a file that others may write to."""
        return self._rewritable

    def replaced(self, X: Array) -> SiteData:
        """Return these data with other rows in place of everything: frame, transform, target and task included."""
        data = self.seen()
        data._digest, data._rewritable = self._digest[:1] or [self.digest()], False  # of what these rows were made of
        data.X, data.frame, data.feature_names = read_only(X, self.name, "X"), None, None
        data.sparse = None
        data.stream = None
        data.shape = X.shape
        data.transform, data.transform_takes_frame, data.parts = None, False, (None, None)
        columns = ("y", "task", "sample_weight")
        data.hidden = tuple(what for what in columns if getattr(self, what) is not None) + self.hidden
        data.y = data.task = data.sample_weight = None
        return data

    def invented(self, scale: float) -> SiteData:
        """Return made-up data of the same shapes and kinds, seen through the same transforms."""
        data = self.seen()
        data._digest, data._rewritable, data.stream = [], False, None
        if self.stream is not None:
            data.X = invented_values(np.dtype(np.float64), self.shape, scale)
        elif hasattr(self.frame, "invented"):
            data.frame = self.frame.invented(scale)
        elif self.frame is not None:
            vars(data).pop("X", None)
            data.frame = self.frame.copy()
            for k, dtype in enumerate(self.frame.dtypes):
                plain = np.dtype(getattr(dtype, "kind", "O") if getattr(dtype, "kind", "O") in "buif" else "O")
                data.frame.isetitem(k, invented_values(plain, (self.shape[0],), scale))
        else:
            dtype = self.X.dtype if self.sparse is None else self.sparse.dtype
            data.X, data.sparse = invented_values(dtype, self.shape, scale), None
        data.y, data.task = (
            None if column is None else invented_values(column.dtype, column.shape, scale)
            for column in (self.y, self.task)
        )
        if self.sample_weight is not None:
            data.sample_weight = read_only(np.ones(self.shape[0]), "", "sample_weight")
        return data

    def only(self, rows: NDArray[np.intp]) -> SiteData:
        """Return these data with some of the rows alone, by number, seen through the same transforms."""
        data = self.seen()
        if self.stream is not None:
            raise InputError(f"the rows of site {self.name!r} are streamed, and folds need them in memory")
        if self.frame is not None:
            data.frame = self.frame.iloc[rows]
            vars(data).pop("X", None)
        elif self.sparse is not None:
            data.sparse = self.sparse[rows]
            vars(data).pop("X", None)
        else:
            data.X = read_only(self.X[rows], self.name, "X")
        data.shape = (len(rows), *self.shape[1:])
        columns = (self.y, self.task, self.sample_weight)
        data.y, data.task, data.sample_weight = (None if column is None else column[rows] for column in columns)
        data._digest, data._rewritable, data.chosen_rows = [], False, True
        return data

    def in_order(self, names: tuple[str, ...]) -> SiteData:
        """Return these data with the frame's columns in the order of `names`, which are its own names."""
        data = self.seen()
        if self.stream is not None:
            data.stream, data.feature_names = self.stream.in_order(names), names
            return data
        data.frame = self.frame.iloc[:, [self.feature_names.index(name) for name in names]]  # type: ignore[union-attr]
        data.feature_names, data._digest = names, []
        vars(data).pop("X", None)
        return data

    def seen(self) -> SiteData:
        """Return these data for another view of them, which computes for itself."""
        data = copy.copy(self)
        data._computed, data.kept = (b"", {}), None
        return data

    def _own(self, values: Any, what: str) -> Array:
        """Return values as a read-only array, at a site with a ledger as a copy."""
        array = read_only(values, self.name, what)
        if self.ledger is None:
            return array
        if array.nbytes > _COPIED_BYTES and _is_mapped(values):
            self._rewritable = True
            return array
        return read_only(np.array(array), self.name, what)

    def _column(self, values: Any, what: str) -> Array | None:
        if values is None:
            return None
        column = self._own(values, what)
        if column.ndim == 0 or len(column) != self.shape[0]:
            raise InputError(f"site {self.name!r}: {what} has shape {column.shape}, but X has {self.shape[0]} rows")
        return column

    def _weights(self, values: Any) -> NDArray[np.float64] | None:
        """Return the weights of the rows: finite numbers of at least 0."""
        if values is None:
            return None
        try:
            given = np.asarray(held("sample_weight", values), dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(f"site {self.name!r}: sample_weight must be one number for each row") from None
        weights = self._column(given, "sample_weight")
        if weights is None or weights.ndim != 1:
            raise InputError(f"site {self.name!r}: sample_weight has shape {given.shape}, and must be one number a row")
        if not np.isfinite(weights).all() or (weights < 0).any():
            raise InputError(f"site {self.name!r}: sample_weight holds numbers below 0, NaN or infinity")
        return weights


def invented_values(dtype: np.dtype[Any], shape: tuple[int, ...], scale: float) -> Array:
    """Return made-up values, the same every time: normal ones, zeros and ones, or two words."""
    rows = min(shape[0], _INVENTED_ROWS)
    normal = scale * np.random.default_rng(0).normal(size=(rows, *shape[1:]))
    some: Array = normal if dtype.kind in "fc" else normal > 0
    if dtype.kind in "OUS":
        some = np.where(some, "a", "b")
    some = some.astype(dtype)
    # Of many rows the first stands for all: they take no memory.
    return read_only(some if rows == shape[0] else np.broadcast_to(some[:1], shape), "", "X")


def raw_bytes(values: Array) -> bytes:
    """Return what a digest takes of an array."""
    return repr(values.tolist()).encode() if values.dtype == object else values.tobytes()


def _is_mapped(values: Any) -> bool:
    """Return whether an array lies in a memory-mapped file."""
    while isinstance(values, np.ndarray):
        values = values.base
    return isinstance(values, mmap)


def _by_rows(X: Any, name: str, ledger: SiteLedger | None) -> Any:
    """Return a sparse matrix by rows, each entry once."""
    if ledger is not None:
        raise InputError(
            f"site {name!r}: X is a sparse matrix, and a site with a ledger takes dense tables only: X.toarray()"
        )
    if X.dtype.kind not in "buif" or X.ndim != 2:
        raise InputError(f"site {name!r}: X is a sparse matrix of {X.dtype}, and must be a table of real numbers")
    rows = X.tocsr()
    if not rows.has_canonical_format:
        rows = rows.copy() if rows is X else rows
        rows.sum_duplicates()
    return rows


def check_dense(shape: tuple[int, ...]) -> None:
    """Refuse to make a large dense table of sparse rows."""
    if 8 * math.prod(shape) > MOST_DENSE_BYTES:
        raise InputError(
            f"X is sparse, and this step would make a dense table of {8 * math.prod(shape):,} bytes: "
            "FedStandardScaler, FedKMeans and FedPCA(solver='subspace_iteration') need none; for others reduce the "
            "columns first"
        )


def copies_on_write() -> bool:
    """Return whether a shallow copy of a frame keeps its values when that is written to: pandas 3, or an option."""
    pandas = sys.modules.get("pandas")
    if pandas is None or int(pandas.__version__.partition(".")[0]) >= 3:
        return True
    return pandas.options.mode.copy_on_write is True


def _frame_values(frame: Any) -> Array:
    """Return a data frame's values: numbers where all columns are, also those of pandas' nullable types."""
    values: Array = frame.to_numpy()
    if values.dtype == object and all(getattr(dtype, "kind", "O") in "buif" for dtype in frame.dtypes):
        values = frame.to_numpy(dtype=np.float64, na_value=np.nan)
    return values


def as_pandas(X: Any) -> Any:
    """Return a table of polars or pyarrow as a pandas frame, so that its names stay; anything else as `held` does."""
    X = held("X", X)
    if hasattr(X, "tocsr") or hasattr(X, "iloc") or isinstance(X, np.ndarray | RowStream):
        return X
    if not hasattr(X, "to_pandas"):
        return X
    try:
        return X.to_pandas()
    except ImportError:
        kind = f"{type(X).__module__.partition('.')[0]}.{type(X).__name__}"
        raise InputError(
            f"X is a {kind}, which needs pandas and pyarrow here: pip install '.[tables]' in a checkout"
        ) from None


def read_only(values: Any, site: str, what: str) -> Array:
    """Return `values` as an array that can't be written to."""
    if hasattr(values, "tocsr"):
        raise InputError(f"site {site!r}: {what} is a sparse matrix, and only X may be one: give a dense array")
    values = held(what, values)
    array: Array = values if isinstance(values, np.ndarray) else np.asarray(values)
    view = array.view()
    view.flags.writeable = False
    return view
