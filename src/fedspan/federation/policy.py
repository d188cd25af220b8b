"""What a federation demands of its sites' replies, and for how long it waits."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedspan.errors import PolicyError
from fedspan.secure_sum.sum_settings import SecureSum
from fedspan.wire import DEFAULT_MAX_BYTES


@dataclass(frozen=True)
class Policy:
    """The rules for every call of a run. A reply that breaks one is a failed site, with the reason in the record.

    Parameters
    ----------
    deadline : float, default=60.0
        Seconds that a site may take for one call. Nothing waits without a deadline.
    quorum : "majority", "all", int or float, default="majority"
        How many of the sites asked must answer, or the run stops. An integer is a count (all of them where fewer
        are asked), a float in (0, 1] a fraction, rounded up.
    max_bytes : int, default=256 MiB
        Largest message, each way.
    finite : bool, default=True
        Refuse replies that hold NaN or infinity.
    secure_sum : bool or SecureSum, default=False
        Carry ``fed.sum`` and ``fed.mean`` by a secure sum, so that the coordinator sees no single site's part; ``True``
        is ``SecureSum()``. Then whatever needs single replies is refused before any site is contacted.
    run_deadline : float, default=86400.0
        Seconds for a whole run, a day by default; a run that takes longer stops, and goes on where it was if it is
        resumed. Sites that are away and that the quorum needs are waited for so long, so that one can be restarted. A
        call on the federation itself, outside any run, has all of it.

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
        good = self.quorum in ("majority", "all") if isinstance(self.quorum, str) else self._is_count_or_fraction()
        if not good:
            raise PolicyError(
                f"quorum={self.quorum!r} must be 'majority', 'all', a count of at least 1, "
                "or a fraction above 0 and up to 1.0"
            )

    def needed(self, asked: int) -> int:
        """Return how many of `asked` sites must answer."""
        if self.quorum == "majority":
            return asked // 2 + 1
        if self.quorum == "all":
            return asked
        if isinstance(self.quorum, int):
            return min(self.quorum, asked)
        assert isinstance(self.quorum, float)
        # 0.1 * 30 is 3.0000000000000004: the fraction of a count that was meant to be whole stays whole.
        return max(1, math.ceil(round(self.quorum * asked, 9)))

    def needed_for_sum(self, asked: int) -> int:
        """Return how many of `asked` sites must answer where their replies are added up."""
        needed = self.needed(asked)
        return max(needed, self.secure_sum.needed(asked)) if isinstance(self.secure_sum, SecureSum) else needed

    def _is_count_or_fraction(self) -> bool:
        if not _is_number(self.quorum):
            return False
        return self.quorum >= 1 if isinstance(self.quorum, int) else 0 < float(self.quorum) <= 1


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
