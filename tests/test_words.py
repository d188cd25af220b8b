"""Words that the project avoids: the field's own (malicious site, report, again, repaired) stand in their place."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "tests", "benchmarks", "docs", "examples", "tools")
#: This list, and the name of an account of the operating system.
EXCEPT = {"tests/test_words.py", "tests/owner/postgres_server.py"}
AVOIDED = re.compile(r"\b(liars?|nobody|whoever|somebody|anew|mended|rubbish|told)\b", flags=re.IGNORECASE)
TEXT = {".py", ".css", ".js", ".html", ".toml", ".md", ".txt", ".rst", ".svg", ".ipynb"}
#: What `make docs` writes.
BUILT = {"_build", "api", "gallery"}


def texts(folder: str) -> list[Path]:
    """Return the files of a folder that people wrote."""
    found = (path for path in (ROOT / folder).rglob("*") if path.suffix in TEXT and "egg-info" not in str(path))
    return sorted(path for path in found if folder != "docs" or not BUILT & set(path.relative_to(ROOT).parts))


def test_avoided_words_do_not_occur():
    files = [path for folder in FOLDERS for path in texts(folder)] + [ROOT / "README.md", ROOT / "SECURITY.md"]
    assert len(files) > 300
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if AVOIDED.search(line) and str(path.relative_to(ROOT)) not in EXCEPT
    ]
    assert found == []
