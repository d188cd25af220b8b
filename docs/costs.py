"""Writes docs/protocols/costs.md: ``python docs/costs.py``. Every protocol is run once, and its bytes are counted."""

from __future__ import annotations

import sys
import warnings
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from tests.laws.protocol_examples import EXAMPLES  # noqa: E402

import fedspan as fs  # noqa: E402

PAGE = HERE / "protocols" / "costs.md"
LEAD = """# What every protocol costs

Each public protocol of fedspan, run once on the example that the tests have of it: nine sites of 6 to 80 rows, mostly
eight columns, so that messages are small, and what a message has beside its numbers (some 24 bytes, and each number's
name) is seen. How bytes grow with rows, columns and sites is on the sheet. Bytes are those of the site that has most,
over all calls. Printed by `python docs/costs.py` (seed 1).

| protocol | calls | bytes up | bytes down | sheet | steps |
|---|--:|--:|--:|---|---|
"""


@cache
def sheets() -> dict[str, str]:
    """Return the text of every sheet that is written by hand, by its name."""
    written = (path for path in sorted((HERE / "protocols").glob("*.md")) if path.stem not in ("index", "costs"))
    return {path.stem: path.read_text(encoding="utf-8") for path in written}


def sheet_of(name: str) -> str | None:
    """Return the sheet that names a protocol nearest to its top; "parts" if no other does."""
    found = {stem: text.find(f"`{name}`") for stem, text in sheets().items() if f"`{name}`" in text}
    return min(found, key=lambda stem: (stem == "parts", found[stem]), default=None)


def line(name: str) -> str:
    """Run a protocol's example and return its line of the table."""
    example = EXAMPLES[name]
    with warnings.catch_warnings(), fs.LocalFederation(example.sites(), seed=1).begin(name) as run:
        warnings.simplefilter("ignore", UserWarning)  # of few rounds
        example.protocol(run, **example.settings)
    calls = run.record.calls
    up, down = (
        max((sum(getattr(call, way).get(site, 0) for call in calls) for site in run.sites), default=0)
        for way in ("bytes_up", "bytes_down")
    )
    steps = dict.fromkeys(call.step for call in calls)
    sheet = sheet_of(name)
    return (
        f"| `{name}` | {len(calls)} | {up:,} | {down:,} | [{sheet}]({sheet}.md) | "
        f"{', '.join(f'`{step}`' for step in steps)} |"
    )


def page() -> str:
    """Return the page."""
    return LEAD + "\n".join(line(name) for name in sorted(EXAMPLES)) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(page())
