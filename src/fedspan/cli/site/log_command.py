"""``fedspan site log``: verify an audit log and sum it up."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

from fedspan.checks import printable
from fedspan.errors import PolicyError
from fedspan.owner.audit_log import OUTCOMES, read_lines


def log(file: Path, refused: bool, last: str | None) -> int:
    """Print each user's calls by outcome, and the bytes that left; return 1 if the log was altered."""
    try:
        lines = read_lines(file)
    except PolicyError as error:
        print(f"problem: {error}")
        return 1
    calls: dict[str, Counter[str]] = defaultdict(Counter)
    sent: Counter[str] = Counter()
    for entry, _ in lines:
        user = entry["who"] or "(unknown)"
        calls[user][entry["outcome"]] += 1
        sent[user] += entry["bytes"]
        if refused and entry["outcome"] != "answered":
            what = entry["step"] or entry["how"]
            print(_one_line(f"{entry['when']}  {user}  {entry['outcome']} {what}: {entry['why']}"))
    span = _one_line(f", from {lines[0][0]['when']} to {lines[-1][0]['when']}") if lines else ""
    print(f"{file}: {len(lines):,} lines{span}")
    for user in sorted(calls):
        counts = ", ".join(f"{calls[user][outcome]:,} {outcome}" for outcome in OUTCOMES)
        print(_one_line(f"  {user}: {counts}; {sent[user]:,} bytes left the site"))
    if last is not None and last not in (digest for _, digest in lines):
        print(f"problem: no line has the digest {last}: lines were removed from the end, or it is of another log")
        return 1
    print(f"every line follows from the previous one; the last digest is {lines[-1][1] if lines else 'none'}")
    return 0


def _one_line(text: str) -> str:
    """Escape control characters, ends of lines too: a log holds text from outside."""
    return printable(text).replace("\n", "\\n")
