"""A page of cards: what was done in a sentence, a picture, one number, and links to a report and to lines of Python."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedspan.report.markup import Html, esc, join
from fedspan.report.page import asset, write_page


@dataclass(frozen=True)
class Card:
    """One card of the page.

    Attributes
    ----------
    key : str
        Its anchor in the page, and the name of its folder.
    topic, sentence : str
        A word or two, and what was done.
    picture : Html
        A chart.
    number, meaning : str
        The number in large print, and what it is.
    report : str
        The address of the report, relative to the page.
    lines : str
        Python that does the same.
    remark : str
        In small print: what a reader must know besides.
    """

    key: str
    topic: str
    sentence: str
    picture: Html
    number: str
    meaning: str
    report: str
    lines: str
    remark: str = ""


def write_cards(
    path: str | os.PathLike[str],
    *,
    title: str,
    lead: str,
    cards: Sequence[Card],
    more: Sequence[tuple[str, str, str]] = (),
) -> Path:
    """Write a page of cards, their lines of Python under them, and links to more reports.

    `more` are an address, a title and a sentence of each further report. The page loads nothing, and needs no script.
    """
    numbered = list(enumerate(cards, 1))
    body = [
        Html(f'<header class="hero"><h1>{esc(title)}</h1><p class="result">{esc(lead, 600)}</p></header>'),
        Html(f'<div class="cards">{join(_card(number, card) for number, card in numbered)}</div>'),
        Html('<h2 class="part" id="lines">Ten lines of Python each</h2>'),
        Html(f'<div class="codes">{join(_lines(number, card) for number, card in numbered)}</div>'),
    ]
    if more:
        entries = join(Html(f'<li><a href="{esc(link)}">{esc(name)}</a> {esc(text)}</li>') for link, name, text in more)
        body.append(Html(f'<h2 class="part">Exact results</h2><ul class="more">{entries}</ul>'))
    write_page(Path(path), title, join(body, "\n"), style=asset("cards.css"))
    return Path(path)


def _card(number: int, card: Card) -> Html:
    remark = f'<p class="note">{esc(card.remark)}</p>' if card.remark else ""
    return Html(
        f'<section class="card" id="{esc(card.key)}"><p class="topic"><b>{number}</b> {esc(card.topic)}</p>'
        f"<h2>{esc(card.sentence)}</h2><figure>{card.picture}</figure>"
        f'<p class="big"><b>{esc(card.number)}</b> <span>{esc(card.meaning)}</span></p>{remark}'
        f'<p class="links"><a href="{esc(card.report)}">Report</a> '
        f'<a href="#{esc(card.key)}-lines">Ten lines of Python</a></p></section>'
    )


def _lines(number: int, card: Card) -> Html:
    return Html(
        f'<section class="code" id="{esc(card.key)}-lines"><p class="topic"><b>{number}</b> {esc(card.topic)} '
        f'<a href="#{esc(card.key)}">back to the card</a></p><pre>{esc(card.lines.strip(), 4000)}</pre></section>'
    )
