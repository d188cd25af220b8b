"""A study in plain words, from what is installed here: what it computes, what leaves the site, how often."""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass

import fedspan
from fedspan.federation.site.discovery import install_steps
from fedspan.owner.decisions import Proposal
from fedspan.owner.rules import Rules
from fedspan.owner.study_plan import SECURE, PlannedRun, PlannedStep, StudyPlan, is_shape
from fedspan.report.sections.privacy_section import leaves_and_reveals

#: What the word of a step's ``reveals`` means to an owner.
REVEALS = {
    "nothing": "nothing about rows",
    "sums": "sums over your rows",
    "rows": "single rows or cells",
    "–": "unknown: this step is not installed here",
}
_HOW = {
    "ask": "the coordinator sees your reply",
    "sum": "the coordinator sees your reply, and adds it up",
    "mean": "the coordinator sees your reply, and averages it",
    "merge": "the coordinator sees your reply, and merges it",
    SECURE: "the coordinator sees only the total over several sites",
}


@dataclass(frozen=True)
class StepWords:
    """One step for an owner: what leaves, what that reveals, who sees it, how often at most, what is fixed.

    `against` is the reason why the site's rules refuse it, if they do.
    """

    step: str
    leaves: str
    reveals: str
    seen: str
    calls: int
    fixed: str
    against: str = ""


def step_words(step: PlannedStep, rules: Rules | None = None) -> StepWords:
    """Describe a step of a plan, and whether the rules allow it at all."""
    leaves, reveals = leaves_and_reveals(step.step)
    exact = {name: values for name, values in step.parameters.items() if values and not any(map(is_shape, values))}
    fixed = ", ".join(f"{name} = {' or '.join(values)}" for name, values in exact.items())
    free = ", ".join(name for name in step.parameters if name not in exact)
    through = f"through {', '.join(step.transforms)}" if step.transforms else ""
    words = "; ".join(part for part in (through, fixed, f"{free}: as the run goes" if free else "") if part)
    against = ""
    if rules is not None and step.step not in rules.steps:
        against = "your rules do not allow this step, and it will be refused"
    elif rules is not None and rules.sums_only and step.how != SECURE and reveals != "nothing":
        against = "your rules allow secure sums only, and it will be refused"
    return StepWords(step.step, leaves, reveals, _HOW.get(step.how, step.how), step.calls, words, against)


def computes(run: PlannedRun) -> str:
    """Return what a run computes: the first sentence of what is installed here under its name.

    The name is the user's. Only modules that define steps, or are loaded already, are looked at, and none is imported
    for it: `fedspan.__main__` would start the command line.
    """
    module, _, name = run.what.rpartition(".")
    found: object = getattr(fedspan, name, None) if not module and name in fedspan.__all__ else None
    if module.startswith("fedspan."):
        install_steps()
        found = getattr(sys.modules.get(module), name, None)
    doc = inspect.getdoc(found) if found is not None and callable(found) else None
    return " ".join((doc or "").partition("\n\n")[0].split()).replace("`", "") or "not known to this site"


def worst(plan: StudyPlan) -> str:
    """Return the most that any step of a plan reveals."""
    found = {leaves_and_reveals(step.step)[1] for run in plan.runs for step in run.steps}
    return next((one for one in ("–", "rows", "sums") if one in found), "nothing")


def decision_words(proposal: Proposal) -> str:
    """Return the state of a proposal as a phrase."""
    return {
        "waiting": "waits for your decision",
        "once": "approved once",
        "always": "approved as long as nothing changes",
        "refused": f"refused: {proposal.why}" if proposal.why else "refused",
    }[proposal.state]


def study_lines(proposal: Proposal, rules: Rules | None = None) -> list[str]:
    """Return a study as lines of text, for a terminal."""
    plan = proposal.plan
    lines = [
        f"{proposal.ticket}  {proposal.when[:16].replace('T', ' ')}  {proposal.who}: {plan.title or 'untitled'}  "
        f"({decision_words(proposal)})"
    ]
    for run in plan.runs:
        settings = f" ({run.settings})" if run.settings else ""
        lines.append(f"  the user calls it {run.what}{settings}: {computes(run)}")
        for step in run.steps:
            words = step_words(step, rules)
            lines.append(f"    at most {words.calls:,} x {words.step}: leaves {words.leaves}")
            lines.append(f"      reveals {REVEALS[words.reveals]}; {words.seen}")
            lines += [f"      fixed: {words.fixed}"] if words.fixed else []
            lines += [f"      {words.against}"] if words.against else []
        lines.append(f"    privacy, as the user states it: {run.privacy or 'no noise, so that no budget is spent'}")
    return [line.replace("\n", " ") for line in lines]  # a text of the user's makes no lines of its own
