"""Compare ratios with stored ones: which have become worse?

The rule: a ratio is worse when its median is below the stored median divided by a tolerance. The tolerance follows from
the spread: three times the wider of the two runs' interquartile ranges (of logarithms, so it is a factor), at least
1.25, because two runs differ by more than the turns within one, and at most 1.5, so that no noise hides a real loss.
Medians that agree while the spread is more than twofold are no proof of anything: then the check cannot tell, and says
so. A measure of quality is worse when it has lost more than .02 against what the peer has.

These are times of the processor. Ours is also worse when it has begun to wait: when its time on the clock, in times of
the processor's, has more than doubled, and more than doubled against the peer's where a busy machine makes that wait as
well. A turn has at least 20 ms of the processor or a second on the clock, so that such a wait is not a trifle.

What is worse, or undecided since the new turns differ, is measured again with twice the turns, and those count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.battery.ratio import Ratio, figure
from benchmarks.battery.results import Results

LEAST, MOST = 1.25, 1.5  # of the tolerance
WIDE = 2.0  # a spread that says little
WAITING = 2.0  # times as long on the clock, for the same time of the processor
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
    return min(MOST, max(LEAST, spread(stored), spread(now)))


def spread(ratio: Ratio) -> float:
    """Return the factor that three interquartile ranges of the turns make.

    >>> spread(Ratio("a", "b", (1.0, 2.0, 4.0), 1.0, 2.0)), spread(Ratio("a", "b", (2.0,), 1.0, 2.0))
    (8.0, 1.0)
    """
    return (ratio.quartiles[2] / ratio.quartiles[0]) ** 3


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
    if word == "same" and max(spread(stored), spread(now)) > WIDE:
        word = "cannot tell"
    details = f"{figure(before)}x then, {figure(after)}x now, tolerance {allowed:.2f}"
    yield Verdict(now.name, word, details)
    yield from _waiting(stored, now)
    for measure in stored.quality.keys() & now.quality.keys():
        lost = (now.quality[measure][1] - now.quality[measure][0]) - (
            stored.quality[measure][1] - stored.quality[measure][0]
        )
        word = "worse" if lost > QUALITY else "better" if lost < -QUALITY else "same"
        yield Verdict(f"{now.name} | {measure}", word, f"lost {lost:+.4f} against the peer, tolerance {QUALITY}")


def _waiting(stored: Ratio, now: Ratio) -> Iterator[Verdict]:
    """Say that ours has begun to wait, or nothing."""
    if stored.clock is None or now.clock is None:
        return
    before, after = stored.clock[0] / stored.ours, now.clock[0] / now.ours
    busy = max(1.0, now.clock[1] / now.theirs / (stored.clock[1] / stored.theirs))
    if after > WAITING * busy * before:
        details = f"on the clock ours took {figure(before)} times the processor's then, takes {figure(after)} times now"
        yield Verdict(f"{now.name} | waiting", "worse", details)


@dataclass(frozen=True)
class Compared:
    """Two runs beside each other.

    Attributes
    ----------
    verdicts : list of Verdict
        Of what both have.
    not_stored : list of str
        What only the new one has.
    left_out, missing : list of str
        What only the stored one has, though its module has run: for a reason that is printed, or for none.
    """

    verdicts: list[Verdict]
    not_stored: list[str]
    left_out: list[str]
    missing: list[str]


def compare(stored: Results, now: Results) -> Compared:
    """Judge what both runs have, and sort what only one has."""
    then, here = _by_name(stored), _by_name(now)
    gone = [
        (module, ratio) for module in now.ratios for ratio in stored.ratios.get(module, []) if ratio.name not in here
    ]
    excused = {
        ratio.name
        for module, ratio in gone
        for reason in now.left_out
        if reason.module == module and ratio.peer.startswith(reason.peers)
    }
    return Compared(
        [verdict for name in here if name in then for verdict in judged(then[name], here[name])],
        [name for name in here if name not in then],
        [ratio.name for _, ratio in gone if ratio.name in excused],
        [ratio.name for _, ratio in gone if ratio.name not in excused],
    )


def _by_name(results: Results) -> dict[str, Ratio]:
    return {ratio.name: ratio for found in results.ratios.values() for ratio in found}


def doubtful(stored: Results, now: Results, module: str) -> set[str]:
    """Return the names of what should be measured once more: it seems worse, or the new turns differ too much."""
    then = _by_name(stored)
    return {
        ratio.name
        for ratio in now.ratios.get(module, [])
        if ratio.name in then
        for verdict in judged(then[ratio.name], ratio)
        if verdict.word == "worse" or (verdict.word == "cannot tell" and spread(ratio) > WIDE)
    }


def report(stored: Results, now: Results) -> int:
    """Print the verdicts, what became worse last; return 0 where nothing did, and nothing is missing without reason."""
    found = compare(stored, now)
    print("\n== compared with the stored ratios")
    if stored.machine != now.machine:
        print(f"(stored on {described(stored)}; this is {described(now)}: ratios of other machines may differ)")
    for reason in now.left_out:
        print(f"left out: {reason}")
    lists = {
        "not stored": found.not_stored,
        "left out": found.left_out,
        "not measured now": found.missing,
    }
    if unclocked := sum(ratio.clock is None for module in now.ratios for ratio in stored.ratios.get(module, [])):
        print(f"({unclocked} are stored without the time on the clock: whether these wait is not compared)")
    for words, names in lists.items():
        for name in names:
            print(f"{words}: {name}")
    order = ("same", "better", "cannot tell", "worse")
    for verdict in sorted(found.verdicts, key=lambda verdict: order.index(verdict.word)):
        print(f"{verdict.word:12} {verdict.name}: {verdict.details}")
    counts = Counter(verdict.word for verdict in found.verdicts)
    counted = [f"{counts['worse']} of {len(found.verdicts)} became worse"]
    counted += [f"{counts['cannot tell']} are undecided"] * ("cannot tell" in counts)
    print("; ".join(counted + [f"{len(names)} {words}" for words, names in lists.items() if names]))
    return int(counts["worse"] > 0 or not found.verdicts or bool(found.missing))


def described(results: Results) -> str:
    """Return the machine in words."""
    return "{processor}, {cores} cores, {system}, Python {python}".format(**results.machine)
