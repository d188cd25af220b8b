"""Which of all mutants are tried: places by lot, and one mutant of each. Knows nothing of what a mutant changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Protocol, TypeVar

Position = tuple[int, int]
Place = tuple[str, Position, Position]  # file, and where it begins and ends


class HasPlace(Protocol):
    """Whatever changes a place."""

    @property
    def place(self) -> Place:
        """File, and where it begins and ends."""
        ...


M = TypeVar("M", bound=HasPlace)


def sample(mutants: Iterable[M], count: int | None, seed: int) -> list[M]:
    """Draw `count` places and one mutant of each; ``None``: all mutants of all places.

    Places and not mutants: a ``+`` has six mutants, a ``not`` one. A smaller sample is the beginning of a larger one,
    and an edit of the code exchanges what it touches alone.
    """
    by_place: dict[Place, list[M]] = {}
    for mutant in mutants:
        by_place.setdefault(mutant.place, []).append(mutant)
    if count is None:
        return [mutant for group in by_place.values() for mutant in group]
    names = _steady_names(by_place)
    drawn = sorted(by_place, key=lambda place: _lot(seed, names[place]))[:count]
    return [by_place[place][_lot(seed, names[place], "change") % len(by_place[place])] for place in drawn]


def _steady_names(places: Iterable[Place]) -> dict[Place, str]:
    """Name each place by its file, its line without the indentation, its column there, and the equal ones before it.

    Line numbers would change with every edit above.
    """
    lines: dict[str, list[str]] = {}
    names, equal = {}, Counter[tuple[str, str, int]]()
    for place in sorted(places):
        path, (line, column), _ = place
        text = lines.setdefault(path, Path(path).read_text().splitlines())[line - 1]
        what = path, text.strip(), column - (len(text) - len(text.lstrip()))
        names[place] = repr((*what, equal[what]))
        equal[what] += 1
    return names


def _lot(*named: object) -> int:
    """Return the number that decides whether, or as which of its mutants, a place is drawn."""
    return int.from_bytes(blake2b(repr(named).encode(), digest_size=16).digest(), "little")
