"""Run with ``python -m tools.site_widths``: which pages of the built site are wider than a phone or a window.

Opens every page of ``docs/_build/html`` in Chromium, in widths of 390 and 1300 pixels. Tables and code may scroll by
themselves; pages may not. Returns 1 if one does.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.report.chromium import Chromium

SITE = Path("docs/_build/html")
WIDTHS = (390, 1300)
# What scrolls sideways though it is no table, code or formula; and by how much.
WIDER = """[...document.querySelectorAll('html, .bd-article, .bd-article-container, .bd-content')]
    .filter(part => part.scrollWidth > part.clientWidth + 1)
    .map(part => `${part.className || part.tagName}: ${part.scrollWidth} in ${part.clientWidth}`)"""


def too_wide(site: Path) -> Iterator[str]:
    """Yield a line for each page and width."""
    pages = [page for page in sorted(site.rglob("*.html")) if "_static" not in page.parts]
    with tempfile.TemporaryDirectory() as profile:
        browser = Chromium(Path(profile))
        try:
            for page in pages:
                for width in WIDTHS:
                    browser.open(page, width=width)
                    if found := browser.run(WIDER):
                        yield f"{page.relative_to(site)} at {width}: {'; '.join(found)}"
        finally:
            browser.close()
        print(f"{len(pages)} pages, {len(WIDTHS)} widths")


def main() -> int:
    """Print what is too wide, and return 1 if anything is."""
    site = Path(sys.argv[1]) if len(sys.argv) > 1 else SITE
    if not site.is_dir():
        print(f"{site} is not there: make docs", file=sys.stderr)
        return 2
    found = 0
    for line in too_wide(site):
        print(line, flush=True)
        found += 1
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
