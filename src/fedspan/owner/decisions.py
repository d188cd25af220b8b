"""The owner's decisions: which studies may run, which runs are stopped, and whether the site is paused.

The owner's page and the commands write them to one append-only file, and the site reads it before every answer. So a
decision counts at once, whichever process made it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedspan.durable.append_file import AppendFile, AppendFileError, Entry, UnwritableError
from fedspan.errors import DiskError, PausedError, PolicyError
from fedspan.owner.audit_log import now
from fedspan.owner.study_plan import PlannedRun, PlannedStep, StudyPlan

#: Decisions about a study: it may run this time, as long as its plan stays the same, or not.
ONCE, ALWAYS, REFUSED = "once", "always", "refused"
DECISIONS = (ONCE, ALWAYS, REFUSED)
WAITING = "waiting"
#: Studies of one user that may wait for a decision at a time.
MOST_WAITING = 20


class DecisionsError(PolicyError):
    """The file of the owner's decisions cannot be used, and nothing runs that it may forbid."""


@dataclass
class Proposal:
    """A study that a user has proposed: `ticket` names this time, the plan's digest the study.

    `state` is ``"waiting"``, or the decision. `runs` has the ids of its runs so far, each with its place in the plan.
    """

    ticket: str
    who: str
    when: str
    plan: StudyPlan
    state: str = WAITING
    why: str = ""
    decided: str = ""
    runs: dict[str, int] = field(default_factory=dict)

    @property
    def approved(self) -> bool:
        """Whether it may run."""
        return self.state in (ONCE, ALWAYS)


class Decisions:
    """The decisions of one site's owner, in a file of mode 0600 that several processes use.

    Parameters
    ----------
    path : path
    read_only : bool, default=False
        Read them only, for a page or a list.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self.proposals: dict[str, Proposal] = {}
        self.stopped: dict[str, str] = {}  # by run: why
        self.paused: str | None = None  # why, while the site is paused
        self.paused_since = ""
        self._always: dict[tuple[str, str], str] = {}  # by user and digest: when the owner approved it for good
        self._file = AppendFile(path, shared=True, sync=True, read_only=read_only, accept=self._take)
        if not read_only or path.exists():
            self.read()

    def read(self) -> None:
        """Read what other processes have written."""
        with self._locked():
            pass

    # What users do.

    def propose(self, who: str, ticket: str, plan: StudyPlan) -> Proposal:
        """Note a user's study, once for each ticket, and return what was decided."""
        with self._locked():
            known = self.proposals.get(ticket)
            if known is not None:
                if known.who != who or known.plan.digest != plan.digest:
                    raise PolicyError("another study has been proposed under this ticket: propose it under a new one")
                return known
            waiting = [one for one in self.proposals.values() if one.who == who and one.state == WAITING]
            if len(waiting) >= MOST_WAITING:
                raise PolicyError(f"{MOST_WAITING} of your studies wait for this site's owner: no more are accepted")
            self._append("proposed", ticket=ticket, who=who, plan=plan.text())
            return self.proposals[ticket]

    def planned(self, who: str, ticket: str, run: str) -> PlannedRun:
        """Return the plan of an approved run, or refuse it. The first call of a run takes its place in the study."""
        with self._locked():
            proposal = self.proposals.get(ticket)
            if proposal is None or proposal.who != who:
                raise PolicyError(
                    "this site's owner approves every study before it runs, and this one was not proposed: run it "
                    "from a study file, or call fed.propose(...) first"
                )
            if not proposal.approved:
                reason = f"has refused this study: {proposal.why}" if proposal.state == REFUSED else "has not decided"
                raise PolicyError(f"this site's owner {reason}")
            if run not in proposal.runs:
                self._append("begun", ticket=ticket, run=run, place=_free_place(proposal, run))
            return proposal.plan.runs[proposal.runs[run]]

    # What the owner does.

    def decide(self, ticket: str, decision: str, why: str = "", by: str = "") -> Proposal:
        """Approve a study once or for good, or refuse it with a reason. The latest decision counts."""
        with self._locked():
            proposal = self._found(ticket)
            self._append("decided", ticket=proposal.ticket, decision=decision, why=why[:500], by=by[:100])
            return proposal

    def stop(self, run: str, why: str = "", by: str = "") -> None:
        """Stop a run: no further reply of it leaves the site."""
        with self._locked():
            self._append("stopped", run=run, why=why[:500], by=by[:100])

    def pause(self, why: str = "", by: str = "") -> None:
        """Answer nothing until `resume`; runs wait."""
        with self._locked():
            self._append("paused", why=why[:500], by=by[:100])

    def resume(self, by: str = "") -> None:
        """Let the site answer requests again."""
        with self._locked():
            self._append("resumed", by=by[:100])

    # What the site asks.

    def check_open(self, run: str = "") -> None:
        """Refuse everything while the site is paused, and what belongs to a run that was stopped."""
        self.read()
        if self.paused is not None:
            raise PausedError(f"this site's owner has paused it{_because(self.paused)}")
        if run in self.stopped:
            raise PolicyError(f"this site's owner has stopped this run{_because(self.stopped[run])}")

    def _found(self, ticket: str) -> Proposal:
        """Return the proposal of this ticket, or the one whose ticket begins with this text."""
        found = begins_with(ticket, self.proposals)
        if len(found) != 1:
            state = "no study is" if not found else "several studies are"
            raise PolicyError(f"{state} called {ticket!r} here: 'fedspan site studies' lists them")
        return self.proposals[found[0]]

    def _append(self, kind: str, **fields: Any) -> None:
        self._file.append({"kind": kind, "when": now().isoformat(timespec="seconds"), **fields})

    def _take(self, entry: Entry) -> None:
        """Take in one entry; `ValueError` refuses the file."""
        fields = entry.fields
        take: Callable[[Mapping[str, Any]], None] | None = getattr(self, f"_take_{fields['kind']}", None)
        if take is None:
            raise ValueError(f"{fields['kind']!r} is not a decision")
        take(fields)

    def _take_proposed(self, fields: Mapping[str, Any]) -> None:
        proposal = Proposal(fields["ticket"], fields["who"], fields["when"], StudyPlan.read(fields["plan"]))
        self.proposals[proposal.ticket] = proposal
        since = self._always.get((proposal.who, proposal.plan.digest))
        if since is not None:
            proposal.state, proposal.decided = ALWAYS, since

    def _take_decided(self, fields: Mapping[str, Any]) -> None:
        if fields["decision"] not in DECISIONS:
            raise ValueError("the decision is unknown")
        proposal = self.proposals[fields["ticket"]]
        key = proposal.who, proposal.plan.digest
        if fields["decision"] == ALWAYS:
            self._always[key] = fields["when"]
        else:
            self._always.pop(key, None)
        for one in self.proposals.values():
            same = (one.who, one.plan.digest) == key and one.state in (ALWAYS, WAITING)
            if one is proposal or (same and fields["decision"] != ONCE):
                one.state, one.why, one.decided = fields["decision"], fields["why"], fields["when"]
            elif same:  # what ran as long as nothing changes waits for a decision of its own
                one.state = WAITING

    def _take_begun(self, fields: Mapping[str, Any]) -> None:
        self.proposals[fields["ticket"]].runs[fields["run"]] = int(fields["place"])

    def _take_stopped(self, fields: Mapping[str, Any]) -> None:
        self.stopped[fields["run"]] = fields["why"]

    def _take_paused(self, fields: Mapping[str, Any]) -> None:
        self.paused, self.paused_since = fields["why"], fields["when"]

    def _take_resumed(self, fields: Mapping[str, Any]) -> None:
        self.paused = None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            with self._file.locked():
                yield
        except UnwritableError as error:
            raise DiskError(f"the file of this site's decisions {error}, and nothing runs without it") from None
        except AppendFileError as error:
            raise DecisionsError(f"the file of this site's decisions {error}, and nothing runs without it") from None


