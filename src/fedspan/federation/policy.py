"""The rules for calls: deadlines, quorum, sizes, and the settings of secure sums."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from fedspan.errors import PolicyError
from fedspan.wire import DEFAULT_MAX_BYTES

#: The most sites that a secure sum can add up, and the most bits of one of its numbers.
MOST_SITES, MOST_BITS = 1024, 512


@dataclass(frozen=True)
class SecureSum:
    """The settings of a secure sum, for ``Policy(secure_sum=...)``.

    They are the federation's: embedded sites have them from the policy, others from their kits. A site refuses a sum
    with a lower `threshold` or `least`, or another range.

    Parameters
    ----------
    threshold : float, default=2/3
        The share of the requested sites that must stay to the end, rounded up; above 1/2 and at most 1. Fewer colluding
        sites can't uncover the others' parts.
    least : int, default=2
        The fewest sites of a sum, and the fewest by which the sets of two sums of the same query in one run may differ.
        Sites refuse smaller ones.
    largest : float, default=2.0**84
        The largest magnitude of a real number of one site, about 1.9e25. A larger one spoils the sum without naming the
        site. Whole numbers may always have up to 2**53 - 1. Of a range of more than 64 bits a total has the leading 56
        bits of the sites' numbers; random bits hide what is below.
    resolution : float, default=2.0**-96
        Real numbers are rounded to multiples of this (of the next power of two below it), about 1.3e-29.

    Examples
    --------
    >>> SecureSum().needed(10), SecureSum(threshold=0.9).needed(10)
    (7, 9)
    """

    threshold: float = 2 / 3
    least: int = 2
    largest: float = 2.0**84
    resolution: float = 2.0**-96

    def __post_init__(self) -> None:
        for name in ("threshold", "largest", "resolution"):
            value = getattr(self, name)
            if not _is_number(value) or not 0 < value < math.inf:
                raise PolicyError(f"{name}={value!r} of a secure sum must be a finite number above 0")
        if not 0.5 < self.threshold <= 1:
            raise PolicyError(f"threshold={self.threshold!r} of a secure sum must be above 0.5 and at most 1.0")
        if isinstance(self.least, bool) or not isinstance(self.least, int) or not 2 <= self.least <= MOST_SITES:
            raise PolicyError(f"least={self.least!r} of a secure sum must be a whole number from 2 to {MOST_SITES}")
        bits = math.frexp(self.largest)[1] + self.fraction_bits + math.log2(MOST_SITES) + 1
        if bits > MOST_BITS or abs(self.fraction_bits) > MOST_BITS:
            raise PolicyError(
                f"largest={self.largest!r} and resolution={self.resolution!r} are too far apart for a secure sum"
            )

    @property
    def fraction_bits(self) -> int:
        """Binary places behind the point."""
        return -math.floor(math.log2(self.resolution))

    def needed(self, asked: int) -> int:
        """Return how many of `asked` sites must stay to the end: more than half of them, and at least `least`."""
        # Round first: 2/3 is not exact, and 2/3 of 9 must be 6.
        return max(self.least, asked // 2 + 1, math.ceil(round(self.threshold * asked, 9)))

    def within(self, federation: SecureSum) -> SecureSum:
        """Return these settings with at least the threshold and the number of sites that a federation demands.

        The default settings become the federation's own.
        """
        if self == SecureSum():
            return federation
        threshold, least = max(self.threshold, federation.threshold), max(self.least, federation.least)
        return replace(self, threshold=threshold, least=least)


@dataclass(frozen=True)
class Policy:
    """The rules for every call of a run. A reply that breaks one is a failed site, with the reason in the record.

    Parameters
    ----------
    deadline : float, default=60.0
        Seconds that a site may take for one call. Embedded sites that run one after the other (``n_jobs=1``) are
        interrupted only by a deadline below a minute. A longer one is checked when the step is done.
    quorum : "majority", "all", int or float, default="majority"
        How many of the requested sites must answer, or the run stops. A float in (0, 1] is a fraction, rounded up. An
        integer is a count: where a call goes to fewer sites than that, all of them must answer.
    max_bytes : int, default=256 MiB
        The largest message, each way.
    finite : bool, default=True
        Refuse replies that hold NaN or infinity.
    secure_sum : bool or SecureSum, default=False
        Carry ``fed.sum`` and ``fed.mean`` by a secure sum, so that the coordinator sees no single site's part; ``True``
        is ``SecureSum()``. What needs single replies is then refused before any site is contacted.
    groups : int, optional
        Under secure sums: the number of random groups of sites whose totals the coordinator may see one by one. A
        median over them bounds what a malicious site can do. Each must have the fewest sites of a secure sum.
    run_deadline : float, default=86400.0
        Seconds for a whole run. A run that takes longer stops, and continues if it is resumed. It waits this long for
        offline sites that the quorum needs. A call outside any run has all of it.

    Examples
    --------
    >>> Policy().needed(10), Policy(quorum=0.9).needed(10), Policy(quorum=3).needed(10), Policy(quorum="all").needed(10)
    (6, 9, 3, 10)
    """

    deadline: float = 60.0
    quorum: str | int | float = "majority"
    max_bytes: int = DEFAULT_MAX_BYTES
    finite: bool = True
    secure_sum: bool | SecureSum = False
    run_deadline: float = 86400.0
    groups: int | None = None

    def __post_init__(self) -> None:
        for name in ("deadline", "run_deadline"):
            seconds = getattr(self, name)
            if not _is_number(seconds) or not 0 < seconds < math.inf:
                raise PolicyError(f"{name}={seconds!r} must be a finite number of seconds above 0")
        if not _is_number(self.max_bytes) or self.max_bytes < 1 or int(self.max_bytes) != self.max_bytes:
            raise PolicyError(f"max_bytes={self.max_bytes!r} must be a whole number of at least 1")
        if not isinstance(self.secure_sum, bool | SecureSum):
            raise PolicyError(f"secure_sum={self.secure_sum!r} must be True, False or a SecureSum")
        if self.secure_sum is True:
            object.__setattr__(self, "secure_sum", SecureSum())
        if self.groups is not None:
            if isinstance(self.groups, bool) or not isinstance(self.groups, int) or self.groups < 2:
                raise PolicyError(f"groups={self.groups!r} must be a whole number of at least 2")
            if not self.secure_sum:
                raise PolicyError(f"groups={self.groups} are of sites whose sums are secure: set secure_sum=True")
        good = self.quorum in ("majority", "all") if isinstance(self.quorum, str) else self._is_count_or_fraction()
        if not good:
            raise PolicyError(
                f"quorum={self.quorum!r} must be 'majority', 'all', a count of at least 1, "
                "or a fraction above 0 and up to 1.0"
            )

    def needed(self, asked: int, *, adding: bool = False) -> int:
        """Return how many of `asked` sites must answer, or, `adding` them up by a secure sum, must stay to its end."""
        if adding and isinstance(self.secure_sum, SecureSum):
            return max(self.needed(asked), self.secure_sum.needed(asked))
        if self.quorum == "majority":
            return asked // 2 + 1
        if self.quorum == "all":
            return asked
        if isinstance(self.quorum, int):
            return min(self.quorum, asked)
        assert isinstance(self.quorum, float)
        # 0.1 * 30 is 3.0000000000000004: round before rounding up.
        return max(1, math.ceil(round(self.quorum * asked, 9)))

    def smallest_sum(self, sites: int) -> tuple[str, int]:
        """Return in words the smallest sum over this number of sites, or over one of their groups, and its sites."""
        if self.groups is None:
            return "a sum", sites
        return f"the sum of one of {self.groups} groups of {sites} sites", sites // self.groups

    def _is_count_or_fraction(self) -> bool:
        if not _is_number(self.quorum):
            return False
        return self.quorum >= 1 if isinstance(self.quorum, int) else 0 < float(self.quorum) <= 1


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
