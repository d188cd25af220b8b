"""Tables of regressions as text, in the layout of statsmodels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

WIDTH = 78
Pairs = Sequence[tuple[str, str]]


def head(title: str, left: Pairs, right: Pairs) -> list[str]:
    """Return the lines of names and values in two columns under a title."""
    lines = [title.center(WIDTH).rstrip(), "=" * WIDTH]
    rows = max(len(left), len(right))
    padded = [[*pairs, *[("", "")] * (rows - len(pairs))] for pairs in (left, right)]
    for (a, x), (b, y) in zip(*padded, strict=True):
        half = f"{_named(a)}{x:>{37 - max(18, len(a) + 1)}}"
        other = f"{_named(b)}{y:>{38 - max(20, len(b) + 1)}}" if b else ""
        lines.append(f"{half:<40}{other}".rstrip())
    return lines


def _named(name: str) -> str:
    return f"{name}:".ljust(18) if name else ""


def coefficients(
    names: Sequence[str], columns: Sequence[NDArray[np.float64]], statistic: str, confidence: float, title: str = ""
) -> list[str]:
    """Return the lines of a table of coefficients.

    `columns` are estimates, standard errors, statistics, p-values, lower and upper ends of intervals.
    """
    share = (1 - confidence) / 2
    heads = ["coef", "std err", statistic, f"P>|{statistic}|", f"[{share:.3g}", f"{1 - share:.3g}]"]
    widths = [10, 11, 11, 11, 12, 12]
    wide = max([WIDTH - sum(widths), *(len(name) + 1 for name in names), len(title) + 1])
    rule = wide + sum(widths)
    lines = [
        "=" * rule,
        title.ljust(wide) + "".join(h.rjust(w) for h, w in zip(heads, widths, strict=True)),
        "-" * rule,
    ]
    for i, name in enumerate(names):
        values = [float(column[i]) for column in columns]
        texts = [_number(v) for v in values[:2]]
        texts += [f"{values[2]:.3f}", f"{values[3]:.3f}", *(f"{v:.3f}" for v in values[4:])]
        lines.append(name.ljust(wide) + "".join(t.rjust(w) for t, w in zip(texts, widths, strict=True)))
    return [*lines, "=" * rule]


def _number(value: float) -> str:
    """Return four digits after the point, or a power of ten where these would show nothing."""
    return f"{value:.4f}" if value == 0 or not np.isfinite(value) or 1e-3 <= abs(value) < 1e6 else f"{value:.3e}"
