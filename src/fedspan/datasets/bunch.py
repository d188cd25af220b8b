"""What every loader, split and generator returns: named arrays with a description."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch as _SklearnBunch

from fedspan.errors import InputError

_TABLES = ("data", "X")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a data set comes from and what its publisher allows."""

    name: str
    publisher: str
    where: str
    terms: str


class Bunch(_SklearnBunch):  # type: ignore[misc]  # scikit-learn ships no type information
    """A dictionary whose keys are also attributes, as scikit-learn's, with ``describe()``.

    Examples
    --------
    >>> import numpy as np
    >>> Bunch(name="two points", X=np.eye(2)).X.shape
    (2, 2)
    """

    def describe(self) -> str:
        """Describe the content in a few lines: size, type, classes, gaps, range, source and terms.

        Returns
        -------
        str
            One fact a line. Only facts that the bunch holds are listed.

        Examples
        --------
        >>> import numpy as np
        >>> print(Bunch(name="two points", X=np.eye(2), target=np.array([0, 1])).describe())
        two points
          rows x features: 2 x 2, float64
          missing values:  none
          values:          0 to 1
          target:          (2,) int64
        """
        lines = [f"  {label + ':':<16} {fact}" for label, fact in self._facts()]
        return "\n".join([str(self.get("name", "unnamed")), *lines])

    def _facts(self) -> Iterator[tuple[str, str]]:
        table = next((self[key] for key in _TABLES if key in self), None)
        if table is not None:
            yield from _table_facts(table)
        counted = "target" in self and "target_names" in self
        if counted:
            counts = np.bincount(self["target"], minlength=len(self["target_names"]))
            yield "classes", _class_facts(self["target_names"], counts)
        if "sites" in self:
            sizes = np.unique(self["sites"], return_counts=True)[1]
            yield "sites", f"{len(sizes):,}, with {sizes.min():,} to {sizes.max():,} rows"
        done = {*_TABLES, "sites", *(["target"] if counted else [])}
        for key, value in self.items():
            if isinstance(value, np.ndarray) and key not in done and not key.endswith("_names"):
                yield key, f"{value.shape} {value.dtype}"
        for key in ("source", "terms"):
            if key in self:
                yield key, self[key]


def _table_facts(table: NDArray[Any]) -> Iterator[tuple[str, str]]:
    rows, columns = table.shape
    yield "rows x features", f"{rows:,} x {columns:,}, {table.dtype}"
    missing = int(np.isnan(table).sum()) if table.dtype.kind == "f" else 0
    yield "missing values", f"{missing:,}" if missing else "none"
    if missing < table.size:
        yield "values", f"{np.nanmin(table):.6g} to {np.nanmax(table):.6g}"


def _class_facts(names: NDArray[np.str_], counts: NDArray[np.intp]) -> str:
    if len(counts) > 2 and len(set(counts.tolist())) == 1:
        return f"{len(counts)}, with {counts[0]:,} rows each"
    return ", ".join(f"{name} ({count:,})" for name, count in zip(names, counts, strict=True))


def dataset(
    source: Source,
    about: str,
    *,
    data: NDArray[Any],
    target: NDArray[Any],
    feature_names: NDArray[np.str_],
    target_names: NDArray[np.str_],
    **extra: Any,
) -> Bunch:
    """Return a data set as a `Bunch`, whose ``DESCR`` is written from the data themselves.

    Parameters
    ----------
    source : Source
        Name, publisher and terms.
    about : str
        What a user should know before using it, traps included.
    data : array of shape (n, d)
        The table.
    target : array of shape (n,)
        Class numbers, ``0 .. len(target_names) - 1``.
    feature_names, target_names : array of str
        Names of the columns and of the classes.
    **extra
        Further arrays under their own names.

    Returns
    -------
    Bunch
        ``target`` is int64: small unsigned labels wrap around when they are subtracted.

    Examples
    --------
    >>> import numpy as np
    >>> here = Source("Toy", "a test", "nowhere", "free")
    >>> names = np.array(["a", "b"])
    >>> toy = dataset(here, "Two rows.", data=np.eye(2), target=np.array([0, 1]), feature_names=names,
    ...               target_names=names)
    >>> toy.DESCR
    'Toy: 2 rows x 2 columns. Two rows. Source: a test. Terms: free'
    """
    labels = target.astype(np.int64)
    if labels.size and not (labels.min() >= 0 and labels.max() < len(target_names)):
        raise InputError(
            f"The labels of {source.name} run from {labels.min()} to {labels.max()}, "
            f"but its {len(target_names)} classes are numbered from 0 to {len(target_names) - 1}."
        )
    rows, columns = data.shape
    return Bunch(
        name=source.name,
        data=data,
        target=labels,
        feature_names=feature_names,
        target_names=target_names,
        **extra,
        source=source.publisher,
        terms=source.terms,
        DESCR=f"{source.name}: {rows:,} rows x {columns:,} columns. {about} "
        f"Source: {source.publisher}. Terms: {source.terms}",
    )
