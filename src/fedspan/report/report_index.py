"""A page that leads to several reports."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from fedspan.report.markup import Html, esc, join
from fedspan.report.page import shell, write_page


def write_index(
    path: str | os.PathLike[str], *, title: str, lead: str, reports: Mapping[str, Mapping[str, str]]
) -> Path:
    """Write a page that leads to reports beside or below it.

    Parameters
    ----------
    path : path
        The file to write.
    title, lead : str
        What it is about, and a sentence on it.
    reports : mapping of link to mapping of name to text
        For every report its address, relative to `path`, and what to say of it; the entry ``"title"`` names it.
    """
    sections = []
    for link, facts in reports.items():
        rows = join(
            Html(f"<div><dt>{esc(name)}</dt><dd>{esc(text)}</dd></div>")
            for name, text in facts.items()
            if name != "title"
        )
        heading = Html(f'<h2><a href="{esc(link)}">{esc(facts["title"])}</a></h2>')
        sections.append(Html(f'<section>{heading}<dl class="pairs">{rows}</dl></section>'))
    body = Html(f'<h1>{esc(title)}</h1><p class="result">{esc(lead)}</p>{join(sections)}')
    write_page(Path(path), shell(title, body))
    return Path(path)
