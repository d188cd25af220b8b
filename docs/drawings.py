"""Draws the pictures of docs/inside.md: ``python docs/drawings.py``. The folders are those of the import contract."""

from __future__ import annotations

import tomllib
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
WIDTH = 440  # narrow, so that it can be read on a phone
INK, SOFT, PAPER, LINE = "#1b2733", "#4a5a6a", "#f5f7fa", "#9fb0c0"
COORDINATOR, SITE = "#dbeafe", "#d9f2e3"

WORDS = {
    "__main__": "python -m fedspan",
    "cli": "the command line",
    "reproduce": "the papers' tables, ours beside them",
    "report": "one HTML page for every run",
    "estimators": "the scikit-learn faces",
    "protocols": "one algorithm a file, both sides of it",
    "engines": "what carries calls to sites",
    "datasets": "loaders, splitters, generators",
    "attacks": "what liars send",
    "aggregation": "means, medians, whom they trust",
    "privacy": "noise, ledgers, audits",
    "linalg": "pure functions on arrays",
    "federation": "site, step, replies, policy, journal",
    "wire": "the message format",
    "checks": "numbers and names that may be",
    "errors": "one base for all",
}

#: One call's way: where it happens, what happens there, and the file.
WAY = (
    ("coordinator", "the protocol asks: fed.sum(step, U=U)", "protocols/*.py"),
    ("coordinator", "the payload is checked, the call numbered", "federation/federation.py"),
    ("coordinator", "in the journal? then nobody is asked", "federation/journal.py"),
    ("coordinator", "the engine carries it to each site", "engines/"),
    ("site", "asked before? then the same reply", "federation/host.py"),
    ("site", "state goes back to the last accepted call", "federation/state.py"),
    ("site", "the step runs next to the data", "protocols/*.py"),
    ("site", "a noisy one first charges the site's ledger", "privacy/ledger.py"),
    ("site", "only the reply leaves: names and arrays", "wire.py"),
    ("coordinator", "rehearsed attacks and faults, if any", "federation/attack.py, faults.py"),
    ("coordinator", "late, misshapen, not finite: a failed site", "federation/judge.py"),
    ("coordinator", "quorum? total or replies to the journal", "federation/journal.py"),
    ("coordinator", "who, what, bytes: to the record", "federation/record.py"),
    ("coordinator", "the protocol goes on with what came", "protocols/*.py"),
)


def layers() -> list[list[str]]:
    """Return the folders as the import contract has them, the highest first."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    contract = next(c for c in project["tool"]["importlinter"]["contracts"] if c["type"] == "layers")
    return [[name.strip(" ()") for name in layer.split("|")] for layer in contract["layers"]]


def folders() -> str:
    """Draw the folders: what stands on what."""
    shapes, y = [], 16
    for layer in layers():
        width = (WIDTH - 32 - 10 * (len(layer) - 1)) / len(layer)
        for i, name in enumerate(layer):
            shapes.append(box(16 + i * (width + 10), y, width, 46, PAPER if name in _PLAIN else COORDINATOR))
            shapes.append(text(26 + i * (width + 10), y + 20, name, bold=True))
            shapes.append(
                text(26 + i * (width + 10), y + 37, WORDS[name], size=11 if len(layer) == 1 else 9.5, colour=SOFT)
            )
        y += 54
    shapes.append(
        text(WIDTH / 2, y + 12, "a folder imports only from those below it", size=12, colour=SOFT, anchor="middle")
    )
    return picture("The folders of fedspan, each standing on those below", shapes, y + 26)


_PLAIN = {"__main__", "cli", "reproduce", "report", "wire", "checks", "errors"}


def one_call() -> str:
    """Draw the way of one call, from the protocol to the sites and back."""
    shapes, y = [], 16
    for i, (where, what, file) in enumerate(WAY):
        left = 16 if where == "coordinator" else 56
        if i:
            arrow = f"M{WIDTH / 2:g} {y - 12} v10 m-4 -5 l4 5 l4 -5"
            shapes.append(f'<path d="{arrow}" fill="none" stroke="{SOFT}" stroke-width="1.5"/>')
        shapes.append(box(left, y, WIDTH - 32 if left == 16 else WIDTH - 72, 44, COORDINATOR if left == 16 else SITE))
        shapes.append(text(left + 12, y + 19, what, bold=True))
        shapes.append(text(left + 12, y + 36, file, size=11, colour=SOFT))
        y += 58
    for x, colour, name in ((16, COORDINATOR, "at the coordinator"), (200, SITE, "at the site, next to the data")):
        shapes.append(box(x, y + 2, 16, 16, colour))
        shapes.append(text(x + 24, y + 15, name, size=12, colour=SOFT))
    return picture("The way of one call from the protocol to the sites and back", shapes, y + 34)


def box(x: float, y: float, width: float, height: float, fill: str) -> str:
    """Return a box with round corners."""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" fill="{fill}" stroke="{LINE}"/>'


def text(
    x: float, y: float, words: str, *, size: float = 13.5, bold: bool = False, colour: str = INK, anchor: str = "start"
) -> str:
    """Return a line of text."""
    style = f'font-size="{size:g}" fill="{colour}" text-anchor="{anchor}"' + ' font-weight="600"' * bold
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(words)}</text>'


def picture(title: str, shapes: list[str], height: float) -> str:
    """Return an SVG on paper of its own, so that it is read in light and dark."""
    inside = "\n".join(shapes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" '
        f'width="{WIDTH}" height="{height:g}" role="img" '
        f'font-family="system-ui, -apple-system, Segoe UI, sans-serif">\n<title>{title}</title>\n'
        f'<rect width="100%" height="100%" rx="10" fill="#ffffff"/>\n{inside}\n</svg>\n'
    )


PICTURES = {"folders.svg": folders, "one-call.svg": one_call}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (HERE / "_static" / name).write_text(draw(), encoding="utf-8")
