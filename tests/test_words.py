"""Words that the code avoids: the field's own words (malicious site, report, again, repaired) stand in their place."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "tests", "benchmarks", "examples", "tools")
#: This list, and the name of an account of the operating system.
EXCEPT = {"tests/test_words.py", "tests/owner/postgres_server.py"}
AVOIDED = re.compile(r"\b(liars?|nobody|whoever|somebody|anew|mended|rubbish|told)\b", flags=re.IGNORECASE)
TEXT = {".py", ".css", ".js", ".html", ".toml", ".md", ".txt"}


def test_avoided_words_do_not_occur_in_the_source():
    found_files = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))
    files = [path for path in found_files if path.suffix in TEXT and "egg-info" not in str(path)]
    assert len(files) > 200
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted(files)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if AVOIDED.search(line) and str(path.relative_to(ROOT)) not in EXCEPT
    ]
    assert found == []
