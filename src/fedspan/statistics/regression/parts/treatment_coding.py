"""Columns of categories in a regression: one column for each name but the first, as R codes factors."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from fedspan.arrays import Array
from fedspan.base import FedEstimator
from fedspan.checks import as_table, dict_of, frames_inside, list_of
from fedspan.errors import InputError
from fedspan.federation import Federation, transform
from fedspan.sums.columns import column_number
from fedspan.tables.parts.category_union import Lines, Naturals, category_union, packed, unpacked
from fedspan.tables.parts.cells import column
from fedspan.tables.parts.cells import names as names_of

MOST_CATEGORIES = 100


@transform("regression.treatment", frames=True, elementwise=True)
def treatment_coded(X: Any, wanted: Naturals, names: Lines, sizes: Naturals) -> Array:
    r"""Return rows of numbers; a column of categories becomes 0 and 1 for each of its names but the first.

    A cell that is missing, or holds none of the names, is NaN in all of them.

    Examples
    --------
    >>> rows = np.array([["f", 1.5], ["m", 2.0], ["?", 3.0]], dtype=object)
    >>> treatment_coded(rows, np.array([0]), "f\nm", np.array([2]))
    array([[0. , 1.5],
           [1. , 2. ],
           [nan, 3. ]])
    """
    known = dict(zip(wanted.tolist(), unpacked(names, sizes), strict=True))
    parts = [np.zeros((len(X), 0))]
    for j in range(X.shape[1]):
        cells = column(X, j)
        if j not in known:
            parts.append(_numbers(cells, j)[:, None])
            continue
        texts, codes = names_of(cells)
        place = {text: k for k, text in enumerate(known[j])}
        at = np.array([place.get(text, -1) for text in texts], dtype=np.int64)[codes]
        coded = (at[:, None] == np.arange(1, len(known[j]))).astype(np.float64)
        coded[at < 0] = np.nan
        parts.append(coded)
    return np.hstack(parts)


def _numbers(cells: Any, j: int) -> Array:
    try:
        if hasattr(cells, "to_numpy"):
            return np.asarray(cells.to_numpy(dtype=np.float64, na_value=np.nan))
        return np.asarray(cells, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"column number {j} holds text: name it in categorical, or leave it out") from None


class TreatmentCoding(FedEstimator):
    """Base of models that take columns of categories, which `categorical` names."""

    categorical: Sequence[int | str] | None
    categories: dict[str, Sequence[str]] | None
    missing: str
    categorical_columns_: NDArray[np.int64]
    categories_: tuple[tuple[str, ...], ...]
    coef_: Array
    intercept_: Any
    dependent_columns_: NDArray[np.int64]
    _way_out_of_text = "name it in categorical=[...]"

    @property
    def takes_text(self) -> bool:  # type: ignore[override]
        """Whether tables may hold text, or missing cells."""
        return self.categorical is not None or self.missing == "drop"

    def coefficient_names(self, names: Sequence[str] | None = None) -> list[str]:
        """Return the names of the coefficients; `names` are those of the columns, if the model does not know them."""
        given = self._names() if names is None else names
        known = [f"x{j + 1}" for j in range(self.n_features_in_)] if given is None else [str(name) for name in given]
        found: list[str] = []
        for j, name in enumerate(known):
            kept = self._kept().get(j)
            found += [name] if kept is None else [f"{name}[T.{one}]" for one in kept[1:]]
        return found

    # Inside.

    def _warn_of_dependent(self, names: Sequence[str]) -> None:
        if len(self.dependent_columns_):
            which = ", ".join(names[j] for j in self.dependent_columns_[:10])
            warnings.warn(
                f"these columns are constant or depend on the ones before them, and have the coefficient 0: {which}; "
                "leave them out, unless an encoder made them",
                stacklevel=frames_inside(),
            )

    def _column(self, what: str, value: Any) -> int:
        """Return the number of a column that is given by its name or number."""
        return column_number(what, value, self._names(), self.n_features_in_)

    def _kept(self) -> dict[int, tuple[str, ...]]:
        """Return the categories by number of column."""
        return dict(zip(self.categorical_columns_.tolist(), self.categories_, strict=True))

    def _coded(self, fed: Federation) -> Federation:
        """Find the categories, and return the federation whose sites code them."""
        columns = [] if self.categorical is None else list_of("categorical", self.categorical, "columns")
        wanted = sorted({self._column("categorical", one) for one in columns})
        self.categorical_columns_, self.categories_ = np.array(wanted, dtype=np.int64), ()
        given = {
            self._column("categories", key): tuple(map(str, list_of(f"categories[{key!r}]", value, "names")))
            for key, value in dict_of("categories", self.categories, "columns and their names").items()
        }
        if not set(given) <= set(wanted):
            raise InputError(f"categories={self.categories!r} names a column that categorical does not")
        if not wanted:
            return fed
        left = np.array([j for j in wanted if j not in given], dtype=np.int64)
        if len(left):
            fed.need_single_replies("categorical=..., without categories={...} for all of its columns,")
            found, fed = category_union(fed, wanted=left, max_categories=MOST_CATEGORIES)
            given |= dict(zip(left.tolist(), ([name for name in one if name] for one in found), strict=True))
        for j, kept in given.items():
            if not 0 < len(kept) <= MOST_CATEGORIES:
                raise InputError(f"column number {j} has {len(kept)} categories, and must have 1 to {MOST_CATEGORIES}")
        self.categories_ = tuple(tuple(given[j]) for j in wanted)
        return fed.apply(treatment_coded, columns=self._names(), **self._coding())

    def _coding(self) -> dict[str, Any]:
        return {"wanted": self.categorical_columns_, **packed(self.categories_)}

    def complete_rows(self, X: Any) -> NDArray[np.bool_]:
        """Return which rows have a number, or a category that the model was fitted on, in every column."""
        return np.asarray(np.isfinite(treatment_coded(X, **self._coding())).all(axis=1))

    def _coded_rows(self, X: Any) -> NDArray[np.float64]:
        """Return the rows of a table as the model sees them."""
        rows = self._validated(X)
        if not self.categories_:
            return np.asarray(rows, dtype=np.float64)
        coded = treatment_coded(rows, **self._coding())
        bad = ~np.isfinite(coded)
        if bad.any():
            names = self.coefficient_names()
            which = ", ".join(names[j] for j in np.flatnonzero(bad.any(axis=0)).tolist())
            raise InputError(
                "X has missing values, or categories that the model was not fitted on, in "
                f"{np.count_nonzero(bad.any(axis=1))} rows: leave these rows out, as X[model.complete_rows(X)] does "
                f"(coefficients: {which})"
            )
        return np.asarray(coded)

    def _validated(self, X: Any, *, reset: bool = False, **checks: Any) -> Any:
        if self.categorical is None or isinstance(X, Federation):
            return super()._validated(X, reset=reset, **checks)
        if hasattr(X, "iloc") and hasattr(X, "columns"):
            validate_data(self, X, reset=reset, skip_check_array=True)
            return X
        return validate_data(self, as_table(X), reset=reset, dtype=None, **{**checks, "ensure_all_finite": False})
