"""Results that hold the record of their run, and that a terminal and a notebook show as their data frame."""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib.util import find_spec
from typing import TYPE_CHECKING, Self

from fedspan.federation import Federation

if TYPE_CHECKING:
    import pandas as pd


class OfRun:
    """A frozen result with the record of its run, ``run_``."""

    def of(self, run: Federation) -> Self:
        """Keep the record of the run that gave this result, and return the result."""
        object.__setattr__(self, "run_", run.record)
        return self


class ShownFrame(OfRun, ABC):
    """A result with `to_frame`, which is what Python prints of it."""

    @abstractmethod
    def to_frame(self) -> pd.DataFrame:
        """Return the result as a data frame."""

    def __repr__(self) -> str:
        if find_spec("pandas") is None:
            return f"<{type(self).__name__}: a table, once pandas is installed>"
        return str(self.to_frame().to_string(max_rows=60, float_format=lambda value: f"{value:.6g}"))

    def _repr_html_(self) -> str:
        return str(self.to_frame().to_html(max_rows=60, float_format=lambda value: f"{value:.6g}"))
