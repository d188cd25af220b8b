"""How a run ended, in words for people."""

from __future__ import annotations

from fedspan.federation.outcomes import EndingKind
from fedspan.federation.record import RunRecord

AGAIN = "run it again with the same run_dir, or the study with --resume, to continue"
OPEN = "not ended: still running, or it was killed"
_BAD = (EndingKind.FAILED, EndingKind.INTERRUPTED)


def ending(record: RunRecord) -> tuple[str, str]:
    """Return whether a run ended well (``"good"``), badly or not at all (``"open"``), and how, in words.

    Examples
    --------
    >>> from fedspan.federation import Ending
    >>> ending(RunRecord("demo", {}, number=0, seed=0, sites=(), stopped=Ending(EndingKind.FINISHED)))
    ('good', 'finished')
    """
    ended = record.stopped
    if ended.kind is EndingKind.RUNNING:
        return "open", OPEN
    return ("bad" if ended.kind in _BAD else "good"), ended.strip().rstrip(".:")  # an error may come without words


def ending_with_advice(record: RunRecord) -> tuple[str, str]:
    """Return the same with the last call of a run that has not ended, and how to continue it.

    Examples
    --------
    >>> ending_with_advice(RunRecord("demo", {}, number=0, seed=0, sites=()))[1].split("; ")[:2]
    ['not ended: still running, or it was killed', 'no call was made']
    """
    state, words = ending(record)
    if record.stopped.kind not in (EndingKind.RUNNING, EndingKind.INTERRUPTED):
        return state, words
    last = record.calls[-1] if record.calls else None
    at = "" if last is None or last.round is None else f" in round {last.round}"
    made = f"the last call was {last.number}, {last.step}{at}" if last else "no call was made"
    return state, f"{words}; {made}; {AGAIN}"
