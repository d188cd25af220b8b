"""What a federation declares of its secure sums: how many sites must stay, and which numbers can be added up."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedspan.errors import InputError, PolicyError
from fedspan.secure_sum.sum_fixed_point import MOST_SITES, FixedPoint


@dataclass(frozen=True)
class SecureSum:
    """The settings of a secure sum, for ``Policy(secure_sum=...)``.

    Parameters
    ----------
    threshold : float, default=2/3
        The share of the sites asked that must stay to the end, rounded up; above 1/2 and at most 1. So many sites
        together can uncover the others, so fewer never can.
    least : int, default=2
        Fewest sites whose sum may be uncovered, however few are asked. Sites refuse smaller sums, but cannot see to the
        difference of two: only with the number of all sites here nobody learns a part from the sums over two sets.
    largest : float, default=2.0**84
        The largest magnitude of a real number of one site, about 1.9e25. A sum in which a site has a larger one is
        refused, and nobody learns which site it was. Whole numbers may have up to 2**53 - 1, whatever is set here.
    resolution : float, default=2.0**-96
        Real numbers are rounded to multiples of this (of the next power of two below it), about 1.3e-29.

    Examples
    --------
    >>> SecureSum().needed(10), SecureSum(threshold=0.9).needed(10)
    (7, 9)
    >>> SecureSum().numbers.words, SecureSum(largest=1e6, resolution=1e-9).numbers.words
    (3, 1)
    """

    threshold: float = 2 / 3
    least: int = 2
    largest: float = 2.0**84
    resolution: float = 2.0**-96

    def __post_init__(self) -> None:
        for name in ("threshold", "largest", "resolution"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                raise PolicyError(f"{name}={value!r} of a secure sum must be a finite number above 0")
        if not 0.5 < self.threshold <= 1:
            raise PolicyError(f"threshold={self.threshold!r} of a secure sum must be above 0.5 and at most 1.0")
        if isinstance(self.least, bool) or not isinstance(self.least, int) or not 2 <= self.least <= MOST_SITES:
            raise PolicyError(f"least={self.least!r} of a secure sum must be a whole number from 2 to {MOST_SITES}")
        try:
            self.numbers  # noqa: B018
        except InputError:
            raise PolicyError(
                f"largest={self.largest!r} and resolution={self.resolution!r} are too far apart for a secure sum"
            ) from None

    @property
    def numbers(self) -> FixedPoint:
        """The numbers that can be added up."""
        return FixedPoint(float(self.largest), -math.floor(math.log2(self.resolution)))

    def needed(self, asked: int) -> int:
        """Return how many of `asked` sites must stay to the end: more than half of them, and at least `least`."""
        # Two thirds of a count that three divides stay whole, although 2/3 is rounded.
        return max(self.least, asked // 2 + 1, math.ceil(round(self.threshold * asked, 9)))
