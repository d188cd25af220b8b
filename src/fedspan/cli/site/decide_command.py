"""``fedspan site studies | approve | refuse | stop | pause | resume``: the owner's decisions, by commands."""

from __future__ import annotations

from pathlib import Path

from fedspan.cli.console import print_line
from fedspan.console.site_view import SiteView
from fedspan.console.study_words import decision_words, study_lines
from fedspan.errors import InputError
from fedspan.owner.decisions import ALWAYS, ONCE, REFUSED, begins_with

_BY = "command"


def studies(file: Path, everything: bool) -> int:
    """Print the studies that wait, the runs that go on, and what was decided."""
    view = _view(file)
    if view.decisions.paused is not None:
        print_line(f"paused since {view.decisions.paused_since}: {view.decisions.paused or 'no reason given'}")
    waiting = view.waiting
    print_line(f"waiting for approval: {len(waiting) or 'none'}")
    for study in waiting:
        for line in study_lines(study, view.rules):
            print_line(f"  {line}")
    for state, runs in (("running", view.running), ("interrupted", view.interrupted)):
        print_line(f"{state}: {len(runs) or 'none'}")
        for run in runs:
            of = f" of at most {run.most_calls:,}" if run.most_calls else ""
            calls = f"{run.calls:,}{of} calls, {run.bytes:,} bytes left"
            print_line(f"  {run.run}  {run.who}  {calls}, last {run.last[:19]}")
    if everything:
        decided = [one for one in view.decisions.proposals.values() if one.state != "waiting"]
        print_line(f"decided: {len(decided) or 'none'}")
        for one in decided:
            title = one.plan.title.replace("\n", " ")
            print_line(f"  {one.ticket}  {one.decided[:16]}  {one.who}: {title}  ({decision_words(one)})")
        over = [run for run in view.runs.values() if run.ended or run.stopped is not None]
        print_line(f"over: {len(over) or 'none'}")
        for run in over:
            state = "stopped by the owner" if run.stopped is not None else "ended"
            print_line(f"  {run.run}  {run.who}  {state}, {run.calls:,} calls, {run.bytes:,} bytes left")
    return 0


def approve(file: Path, study: str, always: bool) -> int:
    """Approve a study."""
    found = _view(file).decisions.decide(study, ALWAYS if always else ONCE, "", _BY)
    print_line(f"{found.ticket}: {decision_words(found)}")
    return 0


def refuse(file: Path, study: str, why: str) -> int:
    """Refuse a study, or withdraw an approval."""
    if not why.strip():
        raise InputError("--why must give a reason: the user reads it")
    found = _view(file).decisions.decide(study, REFUSED, why.strip(), _BY)
    print_line(f"{found.ticket}: {decision_words(found)}")
    return 0


def stop(file: Path, run: str, why: str) -> int:
    """Stop a run."""
    view = _view(file)
    found = begins_with(run, view.runs)
    if len(found) != 1:
        raise InputError(f"{len(found) or 'no'} runs here begin with {run!r}: 'fedspan site studies' lists them")
    view.decisions.stop(found[0], why.strip(), _BY)
    print_line(f"{found[0]}: stopped; nothing more of it leaves this site")
    return 0


def pause(file: Path, why: str) -> int:
    """Let the site answer nothing."""
    _view(file).decisions.pause(why.strip(), _BY)
    print_line("paused: 'fedspan site resume' lets the site answer again")
    return 0


def resume(file: Path) -> int:
    """Let the site answer again."""
    _view(file).decisions.resume(_BY)
    print_line("the site answers again")
    return 0


def _view(file: Path) -> SiteView:
    view = SiteView(file)
    if view.problems:
        raise InputError("; ".join(view.problems))
    return view
