"""Two secure sums of one question whose difference is the sum over few sites: told to whoever asks for both."""

from __future__ import annotations

import warnings


class SummedSets:
    """The sets of sites that each question of a run was summed over.

    It warns of two of them that differ by fewer sites than a sum may be over. Sites cannot see to that: a question that
    differs in its last bit is another one.
    """

    def __init__(self) -> None:
        self._sets: dict[bytes, list[frozenset[str]]] = {}

    def add(self, question: bytes, step: str, sites: tuple[str, ...], least: int) -> None:
        """Take note of a set, and warn if its sum and one before give away the sum over fewer than `least` sites."""
        now, sets = frozenset(sites), self._sets.setdefault(question, [])
        if now in sets:
            return
        for before in sets:
            few = sorted(now ^ before)
            if len(few) < least and (now < before or before < now):
                warnings.warn(
                    f"the secure sums of step {step!r} over {len(before)} and over {len(now)} sites give away the sum "
                    f"over {', '.join(map(repr, few))} by their difference, fewer than the {least} sites that a sum "
                    "may be over: ask for one of the two only, or set SecureSum(least=...) to the number of all sites",
                    stacklevel=5,
                )
                break
        sets.append(now)
