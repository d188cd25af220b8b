"""Text, numbers and tables as HTML. All text that is not marked as `Html` is escaped."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

LONGEST_TEXT = 300
#: Sites and runs that are listed; the others are counted.
MOST_SITES, MOST_RUNS = 30, 12
THIN_SPACE = "\u202f"  # the narrow one that does not break
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
#: Signs that turn the order of what follows would show another text than the one that was sent.
_TURNING = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_NO_CONTROLS = {code: "\ufffd" for code in (*range(32), *range(127, 160), *_TURNING) if chr(code) not in "\t\n"}


class Html(str):
    """Text that is HTML already, and is inserted as it is."""


def esc(value: object, most: int = LONGEST_TEXT) -> Html:
    """Return `value` as HTML: text is escaped and cut to `most` characters, `Html` stays as it is.

    A long text loses its middle: an error begins with a path, and ends with the reason.
    """
    if isinstance(value, Html):
        return value
    text = str(value).translate(_NO_CONTROLS)
    if len(text) > most:
        end = most // 2 if most >= LONGEST_TEXT else 0
        text = f"{text[: most - 1 - end]}…{text[len(text) - end :]}"
    return Html(html.escape(text))


def join(parts: Iterable[Html], between: str = "") -> Html:
    """Join pieces of HTML."""
    return Html(between.join(parts))


def script_json(value: Any) -> Html:
    """Return `value` as JSON that can stand inside a script tag, whatever its texts contain."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return Html(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def count(value: int) -> str:
    """Return a whole number with thin spaces between thousands."""
    return f"{value:,}".replace(",", THIN_SPACE).replace("-", "−")


def plural(value: int, noun: str, nouns: str = "") -> str:
    """Return a count and its noun: "1 site", "2 sites"."""
    return f"{count(value)} {noun if value == 1 else nouns or noun + 's'}"


def few(names: Iterable[str], most: int = 4) -> str:
    """Return the first of some names, each once, and the number of the others: "a, b and 3 more"."""
    distinct = list(dict.fromkeys(names))
    more = f" and {count(len(distinct) - most)} more" if len(distinct) > most else ""
    return ", ".join(name if len(name) <= 60 else name[:59] + "…" for name in distinct[:most]) + more


def number(value: float, digits: int = 4) -> str:
    """Return a number to `digits` significant digits, a very large or small one with a power of ten: "1.5×10⁻⁷"."""
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
        return f"{mantissa}×10{superscript(int(exponent))}".replace("-", "−")
    text = number_with(rounded, max(0, digits - 1 - math.floor(math.log10(abs(rounded)))))
    return text.rstrip("0").rstrip(".") if "." in text else text


def number_with(value: float, decimals: int) -> str:
    """Return a number with this many decimals and thin separators: "−1 234.50"."""
    text = f"{value:,.{decimals}f}"
    text = text.lstrip("-") if not any(digit in text for digit in "123456789") else text  # no "-0.00"
    return text.replace(",", THIN_SPACE).replace("-", "−")


def superscript(exponent: int) -> str:
    """Return an exponent in raised digits."""
    return str(exponent).translate(_SUPERSCRIPT)


def percent(share: float) -> str:
    """Return a share in percent: "12.3 %"."""
    return f"{number(100 * float(share), 3)} %"


def size(value: float) -> str:
    """Return a number of bytes in the unit that suits it: "999 B", "1.5 kB"."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= 0.9995 * factor:
            return f"{number(value / factor, 3)} {unit}"
    return f"{number(value, 3)} B"


def duration(seconds: float) -> str:
    """Return a time: "0.0123 s", "1 min 15 s", "2 h 0 min"."""
    if seconds < 60:
        return f"{number(seconds, 3)} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{count(whole // 3600)} h {whole % 3600 // 60} min"


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    texts: int = 1,
    foot: Sequence[object] | None = None,
    stacked: bool = False,
) -> Html:
    """Return a table in a box that scrolls sideways.

    Whole numbers get thin separators; a row of one cell is a heading across the table. The first `texts` columns hold
    text, the others numbers, aligned to the right; `foot` are totals. `stacked`: in a narrow window the cells of a row
    stand below one another, each with the name of its column. So sentences are not cut.
    """

    def cells(tag: str, row: Sequence[object]) -> Html:
        shown = (esc(count(int(c)) if isinstance(c, Integral) else c) for c in row)
        boxes = (Html(f'<div class="text">{c}</div>') if tag == "td" and i < texts else c for i, c in enumerate(shown))
        kinds = ["" if i < texts else ' class="n"' for i in range(len(row))]
        if stacked and tag == "td":
            kinds = [f'{kind} data-head="{esc(name)}"' for kind, name in zip(kinds, head, strict=True)]
        return join(Html(f"<{tag}{kind}>{cell}</{tag}>") for kind, cell in zip(kinds, boxes, strict=True))

    def line(row: Sequence[object]) -> Html:
        if len(row) == 1:
            return Html(f'<tr class="group"><th colspan="{len(head)}">{esc(row[0])}</th></tr>')
        return Html(f"<tr>{cells('td', row)}</tr>")

    kind = ' class="stacked"' if stacked else ""
    last = f"<tfoot><tr>{cells('td', foot)}</tr></tfoot>" if foot is not None else ""
    return Html(
        f'<div class="scroll" tabindex="0"><table{kind}><thead><tr>{cells("th", head)}</tr></thead>'
        f"<tbody>{join(map(line, rows))}</tbody>{last}</table></div>"
    )


def pairs(values: Iterable[tuple[object, object]], kind: str = "pairs", bad: str = "") -> Html:
    """Return names and values as a list of definitions of class `kind`; the name `bad` is in red."""
    rows = []
    for name, value in values:
        mark = ' class="bad"' if name == bad else ""
        rows.append(Html(f"<div{mark}><dt>{esc(name)}</dt><dd>{esc(value)}</dd></div>"))
    return Html(f'<dl class="{kind}">{join(rows)}</dl>')


def panel(title: object, *body: Html) -> Html:
    """Return a box with a small heading."""
    return Html(f'<div class="panel"><h3>{esc(title)}</h3>{join(body)}</div>')


def note(text: object, most: int = LONGEST_TEXT) -> Html:
    """Return a remark in small print, cut after `most` letters."""
    return Html(f'<p class="note">{esc(text, most)}</p>')


def more(hidden: int, noun: str, words: str = "") -> list[Html]:
    """Return the remark that some things are not shown, where there are any: "and 3 more sites"."""
    return [note(f"and {plural(hidden, f'more {noun}')}{words}")] if hidden > 0 else []


class PageSection(Html):
    """A section of the page, with the link that leads to it."""

    link: Html


def section(key: str, title: str, *body: Html, lead: object = "") -> PageSection:
    """Return a section of the page, with a sentence under its heading."""
    first = f'<p class="lead">{esc(lead)}</p>' if lead else ""
    made = PageSection(
        f'<section id="{key}" aria-labelledby="{key}-h"><h2 id="{key}-h">{title}</h2>{first}{join(body)}</section>'
    )
    made.link = Html(f'<a href="#{key}">{title}</a>')
    return made


def header(title: str, result: object, tiles: Iterable[tuple[object, object]], bad: str = "") -> Html:
    """Return the head of a page: its title, the result in a sentence, and a few numbers in large print."""
    return Html(
        f'<header><h1>{esc(title)}</h1><p class="result">{esc(result, 600)}</p>{pairs(tiles, "tiles", bad)}</header>'
    )
