"""The attack that looks entirely honest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedspan.attacks.base import Array, KeyAttack, Seen


@dataclass(frozen=True)
class Mimic(KeyAttack):
    """Send what one good site sends: it then counts several times, and sites unlike it look like outliers.

    Parameters
    ----------
    site : str, optional
        Whom to copy. By default, and in a call that this site did not answer or is itself bad in, the first good site
        by name that has a value. Where there is none, the bad sites stay honest.
    steps, keys : names, optional
        What to attack; see `fedspan.attacks`.

    References
    ----------
    S. P. Karimireddy, L. He and M. Jaggi, "Byzantine-robust learning on heterogeneous datasets via bucketing",
    ICLR 2022.

    Examples
    --------
    >>> from fedspan.federation import AttackedCall
    >>> replies = {"a": {"x": 1.0}, "b": {"x": 2.0}, "c": {"x": 3.0}}
    >>> Mimic("b")(replies, ("c",), np.random.default_rng(0), AttackedCall("gradient", 0))
    {'c': {'x': 2.0}}
    """

    site: str | None = None

    def lie(self, seen: Seen, rng: np.random.Generator) -> Array:
        """Return the copied value."""
        good = [site for site in seen.values if site not in seen.bad]
        if not good:
            return seen.own
        return seen.values[self.site if self.site in good else good[0]][None]
