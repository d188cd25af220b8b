"""The frame of every local page: head, style, links, messages, forms. There is no script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files

from fedspan.report.markup import Html, esc, join


@cache
def _style() -> str:
    report = files("fedspan.report").joinpath("report.css").read_text(encoding="utf-8")
    return report + files("fedspan.console").joinpath("console.css").read_text(encoding="utf-8")


_DIGEST = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
#: What the browser may load and do: this page's own style, and forms that come back here.
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)


def whole_page(
    title: str, body: Html, *, links: Mapping[str, str] | None = None, here: str = "", token: str = "", reload: int = 0
) -> str:
    """Return a page: a bar of links, and the body. With `reload` it loads itself again after that many seconds."""
    again = f'<meta http-equiv="refresh" content="{reload}">' if reload else ""
    named = (
        Html(f'<a href="{esc(to)}"{Html(" aria-current=page") if to == here else ""}>{esc(name)}</a>')
        for to, name in (links or {}).items()
    )
    leave = form("/logout", token, [button("Log out", "quiet")], "leave") if token else Html("")
    bar = Html(f'<nav class="bar" aria-label="Pages">{join(named)}{leave}</nav>') if links else ""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark">{again}<title>{esc(title)}</title>'
        f"<style>{_style()}</style></head>\n<body><main>{bar}{body}</main></body></html>\n"
    )


def login_page(problem: str) -> str:
    """Return the page of a visitor who is not logged in. It shows nothing of what is behind it."""
    words = Html(f'<p class="bad" role="alert">{esc(problem)}</p>') if problem else Html("")
    fields = Html(
        '<label>Token<input type="password" name="token" autocomplete="current-password" required autofocus></label>'
    )
    start = Html("<p>Paste the token. Its file is named in the window in which this page was started.</p>")
    body = Html(
        f"<section class=login><h1>Log in</h1>{start}{words}{form('/login', '', [fields, button('Log in')])}</section>"
    )
    return whole_page("Log in", body)


def message_page(words: str) -> str:
    """Return a page with a sentence."""
    return whole_page(
        "fedspan", Html(f'<section><p role="alert">{esc(words, 1000)}</p><p><a href="/">Back</a></p></section>')
    )


def form(action: str, token: str, parts: Iterable[Html], kind: str = "", **hidden: str) -> Html:
    """Return a form that sends its fields, the hidden ones, and the token of its session."""
    values = {**({"form_token": token} if token else {}), **hidden}
    fields = join(
        Html(f'<input type="hidden" name="{esc(name)}" value="{esc(value, 2000)}">') for name, value in values.items()
    )
    return Html(f'<form method="post" action="{esc(action)}" class="{esc(kind)}">{fields}{join(parts)}</form>')


def button(words: str, kind: str = "", value: str = "") -> Html:
    """Return a button; with a `value` the form sends it as its decision."""
    chosen = f' name="decision" value="{esc(value)}"' if value else ""
    return Html(f'<button type="submit" class="{esc(kind)}"{chosen}>{esc(words)}</button>')


def text_field(name: str, words: str, value: str = "") -> Html:
    """Return a field for a line of text, with its label."""
    return Html(
        f'<label>{esc(words)}<input type="text" name="{esc(name)}" value="{esc(value)}" maxlength="500"></label>'
    )
