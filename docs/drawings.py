"""Draws the diagrams of the documentation: ``python docs/drawings.py``. The import contract gives the folders."""

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
    "pipelines": "streams, exports",
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
    "gateway": "detectors on small devices",
    "base": "the base of all estimators",
    "persistence": "save and load",
    "progress": "progress bars",
    "tracking": "MLflow, TensorBoard",
    "console": "local pages of owners and coordinators",
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
    "arrays": "types of arrays",
    "checks": "checks of numbers and names",
    "errors": "one base class for all errors",
}
CAPABILITIES = {
    *(
        "model_selection",
        "pipelines",
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
    ("coordinator", "the payload is checked, the call numbered", "federation/calling.py"),
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
            shapes.append(arrow(WIDTH / 2, y - 12, y - 2))
        shapes.append(box(left, y, WIDTH - 32 if left == 16 else WIDTH - 72, 44, COORDINATOR if left == 16 else SITE))
        shapes.append(text(left + 12, y + 19, what, bold=True))
        shapes.append(text(left + 12, y + 36, file, size=11, colour=SOFT))
        y += 58
    for x, colour, name in ((16, COORDINATOR, "at the coordinator"), (200, SITE, "at the site, next to the data")):
        shapes.append(box(x, y + 2, 16, 16, colour))
        shapes.append(text(x + 24, y + 15, name, size=12, colour=SOFT))
    return picture("The way of one call from the protocol to the sites and back", shapes, y + 34)


def three_commands() -> str:
    """Draw the way from tables to scores: a command between each file and the next."""
    files = (
        ("north.csv   south.csv   west.csv", "one table per site, as it was exported", SITE),
        ("study.toml", "what to read and what to learn, with comments", CAPABILITY),
        ("study/", "the model, the record of the run, report.html", CAPABILITY),
        ("scores.csv", "for each new row: score, alarm, reasons", COORDINATOR),
    )
    commands = ("fedspan init north.csv south.csv west.csv", "fedspan run study.toml")
    commands += ("fedspan apply study new.csv --out scores.csv",)
    shapes = []
    for i, (name, words, fill) in enumerate(files):
        y = 16 + 92 * i
        shapes += [box(40, y, WIDTH - 80, 46, fill), text(54, y + 20, name, bold=True)]
        shapes.append(text(54, y + 37, words, size=11.5, colour=SOFT))
        if i < len(commands):
            shapes += [arrow(60, y + 50, y + 88), text(76, y + 74, commands[i], size=12, colour=INK)]
    return picture("Three commands from tables to scores", shapes, 16 + 92 * len(files) - 34)


def columns_by_name() -> str:
    """Draw tables with other column orders that become one."""
    tables = (("north", ("age", "dose", "sex")), ("south", ("sex", "age", "dose")), ("west", ("dose", "sex", "age")))
    fills, shapes = {"age": COORDINATOR, "dose": SITE, "sex": CAPABILITY}, []
    for i, (site, columns) in enumerate(tables):
        x = 16 + 140 * i
        shapes.append(text(x + 64, 28, site, bold=True, anchor="middle"))
        shapes += _table(x, 38, columns, fills)
        shapes.append(arrow(x + 64, 112, 138))
    shapes += _table(WIDTH / 2 - 64, 146, ("age", "dose", "sex"), fills)
    words = "columns are matched by name, whatever their order"
    shapes.append(text(WIDTH / 2, 238, words, size=12, colour=SOFT, anchor="middle"))
    return picture("Tables whose columns are matched by name", shapes, 254)


def _table(x: float, y: float, columns: tuple[str, ...], fills: dict[str, str]) -> list[str]:
    shapes = []
    for j, column in enumerate(columns):
        shapes.append(box(x + 43 * j, y, 42, 68, fills[column]))
        shapes.append(text(x + 43 * j + 21, y + 17, column, size=11.5, anchor="middle", bold=True))
        bars = "".join(f"M{x + 43 * j + 9:g} {y + 30 + 11 * k:g}h24" for k in range(3))
        shapes.append(f'<path d="{bars}" stroke="{LINE}" stroke-width="4" stroke-linecap="round"/>')
    return shapes


def between_hospitals() -> str:
    """Draw three sites with their owners' rules, the coordinator, and the user."""
    shapes = []
    for i, name in enumerate(("north", "south", "west")):
        x = 16 + 138 * i
        shapes += [box(x, 16, 130, 92, SITE), text(x + 65, 36, name, bold=True, anchor="middle")]
        for k, words in enumerate(("its rows", "its owner's rules", "its audit log")):
            shapes.append(text(x + 65, 56 + 17 * k, words, size=11.5, colour=SOFT, anchor="middle"))
        shapes.append(arrow(x + 56, 112, 150, up=True) + arrow(x + 74, 112, 150))
    shapes += [box(16, 154, WIDTH - 32, 48, COORDINATOR)]
    shapes.append(text(WIDTH / 2, 174, "coordinator", bold=True, anchor="middle"))
    words = "passes signed requests up and replies down; forges none"
    shapes.append(text(WIDTH / 2, 192, words, size=11.5, colour=SOFT, anchor="middle"))
    shapes.append(arrow(WIDTH / 2 - 9, 206, 236, up=True) + arrow(WIDTH / 2 + 9, 206, 236))
    shapes += [box(120, 240, WIDTH - 240, 48, CAPABILITY)]
    shapes.append(text(WIDTH / 2, 260, "you", bold=True, anchor="middle"))
    shapes.append(text(WIDTH / 2, 278, "a kit, a study, a result", size=11.5, colour=SOFT, anchor="middle"))
    return picture("Sites, coordinator and user of a real federation", shapes, 304)


def secure_sum() -> str:
    """Draw a secure sum of three numbers: masks that cancel."""
    rows = (("north", 12, 40, -7), ("south", 30, -40, 22), ("west", 15, 7, -22))
    shapes = [text(16, 26, "at each site: its number and two masks", size=12, colour=SOFT)]
    shapes.append(text(WIDTH - 16, 26, "what leaves it", size=12, colour=SOFT, anchor="end"))
    for i, (name, value, first, second) in enumerate(rows):
        y = 38 + 46 * i
        shapes += [box(16, y, 288, 38, SITE), text(28, y + 24, name, bold=True)]
        masks = f"{value} {_signed(first)} {_signed(second)}"
        shapes += [text(292, y + 24, masks, anchor="end"), text(322, y + 24, "=", size=15)]
        shapes += [box(344, y, 80, 38, CAPABILITY), text(384, y + 24, str(value + first + second), anchor="middle")]
    total = sum(value for _, value, _, _ in rows)
    shapes.append(arrow(384, 178, 198))
    shapes += [box(16, 202, WIDTH - 32, 44, COORDINATOR)]
    shapes.append(text(28, 229, "the coordinator adds them: the masks cancel", size=12.5))
    shapes.append(text(WIDTH - 32, 230, str(total), size=18, bold=True, anchor="end"))
    return picture("A secure sum of three numbers: the masks cancel", shapes, 262)


def _signed(value: int) -> str:
    return f"{'+' if value >= 0 else '−'} {abs(value)}"


def which_method() -> str:
    """Draw what leaves a site, from least to most, with the methods of each level."""
    levels = (
        ("sums with noise", "a guarantee for each row: privacy=...", "scaler, PCA, k-means, detector, quantiles"),
        ("secure sums", "only totals over all sites", "the same, and maps with share='sums'"),
        ("sums of each site", "means, second moments, counts", "the same, with medians against malicious sites"),
        ("one model per site", "a subspace, or coefficients", "one-shot PCA, few-shot, mixed regression"),
        ("one entry per row", "can amount to the rows", "maps and clusters by landmarks"),
    )
    shades = ("#d9f2e3", "#e4f3dc", "#f4f1d4", "#fbe6cf", "#f9d5cc")
    shapes = [text(16, 26, "what leaves a site", size=12, colour=SOFT)]
    for i, ((name, words, methods), fill) in enumerate(zip(levels, shades, strict=True)):
        y = 38 + 62 * i
        shapes += [box(16, y, WIDTH - 32, 56, fill), text(30, y + 19, name, bold=True)]
        shapes.append(text(WIDTH - 30, y + 19, words, size=11.5, colour=SOFT, anchor="end"))
        shapes.append(text(30, y + 41, methods, size=12))
    y = 38 + 62 * len(levels)
    shapes.append(text(16, y + 12, "less leaves a site towards the top", size=12, colour=SOFT))
    return picture("What leaves a site, and which methods need it", shapes, y + 28)


def report_sections() -> str:
    """Draw the sections of a report."""
    sections = (
        ("The result in a sentence", "and a few numbers in large print"),
        ("Map", "of rows, where a model has one: zoom, colour, point"),
        ("Models", "what was learned: components, thresholds, groups"),
        ("Requested, Sites", "parameters, seed; who took part, with failures"),
        ("Rounds and bytes", "every call, and what it cost"),
        ("Why it stopped, Metrics, Failures", "in words, as curves, with reasons"),
        ("Privacy", "what left the sites, and what noise covers"),
        ("Run it again", "lines that give the same bytes"),
    )
    shapes = []
    for i, (name, words) in enumerate(sections):
        y = 16 + 50 * i
        shapes += [box(16, y, WIDTH - 32, 44, CAPABILITY if i == 0 else PAPER), text(30, y + 19, name, bold=True)]
        shapes.append(text(30, y + 35, words, size=11.5, colour=SOFT))
    return picture("The sections of a report", shapes, 22 + 50 * len(sections))


def folds() -> str:
    """Draw folds that each site draws from its own rows, and whole sites left out."""
    shapes, sites = [], ("north", "south", "west")
    for left, title, held in (
        (16, "rows held back at each site", lambda i, j: (i + 2 * j) % 5 == 0),
        (232, "a whole site left out", lambda i, j: j == 1),
    ):
        shapes.append(text(left, 26, title, size=12, colour=SOFT))
        for j, name in enumerate(sites):
            y = 40 + 42 * j
            shapes.append(text(left, y + 21, name, size=12, bold=True))
            shapes += [box(left + 48 + 29 * i, y, 26, 34, CAPABILITY if held(i, j) else SITE) for i in range(5)]
    for x, colour, words in ((16, SITE, "the model is fitted on these"), (232, CAPABILITY, "and scored on these")):
        shapes += [box(x, 176, 16, 16, colour), text(x + 24, 189, words, size=12, colour=SOFT)]
    return picture("Folds of rows at each site, and whole sites left out", shapes, 206)


def row_blocks() -> str:
    """Draw a table larger than memory, of which one block at a time is added to the sums."""
    shapes = [text(16, 26, "a table on the site's disk", size=12, colour=SOFT)]
    shapes += [box(16, 36 + 26 * i, 150, 22, CAPABILITY if i == 2 else PAPER) for i in range(6)]
    shapes.append(text(91, 103, "a block in memory", size=11.5, anchor="middle"))
    shapes.append(f'<path d="M172 99H216m-5 -4l5 4l-5 4" fill="none" stroke="{SOFT}" stroke-width="1.5"/>')
    shapes += [box(222, 70, 90, 58, SITE), text(267, 96, "sums", bold=True, anchor="middle")]
    shapes.append(text(267, 114, "of the site", size=11.5, colour=SOFT, anchor="middle"))
    shapes.append(f'<path d="M318 99H348m-5 -4l5 4l-5 4" fill="none" stroke="{SOFT}" stroke-width="1.5"/>')
    shapes += [box(354, 70, 70, 58, COORDINATOR), text(389, 96, "total", bold=True, anchor="middle")]
    shapes.append(text(389, 114, "of all sites", size=11.5, colour=SOFT, anchor="middle"))
    return picture("One block of rows at a time is added to the sums of a site", shapes, 206)


def arrow(x: float, start: float, end: float, *, up: bool = False) -> str:
    """Return a vertical arrow."""
    tip, side = (start, 5) if up else (end, -5)
    line = f"M{x:g} {start:g}V{end:g}M{x - 4:g} {tip + side:g}L{x:g} {tip:g}L{x + 4:g} {tip + side:g}"
    return f'<path d="{line}" fill="none" stroke="{SOFT}" stroke-width="1.5"/>'


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


PICTURES = {
    "folders.svg": folders,
    "one-call.svg": one_call,
    "three-commands.svg": three_commands,
    "columns-by-name.svg": columns_by_name,
    "between-hospitals.svg": between_hospitals,
    "secure-sum.svg": secure_sum,
    "which-method.svg": which_method,
    "report-sections.svg": report_sections,
    "folds.svg": folds,
    "row-blocks.svg": row_blocks,
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (HERE / "_static" / name).write_text(draw(), encoding="utf-8")
