"""FedTabularEncoder: encode mixed tables of numbers and text as scaled numbers, the same at every site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data

from fedspan.aggregation import Aggregator
from fedspan.base import FedTransformer, Learner, LearnsOn, check_aggregator
from fedspan.checks import as_table
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.federation.site.parameters import Flags, Vector
from fedspan.sums.moments import Moments, deviations, moments
from fedspan.tables.parts import encoder_parameters as parameters
from fedspan.tables.parts.category_union import Categories, category_union, most_frequent
from fedspan.tables.parts.column_kinds import ColumnKinds, column_kinds, heavy_tails
from fedspan.tables.parts.encoding import Encoding, encode, far_out
from fedspan.tables.parts.kept_cells import KeptCells, cells_of, of_moments

Columns = Sequence[str | int]


@dataclass(eq=False, repr=False)
class FedTabularEncoder(FedTransformer, LearnsOn):
    """Encode mixed tables, such as network traffic: logarithms of heavy-tailed numbers, a column per name, scaling.

    It takes raw tables. They may have numbers written as text, ``"-"``, ``"NA"``, empty cells and infinities. Columns
    may be numbers at one site and text or empty at another.

    Parameters
    ----------
    log : "auto", bool or list of columns, default="auto"
        Which columns of numbers become ``sign(x) log(1 + |x|)``. ``"auto"``: those whose kurtosis over all sites is
        above 6 and at least halved by it, and those without any variance, whose tails are unknown.
    categorical : "auto" or list of columns, default="auto"
        Which columns are text. ``"auto"``: those in which, over all sites, at least as many cells are names as are
        numbers. In other columns cells that do not read as numbers count as missing.
    categories : dict of column to list of names, optional
        Fixed names: these columns are text, keep all of these names in this order, and no site sends names of them. A
        mark of missing values (``"-"``) among them stands for all missing cells.
    max_categories : int, default=32
        Most names that a text column keeps, by their number of rows over all sites.
    rare : float, default=0.01
        Share of the rows below which a name is rare. A column with more than `max_categories` names (IP addresses,
        say) does not keep rare ones. Columns of 0 and 1 are scaled as if at least this share of the rows had a 1. A
        name of one row in a million would otherwise be 1000 deviations from the mean, and outweigh all other columns.
        With 0 every column has unit variance.
    min_count : int, default=1
        A name leaves a site only if at least this number of its rows hold it; rarer ones are unknown unless another
        site sends them. With 1 the result does not depend on how the rows are split over sites.
    unknown : {"other", "zero"}, default="other"
        Names that are not kept, or that are new in ``transform``: ``"other"`` gives each text column one more column
        for all of them, ``"zero"`` gives them zeros in all its columns.
    missing : {"indicator", "mean"}, default="indicator"
        A missing cell has the mean of its column (0 after scaling). ``"indicator"`` adds a column that marks missing
        cells, if ``fit`` saw any; in a text column it replaces the mean. In traffic a missing value is often a fact
        about the flow (no answer, no request). If ``fit`` saw columns without missing cells, it also adds a last
        column, ``"(unexpected missing)"``. It is 0 in ``fit``, and later `unexpected_` for each of their cells that is
        missing, infinite or unreadable. Otherwise an unreadable row would look most normal.
    scale : bool, default=True
        Scale to zero mean and unit variance, except for `rare` and the last column of `missing`.
    aggregator : Aggregator, optional
        Combines the sites' means and variances, instead of exact sums, where some sites may be malicious. One vote per
        site, or the median of the sites, then decides which columns are text or heavy-tailed, and which names are kept.
    random_state, verbose : int, optional
        Seed of the run, which draws nothing here; 1 shows a progress bar when the fit takes longer than two seconds.

    Attributes
    ----------
    categories_ : dict of str to tuple of str
        The names kept of each text column, by the column's name (``"x0"``, ... for columns without), sorted.
    log_, missing_ : array of bool (d,)
        Which columns become logarithms, and which have a mark of missing cells.
    unexpected_ : float
        What a cell adds to the column ``"(unexpected missing)"``, 0 without one: ``5 sqrt(D - 1)``, or without `scale`
        5 times the root mean square distance of rows from the mean if that is more. At most 4% of the rows of ``fit``
        are as far, so that detectors notice.
    mean_, scale_ : array (D,)
        Of the encoded columns, missing cells filled; ``scale_`` is ``None`` without `scale`.
    n_samples_seen_ : int
    sites_, run_ : tuple of str, RunRecord

    Notes
    -----
    What leaves a site: the names of its columns; of each column counts of cells by kind and up to ten sums of powers of
    its numbers and their logarithms; the moments of the encoded columns. Of text columns the names leave, unless
    `categories` fixes them or `min_count` forbids it, at most 256 (or 8 `max_categories`) a column and 200 characters
    each. So do the counts of rows for the names of all sites. Only sums are needed, except for the names. Sites learn
    from one another the names and those sums. At most seven calls.

    ``partial_fit`` learns means and deviations. Kinds, logarithms, names and marks of missing cells stay those of the
    first call, and so do the encoded columns. New names are "other". With ``decay=1`` means and deviations are those of
    all rows at once.

    Examples
    --------
    >>> rows = [["tcp", "80", 1e6], ["udp", "53", 300.0], ["tcp", "-", 12.0], ["icmp", "0", 0.0]]
    >>> encoder = FedTabularEncoder(scale=False).fit(rows, sites=["a", "a", "b", "b"])
    >>> encoder.get_feature_names_out().tolist()
    ['x0_icmp', 'x0_tcp', 'x0_udp', 'x0_(other)', 'x1', 'x1_(missing)', 'x2', '(unexpected missing)']
    >>> encoder.transform([["gre", "-", 7.0]])
    array([[ 0.        ,  0.        ,  0.        ,  1.        , 44.33333333, 1.        ,  7.        ,  0.        ]])
    """

    takes_text = True

    _: KW_ONLY
    log: str | bool | Columns = "auto"
    categorical: str | Columns = "auto"
    categories: Mapping[str | int, Sequence[str]] | None = None
    max_categories: int = 32
    rare: float = 0.01
    min_count: int = 1
    unknown: str = "other"
    missing: str = "indicator"
    scale: bool = True
    aggregator: Aggregator | None = None

    def fit(self, X: Any, y: Any = None, *, sites: Any = None) -> Self:
        """Learn kinds, names and moments from a table (with ``sites``) or a federation."""
        parameters.check(self.get_params(deep=False))
        check_aggregator(self.aggregator)
        with self._fitting(X, y, sites) as fed:
            columns = self._columns()
            parameters.refuse_doubles(columns)
            fixed = parameters.fixed_names(self.categories, columns)
            known = parameters.known_kinds(self.categorical, fixed, columns)
            found = column_kinds(fed, known=known, votes=self.aggregator is not None)
            self.log_ = self._logs(fed, found)
            kept, trusted = self._kept_names(fed, found, fixed)
            self.categories_ = dict(zip(np.array(columns)[found.text].tolist(), kept.names, strict=True))
            self.missing_ = found.missing & (self.missing == "indicator")
            # A fixed name may stand for missing cells.
            self.missing_[found.text] &= np.array(["" not in names for names in kept.names], dtype=bool)
            self._learn_moments(trusted, found, kept)
            self.sites_ = trusted.sites
        return self

    def _learner(self, X: Any) -> tuple[bool, Learner | None]:
        if self.aggregator is not None:
            raise InputError("partial_fit adds exact sums up, and takes no aggregator=...: collect rows, then fit")
        first = not hasattr(self, "mean_")
        known = first and self.missing == "indicator"  # a fit knows the gaps
        return first, None if known else self._keep_cells if first else self._learn_on

    def _keep_cells(self, fed: Federation, factor: float = 1.0) -> None:
        self.kept_cells_ = cells_of(self._encoding, fed, self._means_of_cells()).array()

    def _learn_on(self, fed: Federation, factor: float) -> None:
        """Learn from new rows; `factor` multiplies the weight of earlier rows."""
        if not hasattr(self, "kept_cells_"):
            raise InputError("this encoder does not know which cells were missing: begin with partial_fit, not fit")
        new = cells_of(self._encoding, fed, self._means_of_cells())
        kept = KeptCells.of_array(self.kept_cells_).merged(new, factor)
        self.kept_cells_ = kept.array()
        found = kept.moments(self._encoding)
        self.n_samples_seen_ = found.weight
        self._set_units(found, self._encoding.stands_for("value")[: len(found.mean)])
        if self.unexpected_:
            self._add_unexpected()

    def _means_of_cells(self) -> Vector:
        encoding = replace(self._encoding, unexpected=0.0)
        return self.mean_[: len(encoding.stands_for("value"))][~encoding.stands_for("missing")]

    def transform(self, X: Any) -> Any:
        """Encode a table; for a federation, return one whose sites do so locally."""
        check_is_fitted(self)
        options = self._encoding.parameters(self.mean_, self.scale_)
        if isinstance(X, Federation):
            return X.apply(encode, columns=self._names(), **options)
        return encode(self._validated(X), **options)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the encoded columns: ``dur``, ``dur_(missing)``, ``proto_tcp``, ``proto_(other)``, ..."""
        check_is_fitted(self)
        columns = _check_feature_names_in(self, input_features)
        return np.array(self._encoding.labels([str(column) for column in columns]), dtype=object)

    def _marks_of_numbers(self) -> NDArray[np.intp]:
        """Return the places of encoded columns that mark missing numbers; each is behind its number."""
        marks = np.flatnonzero(self._encoding.stands_for("missing"))
        return marks[self._encoding.stands_for("value")[marks - 1]]

    def _logs(self, fed: Federation, found: ColumnKinds) -> Flags:
        """Return which columns (d,) become logarithms."""
        numbers = ~found.text
        if isinstance(self.log, bool | np.bool_):
            return numbers & self.log
        if not parameters.is_auto(self.log):
            return parameters.chosen_logs(self.log, self._columns(), found.text)
        if not numbers.any():
            return numbers
        votes = self.aggregator is not None
        return heavy_tails(fed, wanted=numbers, centre=found.mean, log_centre=found.log_mean, votes=votes)

    def _kept_names(
        self, fed: Federation, found: ColumnKinds, fixed: parameters.FixedNames
    ) -> tuple[Categories, Federation]:
        """Return the names of the text columns, and the federation without sites whose names were refused."""
        text = np.flatnonzero(found.text)
        is_fixed = [j in fixed for j in text.tolist()]
        names, most, votes = dict(fixed), self.max_categories, self.aggregator is not None
        if not all(is_fixed):
            wanted = text[np.logical_not(is_fixed)]
            union, fed = category_union(fed, wanted=wanted, max_categories=most, min_count=self.min_count)
            names.update(zip(wanted.tolist(), union, strict=True))
        if not is_fixed:
            return Categories((), ()), fed
        candidates = tuple(names[j] for j in text.tolist())
        kept = most_frequent(
            fed, wanted=text, candidates=candidates, fixed=is_fixed, max_categories=most, rare=self.rare, votes=votes
        )
        return kept, fed

    def _learn_moments(self, fed: Federation, found: ColumnKinds, kept: Categories) -> None:
        self.unexpected_ = 0.0  # the moments of that column are known: it is 0 by its definition
        encoding = self._encoding
        labels = tuple(encoding.labels(self._columns()))
        if not labels:
            raise InputError("no column is left: every text column has only rare names, and unknown='zero' drops these")
        is_value, fill = encoding.stands_for("value"), np.zeros(len(labels))
        fill[is_value] = np.where(self.log_, found.log_mean, found.mean)[~found.text]
        shares = [share if encoding.other else share[:-1] for share in kept.shares]
        fill[encoding.stands_for("name")] = np.concatenate([*shares, []])
        learned = moments(fed.apply(encode, **encoding.parameters(fill)), labels, self.aggregator)
        self.n_samples_seen_ = learned.n
        self._set_units(learned, is_value)
        self.__dict__.pop("kept_cells_", None)
        if self.aggregator is None and self.missing == "indicator":
            self.kept_cells_ = of_moments(encoding, learned).array()
        shown = self.missing_.copy()
        shown[found.text] |= np.array(["" in names for names in kept.names], dtype=bool)
        if self.missing == "indicator" and not shown.all():
            self.unexpected_ = far_out(np.ones(len(labels)) if self.scale else learned.variance)
            self._add_unexpected()

    def _set_units(self, found: Moments, is_value: Flags) -> None:
        """Set means and scales of the encoded columns."""
        least = np.sqrt(self.rare * (1 - self.rare))
        rarely = ~is_value & (found.variance < least**2)
        self.mean_, self.scale_ = found.mean, np.where(rarely, least, deviations(found)) if self.scale else None

    def _add_unexpected(self) -> None:
        """Add the last column, for unexpected gaps, whose mean and scale are known."""
        self.mean_ = np.append(self.mean_, 0.0)
        self.scale_ = None if self.scale_ is None else np.append(self.scale_, 1.0)

    @property
    def _encoding(self) -> Encoding:
        text = np.isin(self._columns(), list(self.categories_))
        names = tuple(self.categories_.values())
        return Encoding(text, self.log_, self.missing_, names, self.unknown == "other", self.unexpected_)

    def _single_replies(self) -> str | None:
        # Sites send the names of text columns, unless the parameters fix all of them.
        listed = not isinstance(self.categorical, str) and set(self.categorical) <= set(self.categories or {})
        return super()._single_replies() if listed else " without a list `categorical` and `categories` for all of it"

    def _columns(self) -> list[str]:
        names = self._names()
        return [f"x{i}" for i in range(self.n_features_in_)] if names is None else [str(name) for name in names]

    def _validated(self, X: Any, *, reset: bool = False, **checks: Any) -> Any:
        """Return `X` as it is, if it is a data frame, or as an array of numbers or text."""
        if not (hasattr(X, "iloc") and hasattr(X, "columns")):
            return validate_data(self, as_table(X), reset=reset, dtype=None, **{**checks, "ensure_all_finite": False})
        parameters.refuse_doubles(list(X.columns))
        validate_data(self, X, reset=reset, skip_check_array=True)
        if 0 in X.shape:
            raise InputError(f"the table has the shape {X.shape}, and must have at least one row and one column")
        return X

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags
