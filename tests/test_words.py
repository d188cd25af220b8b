"""Words that `src` avoids: the field's own words (malicious site, report, again, repaired) stand in their place."""

from __future__ import annotations

import re
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
AVOIDED = re.compile(r"\b(liars?|nobody|whoever|somebody|anew|mended|rubbish|told)\b", flags=re.IGNORECASE)
TEXT = {".py", ".css", ".js", ".html", ".toml", ".md", ".txt"}


def test_avoided_words_do_not_occur_in_the_source():
    files = [path for path in SOURCE.rglob("*") if path.suffix in TEXT and "egg-info" not in str(path)]
    assert len(files) > 200
    found = [
        f"{path.relative_to(SOURCE)}:{number}: {line.strip()}"
        for path in sorted(files)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if AVOIDED.search(line)
    ]
    assert found == []
