"""Draws the pictures of docs/inside.md: ``python docs/drawings.py``. The import contract gives the folders."""

from __future__ import annotations

import tomllib
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
WIDTH = 440  # narrow, so that it can be read on a phone
INK, SOFT, PAPER, LINE = "#1b2733", "#4a5a6a", "#f5f7fa", "#9fb0c0"
COORDINATOR, SITE, CAPABILITY = "#dbeafe", "#d9f2e3", "#fdf0d5"

#: What each room holds.
WORDS = {
    "__main__": "python -m fedspan",
    "cli": "the command line",
    "papers": "the papers' tables, ours beside them",
    "plots": "pictures of models: pages, axes",
    "report": "one HTML page for every run",
    "audit": "attacks on what a coordinator received",
    "protocols": "an index of all published algorithms",
    "model_selection": "cross-validation, grid search",
    "atlases": "effects of batches removed",
    "maps": "t-SNE and UMAP",
    "anomaly": "detectors, thresholds",
    "clustering": "k-means, spectral",
    "statistics": "descriptions, tests and regressions by sums",
    "few_shot": "AltGDmin",
    "landmarks": "FedDL",
    "mixed_regression": "mixtures of models",
    "pca": "eleven solvers",
    "tables": "scaling, encoding",
    "base": "the base of all estimators",
    "persistence": "save and load",
    "progress": "progress bars",
    "engines": "carry calls to sites",
    "sums": "moments, quantiles",
    "owner": "a site owner's rules, schema and audit log",
    "attacks": "what to rehearse with",
    "datasets": "loaders, splitters",
    "secure_sum": "totals without parts",
    "aggregation": "means, medians, filters",
    "privacy": "noise, accounting, ledgers",
    "linalg": "pure functions on arrays",
    "federation": "site, step, call, replies, policy, journal, record",
    "durable": "append-only files",
    "wire": "the message format",
    "checks": "checks of numbers and names",
    "errors": "one base class for all errors",
}
CAPABILITIES = {
    *(
        "model_selection",
        "atlases",
        "maps",
        "anomaly",
        "clustering",
        "statistics",
        "few_shot",
        "landmarks",
        "mixed_regression",
    ),
    *("pca", "tables", "sums"),
}
CORE = {"engines", "owner", "secure_sum", "privacy", "aggregation", "linalg", "federation", "durable", "wire"}

#: The way of one call: where each part runs, what happens, and the file.
WAY = (
    ("coordinator", "the protocol calls fed.sum(step, U=U)", "pca/fedpg.py"),
    ("coordinator", "the payload is checked, the call numbered", "federation/federation.py"),
    ("coordinator", "a recorded call is answered by the journal", "federation/journal.py"),
    ("coordinator", "the engine carries it to each site", "engines/local/embedded.py"),
    ("site", "the owner's rules admit or refuse it", "owner/admission.py"),
    ("site", "a repeated call gets the same reply", "federation/site/site_host.py"),
    ("site", "state goes back to the last accepted call", "federation/site/state.py"),
    ("site", "declared types and ranges are checked", "federation/site/parameters.py"),
    ("site", "the step runs next to the data", "pca/fedpg.py"),
    ("site", "a noisy step first charges the site's ledger", "privacy/ledger.py"),
    ("site", "only the reply leaves: names and arrays", "wire.py"),
    ("coordinator", "rehearsed attacks and faults, if any", "federation/calls/corruption.py, faults.py"),
    ("coordinator", "late, misshapen, not finite: a failed site", "federation/calls/reply_checks.py"),
    ("coordinator", "quorum? total or replies to the journal", "federation/journal.py"),
    ("coordinator", "sites, failures, bytes: to the record", "federation/record.py"),
    ("coordinator", "the protocol continues with the total", "pca/fedpg.py"),
)


def layers() -> list[list[str]]:
    """Return the layers of the import contract, the highest first."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    contract = next(c for c in project["tool"]["importlinter"]["contracts"] if c["type"] == "layers")
    return [[name.strip(" ()") for name in layer.split("|")] for layer in contract["layers"]]


def folders() -> str:
    """Draw the folders: each imports only from those below it."""
    shapes, y = [], 16
    for layer in layers():
        width = (WIDTH - 32 - 10 * (len(layer) - 1)) / len(layer)
        name_size, word_size = {1: (13.5, 11), 2: (13.5, 10), 3: (11.5, 9.5)}[len(layer)]
        for i, name in enumerate(layer):
            x, fill = 16 + i * (width + 10), CAPABILITY if name in CAPABILITIES else PAPER
            shapes.append(box(x, y, width, 42, COORDINATOR if name in CORE else fill))
            shapes.append(text(x + 10, y + 18, name, size=name_size, bold=True))
            shapes.append(text(x + 10, y + 34, WORDS[name], size=word_size, colour=SOFT))
        y += 48
    for x, colour, what in ((16, CAPABILITY, "capabilities"), (130, COORDINATOR, "core"), (200, PAPER, "the rest")):
        shapes.append(box(x, y + 4, 16, 16, colour))
        shapes.append(text(x + 24, y + 17, what, size=12, colour=SOFT))
    y += 26
    shapes.append(
        text(WIDTH / 2, y + 12, "a folder imports only from those below it", size=12, colour=SOFT, anchor="middle")
    )
    return picture("The folders of fedspan, each standing on those below", shapes, y + 26)


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
    """Return an SVG with its own white background, to be read in light and dark."""
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
