"""The forms in which messages may hold rows: scaled, sorted, quantised, in low bits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from scipy.special import gammaln, ndtr

from fedspan.arrays import Array, Matrix
from fedspan.audit.parts.row_chances import EQUAL, Space


def row_views(rows: Matrix, sites: Array | None) -> dict[str, Matrix]:
    """Return rows in the forms in which they are commonly sent, also with each site's own means and ranges."""

    def of(part: Matrix) -> dict[str, Matrix]:
        def over(spread: Matrix) -> Matrix:
            return np.where(spread > 0, spread, 1.0)

        centred = part - part.mean(axis=0)
        return {
            "centred": centred,
            "standardised": centred / over(part.std(axis=0)),
            "scaled to the range": (part - part.min(axis=0)) / over(np.ptp(part, axis=0)),
            "scaled to the largest": part / over(np.abs(part).max(axis=0)),
        }

    views = {"": rows, **of(rows)}
    if sites is not None and len(np.unique(sites)) > 1:
        for name in views.copy():
            views[f"{name} at its site"] = np.empty_like(rows)
        del views[" at its site"]
        for site in np.unique(sites):
            mine = sites == site
            for name, view in of(rows[mine]).items():
                views[f"{name} at its site"][mine] = view
    return views


#: The views in which rows are quantised.
SCALED = tuple(f"scaled to the {to}{at}" for to in ("range", "largest") for at in ("", " at its site"))
QUANTISED = ("", "standardised", "standardised at its site", *SCALED)
#: The views whose rows have another mean taken off.
CENTRED = ("centred", "centred at its site")
#: Functions of single cells that rows may be sent through. A base, a unit or a width is a factor or an offset more.
FUNCTIONS = {
    "logarithms": np.log,
    "logarithms of 1 +": np.log1p,
    "exponentials": np.exp,
    "reciprocals": np.reciprocal,
    "square roots": np.sqrt,
    "cube roots": np.cbrt,
    "squares": np.square,
    "cubes": lambda x: x**3,
    "magnitudes": np.abs,
    "hyperbolic tangents": np.tanh,
    "logistic values": lambda x: 1 / (1 + np.exp(-x)),
    "arcsinh": np.arcsinh,
    "arctangents": np.arctan,
    "sines": np.sin,
    "cosines": np.cos,
    "normal probabilities": ndtr,
}


def function_views(views: Mapping[str, Matrix]) -> Iterator[tuple[str, Array, Matrix]]:
    """Yield rows through each function: a name, the rows for which it is defined and not constant, and the result."""
    for name in ("", "standardised"):
        for words, function in FUNCTIONS.items():
            with np.errstate(all="ignore"):
                view = np.asarray(function(views[name]))
                defined = np.flatnonzero(np.isfinite(view).all(axis=1) & (np.abs(view).max(axis=1) < 1e100))
            if len(defined) > 1 and 2 * len(np.unique(view[defined], axis=0)) > len(defined):
                yield f"{words} of {name or 'the'} rows", defined, view[defined]


def plain_space(name: str, view: Matrix, bits: Matrix) -> Space:
    """Return the space of rows as they are in a view, in units of each column's spread."""
    spread = view.std(axis=0)
    scale = np.where(spread > 0, spread, max(float(np.abs(view).max()), 1e-300))
    return Space(name, view / scale, bits, lambda V: V / scale)


def direction_space(view: Matrix, bits: Matrix, name: str, centred: int) -> Space:
    """Return the space of directions: vectors that differ by a factor, or also by an offset, are the same."""

    def into(V: Matrix) -> Matrix:
        V = V - V.mean(axis=1, keepdims=True) if centred else V
        return np.asarray(V / np.maximum(np.linalg.norm(V, axis=1, keepdims=True), 1e-300))

    return Space(name, into(view), bits, into, 1 + centred)


def exponential_space(name: str, view: Matrix, bits: Matrix) -> Space:
    """Return the space of exponentials of rows to any base, times any factor, as a softmax has them: of logarithms."""
    lines = direction_space(view, bits, name, 1)

    def into(V: Matrix) -> Matrix:
        with np.errstate(divide="ignore", invalid="ignore"):
            logarithms = np.log(V)
            logarithms[~np.isfinite(logarithms).all(axis=1)] = np.nan
            return lines.into(logarithms)

    return replace(lines, name=f"exponentials of {name or 'the'} rows", into=into)


def sorted_space(rows: Matrix, bits: Matrix) -> Space:
    """Return the space of rows whose cells are sorted: the order of the columns adds no information."""
    scale = max(float(rows.std()), 1e-300)
    lost = float(gammaln(rows.shape[1] + 1) / np.log(2))
    return Space("columns in another order", np.sort(rows) / scale, bits - lost, lambda V: np.sort(V) / scale)


def evenly_chosen(V: Matrix, most: int) -> tuple[Matrix, Array]:
    """Return at most `most` of the vectors, evenly spaced, and their places."""
    chosen = np.linspace(0, len(V) - 1, min(len(V), most)).astype(int)
    return V[chosen], chosen


def some_triples(group: Array) -> list[Array]:
    """Return a few triples of a key's vectors, from its beginning, over all of it, and from its end."""
    spread = np.linspace(0, len(group) - 1, 3).astype(int)
    return [group[list(part)] for part in dict.fromkeys((tuple(range(3)), tuple(spread), tuple(range(-3, 0))))]


def affine_match(triple: Matrix, rows: Matrix) -> tuple[int, int] | None:
    """Return rows that the first two of three vectors are, up to a factor and an offset of each column; or None.

    With both given, the third vector follows in each column. All pairs are tried in one column, and those that give a
    row there are tried in the others.
    """
    a, b, c = triple
    if (np.abs(b - a) <= EQUAL * np.abs(triple).max(axis=0)).any():
        return None
    t = (c - a) / (b - a)
    if (np.abs(t) < 1e-6).any() or (np.abs(t - 1) < 1e-6).any() or np.ptp(t) < 1e-6:
        return None  # the vectors are on a line, and so in all columns alike
    scale = rows.std(axis=0)
    values, order = np.sort(rows[:, 0]), np.argsort(rows[:, 0], kind="stable")
    for i in range(len(rows)):
        aim = rows[i, 0] + t[0] * (rows[:, 0] - rows[i, 0])
        place = np.clip(np.searchsorted(values, aim), 1, len(values) - 1)
        place -= aim - values[place - 1] < values[place] - aim
        likely = np.flatnonzero(
            (np.abs(values[place] - aim) < 1e-7 * scale[0] * (1 + abs(t[0]))) & (rows[:, 0] != rows[i, 0])
        )
        for second in likely:
            third = rows[order[place[second]]]
            apart = np.abs(rows[i] + t * (rows[second] - rows[i]) - third) / (scale * (1 + np.abs(t)))
            if (apart < 1e-6).all():
                return i, int(second)
    return None
