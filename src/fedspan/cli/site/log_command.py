"""``fedspan site log``: verify an audit log and sum it up."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

from fedspan.errors import PolicyError
from fedspan.owner.audit_log import OUTCOMES, read_lines


def show_log(path: Path, *, refused: bool = False, last: str | None = None) -> int:
    """Print who asked how often, with what outcome, and what left; return 1 if the log is not what it was."""
    calls: dict[str, Counter[str]] = defaultdict(Counter)
    sent: Counter[str] = Counter()
    lines, digest, found, when = 0, "", last is None, ("", "")
    try:
        for entry, digest in read_lines(path):
            who = str(entry["who"]) or "(nobody known)"
            calls[who][entry["outcome"]] += 1
            sent[who] += int(entry["bytes"])
            lines += 1
            found = found or digest == last
            when = (when[0] or entry["when"], entry["when"])
            if refused and entry["outcome"] != "answered":
                what = entry["step"] or entry["how"]
                print(_plain(f"{entry['when']}  {who}  {entry['outcome']} {what}: {entry['why']}"))
    except PolicyError as error:
        print(f"problem: {error}")
        return 1
    span = _plain(f", from {when[0]} to {when[1]}") if lines else ""
    print(f"{path}: {lines:,} lines{span}")
    for who in sorted(calls):
        said = ", ".join(f"{calls[who][outcome]:,} {outcome}" for outcome in OUTCOMES)
        print(_plain(f"  {who}: {said}; {sent[who]:,} bytes left the site"))
    if not found:
        print(f"problem: no line has the digest {last}: lines were taken off the end, or it is of another log")
        return 1
    print(f"every line follows from the one before; the last digest is {digest or 'none'}")
    return 0


def _plain(text: str) -> str:
    """Return text in which nothing moves a cursor or begins a line: what is in a log may come from outside."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)
