"""Small tables for notebooks: what ``_repr_html_`` of federations, runs and models shows."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from fedspan.checks import printable


def fact_table(title: str, facts: Iterable[tuple[str, object]], remark: str = "") -> str:
    """Return a table of names and values under a title. All texts are escaped.

    Examples
    --------
    >>> fact_table("Run", [("calls", 3)])
    '<table><caption><b>Run</b></caption><tr><th>calls</th><td>3</td></tr></table>'
    """
    rows = "".join(f"<tr><th>{_escaped(name)}</th><td>{_escaped(str(value))}</td></tr>" for name, value in facts)
    below = f"<p><small>{_escaped(remark)}</small></p>" if remark else ""
    return f"<table><caption><b>{_escaped(title)}</b></caption>{rows}</table>{below}"


def _escaped(text: str) -> str:
    return escape(printable(text))
