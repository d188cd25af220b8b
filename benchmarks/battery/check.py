"""Compare ratios with stored ones: which have become worse?

The rule: a ratio is worse when its median is below the stored median divided by a tolerance. The tolerance follows from
the spread: three times the wider of the two runs' interquartile ranges (of logarithms, so it is a factor), and at least
1.25, because two runs differ by more than the turns within one. Where this makes the tolerance more than 2, the check
cannot tell, and says so. A measure of quality is worse when it has lost more than .02 against what the peer has.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.battery.ratio import Ratio, figure
from benchmarks.battery.results import Results

LEAST, MOST = 1.25, 2.0
QUALITY = 0.02  # maps of the same rows from other starts differ by half of this


@dataclass(frozen=True)
class Verdict:
    """What has become of one ratio, or of one measure of quality: "same", "better", "worse" or "cannot tell"."""

    name: str
    word: str
    details: str


def tolerance(stored: Ratio, now: Ratio) -> float:
    """Return the factor by which the medians of two runs may differ.

    >>> quiet = Ratio("a", "b", (2.0, 2.0, 2.0), 1.0, 2.0)
    >>> tolerance(quiet, quiet)
    1.25
    >>> round(tolerance(quiet, Ratio("a", "b", (1.8, 1.9, 2.0, 2.1, 2.2), 1.0, 2.0)), 2)
    1.35
    """
    ranges = [math.log(ratio.quartiles[2] / ratio.quartiles[0]) for ratio in (stored, now)]
    return max(LEAST, math.exp(3.0 * max(ranges)))


def judged(stored: Ratio, now: Ratio) -> Iterator[Verdict]:
    """Judge one ratio, and the measures of quality that come with it."""
    allowed = tolerance(stored, now)
    before, after = stored.quartiles[1], now.quartiles[1]
    if after < before / allowed:
        word = "worse"
    elif after > before * allowed:
        word = "better"
    else:
        word = "same"
    if allowed > MOST and word == "same":
        word = "cannot tell"
    details = f"{figure(before)}x then, {figure(after)}x now, tolerance {allowed:.2f}"
    yield Verdict(now.name, word, details)
    for measure in stored.quality.keys() & now.quality.keys():
        lost = (now.quality[measure][1] - now.quality[measure][0]) - (
            stored.quality[measure][1] - stored.quality[measure][0]
        )
        word = "worse" if lost > QUALITY else "better" if lost < -QUALITY else "same"
        yield Verdict(f"{now.name} | {measure}", word, f"lost {lost:+.4f} against the peer, tolerance {QUALITY}")


def verdicts(stored: Results, now: Results) -> tuple[list[Verdict], list[str]]:
    """Judge what both runs have; also return what only one has, in words."""
    then = {ratio.name: ratio for found in stored.ratios.values() for ratio in found}
    here = {ratio.name: ratio for found in now.ratios.values() for ratio in found}
    found = [verdict for name in here if name in then for verdict in judged(then[name], here[name])]
    alone = [f"not stored: {name}" for name in here if name not in then]
    chosen = {ratio.name for module in now.ratios for ratio in stored.ratios.get(module, [])}
    alone += [f"not measured now: {name}" for name in then if name in chosen and name not in here]
    return found, alone + [f"left out: {why}" for why in now.left_out]


def worse(stored: Results, now: Results, module: str) -> bool:
    """Say whether something of a module became worse."""
    of_module = Results(ratios={module: now.ratios.get(module, [])})
    return any(verdict.word == "worse" for verdict in verdicts(stored, of_module)[0])


def report(stored: Results, now: Results) -> int:
    """Print the verdicts, what became worse last; return 1 where something did, else 0."""
    found, alone = verdicts(stored, now)
    print("\n== compared with the stored ratios")
    if stored.machine != now.machine:
        print(f"(stored on {described(stored)}; this is {described(now)}: ratios of other machines may differ)")
    for line in alone:
        print(line)
    order = ("same", "better", "cannot tell", "worse")
    for verdict in sorted(found, key=lambda verdict: order.index(verdict.word)):
        print(f"{verdict.word:12} {verdict.name}: {verdict.details}")
    worse = sum(verdict.word == "worse" for verdict in found)
    print(f"{worse} of {len(found)} became worse")
    return int(worse > 0 or not found)


def described(results: Results) -> str:
    """Return the machine in words."""
    return "{processor}, {cores} cores, {system}, Python {python}".format(**results.machine)