def begins_with(text: str, names: Iterable[str]) -> list[str]:
    """Return the names that begin with a text; a name that is equal to it alone, whatever else users have proposed.

    >>> begins_with("ab", ["ab", "abc"]), begins_with("a", ["ab", "abc"]), begins_with("", ["ab"])
    (['ab'], ['ab', 'abc'], [])
    """
    found = [name for name in names if text and name.startswith(text)]
    return [text] if text in found else found


def run_name(run: str) -> str:
    """Return what a run fits, from its id.

    >>> run_name("FedPCA#2 0123")
    'FedPCA'
    """
    return run.rpartition(" ")[0].rpartition("#")[0] or run


def find_steps_of(planned: PlannedRun, step: str, how: str, transforms: tuple[str, ...]) -> list[PlannedStep]:
    """Return the planned step that a call may be one of, for each way of putting it, or refuse the call.

    Calls put in one way have one count, so that a second line of a plan about them allows no more of the first one.
    """
    found = {one.how: one for one in reversed(planned.steps) if one.fits(step, how, transforms)}
    if found:
        return list(found.values())
    if any(one.step == step for one in planned.steps):
        raise PolicyError(f"step {step!r} is in the study that the owner approved, but not put in this way")
    raise PolicyError(f"step {step!r} is not in the study that this site's owner approved")


def _free_place(proposal: Proposal, run: str) -> int:
    taken = set(proposal.runs.values())
    for place, planned in enumerate(proposal.plan.runs):
        if place not in taken and planned.what == run_name(run):
            return place
    raise PolicyError(
        f"the study that this site's owner approved has no further run of {run_name(run)!r}: an approval is for what "
        "was proposed, and nothing else"
    )


def _because(why: str) -> str:
    return f": {why}" if why else ""
