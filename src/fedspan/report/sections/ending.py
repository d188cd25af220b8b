"""How a run ended, in words: also of one that never said so."""

from __future__ import annotations

from fedspan.federation.record import INTERRUPTED, RunRecord

AGAIN = "run it again with the same run_dir, or the study with --resume, to go on"
OPEN = "not ended: still running, or it was killed"
# How records of older runs say it.
_INTERRUPTED_ONCE = "failed: KeyboardInterrupt:"


def ending(record: RunRecord) -> tuple[str, str]:
    """Return whether a run ended well (``"good"``), badly or not at all (``"open"``), and how, in words.

    Examples
    --------
    >>> ending(RunRecord("demo", {}, number=0, seed=0, sites=(), stopped="finished"))
    ('good', 'finished')
    """
    if not record.stopped:
        return "open", OPEN
    if record.stopped.startswith((_INTERRUPTED_ONCE, INTERRUPTED)):
        return "bad", INTERRUPTED
    why = record.stopped.strip().rstrip(".:")  # an error may come without words
    return ("bad" if why.startswith("failed") else "good"), why


def ending_with_advice(record: RunRecord) -> tuple[str, str]:
    """Return the same with the last call of a run that has not ended, and how to go on with it.

    Examples
    --------
    >>> ending_with_advice(RunRecord("demo", {}, number=0, seed=0, sites=()))[1].split("; ")[:2]
    ['not ended: still running, or it was killed', 'no call was made']
    """
    kind, why = ending(record)
    if why not in (OPEN, INTERRUPTED):
        return kind, why
    last = record.calls[-1] if record.calls else None
    at = "" if last is None or last.round is None else f" in round {last.round}"
    made = f"the last call was {last.number}, {last.step.rpartition('.')[2]}{at}" if last else "no call was made"
    return kind, f"{why}; {made}; {AGAIN}"
