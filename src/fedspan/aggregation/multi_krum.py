"""Multi-Krum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from numpy.typing import ArrayLike

from fedspan.aggregation.base import Aggregate, Given
from fedspan.aggregation.krum import chosen
from fedspan.checks import whole_number
from fedspan.errors import InputError


@dataclass(frozen=True)
class MultiKrum:
    """The mean of the `m` values with the best Krum scores.

    At most ``L - f`` may be chosen: then none of them scores worse than the worst honest value, so that a bad one
    among them is near to honest ones. (The paper lets m be anything up to L, where it is the mean of all.)

    Of values with the same score that compete for fewer places, all are taken with the same part. Weights do not enter
    the scores; the chosen values are averaged with them.

    Trust is shared by the chosen values.

    Parameters
    ----------
    f : int
        How many sites may be bad. At least ``2 f + 3`` values must come.
    m : int
        How many to average. At least ``f + m`` values must come. 1 is `Krum`.

    References
    ----------
    P. Blanchard, E. M. El Mhamdi, R. Guerraoui and J. Stainer, "Machine learning with adversaries: Byzantine tolerant
    gradient descent", NeurIPS 2017.

    Examples
    --------
    >>> MultiKrum(f=1, m=2)([0.0, 1.0, 1.5, 3.0, 1e9])
    Aggregate(value=array(1.25), weights=array([0. , 0.5, 0.5, 0. , 0. ]), certificate=None)
    """

    f: int
    m: int
    believes_reported_weights: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "f", whole_number("f", self.f, 0))
        object.__setattr__(self, "m", whole_number("m", self.m, 1))

    def __call__(self, values: ArrayLike, weights: ArrayLike | None = None) -> Aggregate:
        """Combine `values` (L, ...) with the optional `weights` (L,)."""
        given = Given.of(values, weights)
        count = len(given.points)
        if self.m > count - self.f:
            raise InputError(
                f"m={self.m} is too many for f={self.f} and the {count} values that came: at most L - f may be chosen, "
                "or bad values would be among them"
            )
        return given.mixed(chosen(given.points, self.f, self.m) * given.shares[:, None])
