"""Text, numbers and tables as HTML. Whatever is not marked as `Html` is escaped: safe unless said otherwise."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

LONGEST_TEXT = 300
THIN_SPACE = "\u202f"  # the narrow one that does not break
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_NO_CONTROLS = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}


class Html(str):
    """Text that is HTML already and is put in as it is."""

    __slots__ = ()


def esc(value: object, most: int = LONGEST_TEXT) -> Html:
    """Return `value` as HTML: text is cut after `most` characters and escaped, `Html` stays as it is.

    Examples
    --------
    >>> esc("a < b")
    'a &lt; b'
    >>> esc(Html("<b>"))
    '<b>'
    """
    if isinstance(value, Html):
        return value
    text = str(value).translate(_NO_CONTROLS)
    return Html(html.escape(text if len(text) <= most else text[: most - 1] + "…"))


def join(parts: Iterable[Html], between: str = "") -> Html:
    """Join pieces of HTML."""
    return Html(between.join(parts))


def script_json(value: Any) -> Html:
    r"""Return `value` as JSON that can stand inside a script tag, whatever its texts say.

    Examples
    --------
    >>> print(script_json("</script>"))
    "\u003c/script\u003e"
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return Html(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def count(value: int) -> str:
    """Return a whole number with thin spaces between thousands.

    Examples
    --------
    >>> count(1234567).split()
    ['1', '234', '567']
    """
    return f"{value:,}".replace(",", THIN_SPACE).replace("-", "−")


def plural(value: int, noun: str, nouns: str = "") -> str:
    """Return a count and its noun.

    Examples
    --------
    >>> plural(1, "site"), plural(2, "site"), plural(2, "reply", "replies")
    ('1 site', '2 sites', '2 replies')
    """
    return f"{count(value)} {noun if value == 1 else nouns or noun + 's'}"


def few(names: Iterable[str], most: int = 4) -> str:
    """Return the first of some names, each once, and how many more there are.

    Examples
    --------
    >>> few(["a", "b", "a", "c"], most=2)
    'a, b and 1 more'
    """
    distinct = list(dict.fromkeys(names))
    more = f" and {count(len(distinct) - most)} more" if len(distinct) > most else ""
    return ", ".join(name if len(name) <= 60 else name[:59] + "…" for name in distinct[:most]) + more


def number(value: float, digits: int = 4) -> str:
    """Return a number to `digits` significant digits, very large and very small ones with a power of ten.

    Examples
    --------
    >>> number(0.123456), number(-2.0), number(1.5e-7), number(float("nan"))
    ('0.1235', '−2', '1.5×10⁻⁷', 'not a number')
    """
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits}g}")
    if not 1e-4 <= abs(rounded) < 1e7:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        return f"{mantissa}×10{str(int(exponent)).translate(_SUPERSCRIPT)}".replace("-", "−")
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    text = f"{rounded:,.{decimals}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return text.replace(",", THIN_SPACE).replace("-", "−")


def power_of_ten(exponent: int) -> str:
    """Return ten to a power, for the ticks of a logarithmic axis.

    Examples
    --------
    >>> power_of_ten(-3)
    '10⁻³'
    """
    return f"10{str(exponent).translate(_SUPERSCRIPT)}"


def size(value: float) -> str:
    """Return a number of bytes in the unit that suits it.

    Examples
    --------
    >>> size(999), size(1500), size(2_340_000)
    ('999 B', '1.5 kB', '2.34 MB')
    """
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= 0.9995 * factor:
            return f"{number(value / factor, 3)} {unit}"
    return f"{number(value, 3)} B"


def duration(seconds: float) -> str:
    """Return a time in words.

    Examples
    --------
    >>> duration(0.0123), duration(75.0), duration(7200.0)
    ('0.0123 s', '1 min 15 s', '2 h 0 min')
    """
    if seconds < 60:
        return f"{number(seconds, 3)} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{count(whole // 3600)} h {whole % 3600 // 60} min"


def table(
    head: Sequence[str], rows: Iterable[Sequence[object]], *, texts: int = 1, foot: Sequence[object] | None = None
) -> Html:
    """Return a table in a box of its own that scrolls sideways.

    Parameters
    ----------
    head : sequence of str
    rows : iterable of sequences
        Cells; whole numbers get thin separators. A row of one cell is a heading across the table.
    texts : int, default=1
        How many columns from the left hold text; the others hold numbers and stand to the right.
    foot : sequence, optional
        The last line: totals.
    """

    def cells(tag: str, row: Sequence[object]) -> Html:
        shown = (esc(count(int(c)) if isinstance(c, Integral) else c) for c in row)
        boxes = (Html(f'<div class="text">{c}</div>') if tag == "td" and i < texts else c for i, c in enumerate(shown))
        kinds = ("" if i < texts else ' class="n"' for i in range(len(row)))
        return join(Html(f"<{tag}{kind}>{cell}</{tag}>") for kind, cell in zip(kinds, boxes, strict=True))

    def line(row: Sequence[object]) -> Html:
        if len(row) == 1:
            return Html(f'<tr class="group"><th colspan="{len(head)}">{esc(row[0])}</th></tr>')
        return Html(f"<tr>{cells('td', row)}</tr>")

    last = f"<tfoot><tr>{cells('td', foot)}</tr></tfoot>" if foot is not None else ""
    return Html(
        f'<div class="scroll" tabindex="0"><table><thead><tr>{cells("th", head)}</tr></thead>'
        f"<tbody>{join(map(line, rows))}</tbody>{last}</table></div>"
    )


def pairs(values: Iterable[tuple[object, object]]) -> Html:
    """Return names and values as a list of definitions."""
    return Html(
        f'<dl class="pairs">{join(Html(f"<div><dt>{esc(k)}</dt><dd>{esc(v)}</dd></div>") for k, v in values)}</dl>'
    )


def panel(title: object, *body: Html) -> Html:
    """Return a box with a small heading."""
    return Html(f'<div class="panel"><h3>{esc(title)}</h3>{join(body)}</div>')


def note(text: object, most: int = LONGEST_TEXT) -> Html:
    """Return a remark in small print, cut after `most` letters."""
    return Html(f'<p class="note">{esc(text, most)}</p>')


def section(key: str, title: str, *body: Html, lead: object = "") -> Html:
    """Return a section of the page, with a sentence under its heading that says what there is to see."""
    said = f'<p class="lead">{esc(lead)}</p>' if lead else ""
    return Html(
        f'<section id="{key}" aria-labelledby="{key}-h"><h2 id="{key}-h">{title}</h2>{said}{join(body)}</section>'
    )
