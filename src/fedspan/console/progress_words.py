"""The progress of a detached study in words."""

from __future__ import annotations

from collections.abc import Mapping

from fedspan.report.markup import duration


def progress_words(progress: Mapping[str, object]) -> str:
    """Describe the progress of a study in a line.

    >>> progress_words({"run": "FedPCA", "round": 3, "rounds": 40, "calls": 9, "seconds_left": 75.0})
    'FedPCA, round 3 of at most 40, 9 calls, at most 1 min 15 s left'
    """
    words = [str(progress.get("run") or "starting")]
    if progress.get("rounds"):
        words.append(f"round {progress['round']} of at most {progress['rounds']}")
    words.append(f"{progress.get('calls', 0)} calls")
    left = progress.get("seconds_left")
    if isinstance(left, int | float):
        words.append(f"at most {duration(float(left))} left")
    waiting, failures = progress.get("waiting"), progress.get("failures")
    if isinstance(waiting, list) and waiting:
        words.append(f"waits for {', '.join(map(str, waiting))}")
    if isinstance(failures, dict) and failures:
        words.append("failures: " + ", ".join(f"{count} {kind}" for kind, count in failures.items()))
    return ", ".join(words)
