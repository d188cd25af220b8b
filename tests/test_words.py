"""Words that the project avoids: the field's own (malicious site, report, again, repaired) stand in their place."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
AVOIDED = re.compile(r"\b(liars?|nobody|whoever|somebody|anew|mended|rubbish|told)\b", flags=re.IGNORECASE)
TEXT = {".py", ".css", ".js", ".html", ".toml", ".md", ".txt", ".rst", ".svg", ".ipynb"}
BUILT = {"_build", "api", "gallery", "__pycache__"}


def texts(folder: str) -> list[Path]:
    """Return the files of a folder that people wrote."""
    found = sorted((ROOT / folder).rglob("*"))
    return [
        path for path in found if path.suffix in TEXT and not BUILT & set(path.parts) and "egg-info" not in str(path)
    ]


def test_avoided_words_do_not_occur():
    files = [*texts("src"), *texts("docs"), *texts("examples"), ROOT / "README.md", ROOT / "SECURITY.md"]
    assert len(files) > 280
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if AVOIDED.search(line)
    ]
    assert found == []
