"""Admission: how a site checks one request by its owner's rules, and the line that it writes about it.

The order of checks: sender, user, rows, the owner's decisions, step, transforms, rounds, sets, size.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fedspan.errors import LedgerError, MessageError, PausedError, PolicyError, with_note
from fedspan.federation import Site
from fedspan.federation.calls.call import Call
from fedspan.federation.site.call_context import CallContext, OversizeError
from fedspan.federation.site.step_digests import neighbours
from fedspan.federation.site.step_runner import StepRunner
from fedspan.federation.site.steps import find_step, installed_steps
from fedspan.federation.site.transforms import Transform, installed_transforms
from fedspan.federation.versions import version_of
from fedspan.owner.allowed_steps import SECURE_SUM, allows_transform, is_public
from fedspan.owner.audit_log import AuditLog, AuditLogError, as_logged, call_kind
from fedspan.owner.decisions import ALWAYS, REFUSED, Decisions, find_steps_of
from fedspan.owner.rules import LEAST_SITES, STEP_SECONDS, Rules
from fedspan.owner.study_plan import StudyPlan
from fedspan.privacy import Ledger

#: The role, in a user's certificate, that may run steps. Other roles learn that a site exists, and its version.
ANALYST = "analyst"


@dataclass
class OwnerRequest:
    """One request as the site's owner sees it: made when it arrives, completed while the site reads it.

    `user` and `role` come from the sender's certificate. `kind` is ``"call"``, or what the request is instead. `step`
    is the id of the step that runs. In a secure sum it is that of the step whose replies are added up, and `stage`
    names the round. `how` is ``"ask"``, ``"sum"``, ``"mean"`` or ``"merge"``. `study` is the ticket of a study that was
    proposed. `transforms` has the ids of transforms, `views` the transforms with their parameters. `payload` holds the
    parameters of the step, or is ``None`` where an earlier round of the sum was checked with them. `summed` marks a
    call in a run that gets no single replies, `repeated` one that gets its earlier reply again, `ran` one for which
    data were read.
    """

    user: str = ""
    role: str = ""
    kind: str = ""
    run: str = ""
    number: int = -1
    part: int = 0
    step: str = ""
    transforms: tuple[str, ...] = ()
    how: str = ""
    stage: str = ""
    study: str = ""
    payload: Mapping[str, Any] | None = None
    summed: bool = False
    repeated: bool = False
    ran: bool = False
    views: tuple[Transform, ...] = ()


class Admission:
    """Checks requests to one site. A refusal is a `PolicyError`; nothing leaves before its line is in the log.

    Parameters
    ----------
    site : Site
    rules : Rules, optional
        The owner's. Without them every analyst may run every step.
    log : AuditLog, optional
    ledger : Ledger, optional
    decisions : Decisions, optional
        The owner's, about studies and runs. Without them none is stopped or paused.

    Attributes
    ----------
    closed : str
        Why the site answers nothing at present, in a sentence for every sender; empty while it is open.
    fewest : callable
        Returns the smallest number of rows behind one number of a reply, from the step's id, its payload and the
        transforms in front of it. An engine may let another process count.
    """

    def __init__(
        self,
        site: Site,
        rules: Rules | None = None,
        log: AuditLog | None = None,
        ledger: Ledger | None = None,
        decisions: Decisions | None = None,
    ) -> None:
        self.site = site
        self.log = log
        self.decisions = decisions
        self.closed = ""
        self.fewest = self._fewest
        self._rules = rules
        self._ledger = ledger

    @property
    def step_seconds(self) -> int:
        """Seconds that a step may take by the owner's rules."""
        return STEP_SECONDS if self._rules is None else self._rules.step_seconds

    @property
    def step_memory(self) -> int | None:
        """Bytes that a step may take by the owner's rules."""
        return None if self._rules is None else self._rules.step_memory

    @property
    def largest_reply(self) -> int | None:
        """Bytes that a reply may have by the owner's rules."""
        return None if self._rules is None else self._rules.largest_reply

    @property
    def least_sites(self) -> int:
        """The fewest sites of a secure sum by the owner's rules."""
        return LEAST_SITES if self._rules is None else self._rules.least_sites

    def check_sender(self, request: OwnerRequest, sites: Collection[str], version: str) -> None:
        """Refuse a request that is not from a user of the federation, to this site, in this version or one next to it.

        A user's side of such a version sends no step that differs.
        """
        if not request.role:
            raise PolicyError(f"{request.user!r} is not a user of this federation: the certificate has no role")
        if self.site.name not in sites:
            raise MessageError(f"the message is for {', '.join(sorted(sites))[:200]}, not for {self.site.name}")
        mine = version_of("fedspan")
        if not neighbours(version, mine) and request.kind != "hello":
            raise PolicyError(f"this site runs fedspan {mine}, and the request comes from fedspan {version}")
        if self.closed:
            raise PausedError(self.closed)

    def check_user(self, request: OwnerRequest) -> None:
        """Refuse a user that may learn nothing about this site, and all users while it has too few rows."""
        user, rules = request.user, self._rules
        if request.role != ANALYST:
            raise PolicyError(
                f"you are not among this site's users: {user!r} has the role {request.role!r}, which may not run steps"
            )
        if self.log is not None:
            self.log.check()
        if rules is None:
            return
        if rules.users is not None and user not in rules.users:
            raise PolicyError(f"you are not among this site's users: its owner does not list {user!r}")
        if len(self.site) < rules.least_rows:  # the number of rows is not revealed
            raise PolicyError(f"this site has fewer rows than its owner requires ({rules.least_rows}), and is silent")

    def check_call(self, request: OwnerRequest) -> None:
        """Refuse a call that the rules forbid. Only the last of these checks reads data, and then the call counts."""
        rules = self._rules
        if self.decisions is not None:
            self.decisions.check_open(request.run)
        if request.repeated and request.payload is not None and self.log is not None:
            # The site may have ended before the line was written: then this reply has yet to be counted.
            counted = self.log.calls(request.run, request.step, "", request.transforms)
            request.repeated = counted.has(request.run, request.number, request.stage)
        if rules is not None:
            if rules.approval:
                self._check_approved(request)
            _check_step(request, rules)
            self._check_rounds(request, rules)
        request.ran = not request.repeated
        # A strict ledger refuses what carries no noise, in words that do not depend on rows; noise covers the rest.
        if rules is not None and (self._ledger is None or not self._ledger.strict):
            self._check_sets(request, rules)

    def propose(self, request: OwnerRequest, plan: bytes) -> dict[str, str]:
        """Note a study that a user proposes, and return the decision about it, with its reason."""
        study = StudyPlan.read(plan)
        if self.decisions is None or self._rules is None or not self._rules.approval:
            return {"state": ALWAYS, "why": "this site's owner does not approve studies one by one"}
        if not request.study:
            raise MessageError("a proposal has a ticket")
        proposal = self.decisions.propose(request.user, request.study, study)
        why = f"this site's owner has refused it: {proposal.why}" if proposal.state == REFUSED else proposal.why
        return {"state": proposal.state, "why": why}

    def paused(self) -> str:
        """Return why the site is paused, or an empty text."""
        try:
            if self.decisions is not None:
                self.decisions.check_open()
        except PausedError as error:
            return str(error)
        return ""

    def _check_approved(self, request: OwnerRequest) -> None:
        """Refuse what is not in a study that the owner has approved: step, transforms, parameters, number of calls."""
        if request.payload is None and request.step.startswith(SECURE_SUM):  # of a sum that the site does not know
            return
        assert self.decisions is not None
        assert self.log is not None
        run = self.decisions.planned(request.user, request.study, request.run)
        if request.payload is None:  # a later round of a sum, which reads no data: the first one was judged
            return
        how = call_kind(request.how, request.stage)
        planned = find_steps_of(run, request.step, how, request.transforms)
        others = [one.other(request.payload, request.views) for one in planned]
        if all(others):
            raise PolicyError(f"step {request.step!r} is not as this site's owner approved it: {others[0]}")
        calls = self.log.calls(request.run, request.step, how, request.transforms)
        most = sum(one.calls for one in planned)
        if not request.repeated and calls.after(request.run, request.number, request.stage) > most:
            raise PolicyError(
                f"this site's owner approved at most {most:,} calls of step {request.step!r} in this run, and they "
                "are used up"
            )

    def _check_sets(self, request: OwnerRequest, rules: Rules) -> None:
        """Refuse numbers about few rows, where that is not allowed. Which rows, or how many, is not revealed."""
        if request.payload is None or rules.steps.names_it(request.step, few_rows=True):
            return
        step = find_step(request.step)
        counted = step.fewest is not None and bool(request.payload.get(step.leaves_out, True))
        found = [installed_transforms()[id] for id in request.transforms if id in installed_transforms()]
        selecting = [one.least(len(self.site)) if one.least else 1 for one in found if one.selects]
        if selecting:
            # Parameters may make the sets smaller, and so does a selection of a selection.
            few = len(selecting) > 1 or min(selecting) < rules.least_set
            if not step.public and (counted or few):
                raise PolicyError(
                    f"this site's owner allows no numbers about fewer than {rules.least_set} rows, and those of step "
                    f"{request.step!r} over a selection of rows may be: that is in the group 'single rows'"
                )
            return
        if not counted or (request.summed and not step.fewest_in_sums):
            return
        try:
            # Columns, groups and thresholds are those that the transforms show. Noise covers rows that it changes.
            views = () if any(view.private for view in request.views) else request.views
            enough = self.fewest(step.id, request.payload, views) >= rules.least_set
        except Exception:  # the step does not take this payload either, or it is too much work
            enough = False
        if not enough:
            raise PolicyError(
                f"this site's owner allows step {request.step!r} only where its numbers are about {rules.least_set} "
                "rows or more, and with these parameters some are about fewer, or can't be counted: that is in the "
                "group 'single rows'"
            )

    def _fewest(self, step: str, payload: Mapping[str, Any], transforms: tuple[Transform, ...] = ()) -> int:
        found = find_step(step)
        assert found.fewest is not None
        call = Call("", 0, 0, found, dict(payload), (), transforms)
        seen = StepRunner(self.site).shown(call, CallContext({}, step=step)) if transforms else self.site
        return found.fewest(seen, **payload)

    def _check_rounds(self, request: OwnerRequest, rules: Rules) -> None:
        if self.log is None or request.repeated:  # a repeated reply reveals nothing new
            return
        self.log.check()
        rounds = self.log.rounds(request.user).after(request.run, request.number, request.stage)
        if rules.rounds_per_day is not None and rounds > rules.rounds_per_day:
            raise PolicyError(
                f"this site's owner allows a user {rules.rounds_per_day} rounds a day (UTC), and today's are used up"
            )

    def release(self, request: OwnerRequest, size: int) -> None:
        """Refuse a reply that is too large; log one of `size` bytes that may leave."""
        limit = self.largest_reply
        if request.kind == "call" and self.decisions is not None:  # the owner may have stopped it meanwhile
            self.decisions.check_open(request.run)
            if self._rules is not None and self._rules.approval and request.payload is not None:
                self.decisions.planned(request.user, request.study, request.run)
        if request.kind == "call" and limit is not None and size > limit:
            oversize = OversizeError(f"the reply has more bytes than the {limit:,} of this site's largest_reply")
            raise with_note(oversize, f"it has {size:,}")
        self._write(request, size, "answered", "")

    def refused(self, request: OwnerRequest, outcome: str, why: str) -> None:
        """Log a request that was ``"refused"`` or that ``"failed"``. Nothing leaves, so it does not need the log."""
        with suppress(AuditLogError):
            self._write(request, 0, outcome, why)

    def budget_left(self) -> float | None:
        """Return the epsilon that is left of the site's budget, or ``None`` where it has none."""
        if self._ledger is not None:
            with suppress(LedgerError):  # charging it reports this error
                return max(0.0, self._ledger.epsilon - self._ledger.spent)
        return None

    def _write(self, request: OwnerRequest, size: int, outcome: str, why: str) -> None:
        if self.log is None:
            return
        left = self.budget_left()
        self.log.append(
            {
                "who": request.user,
                "role": request.role,
                "run": request.run,
                "call": request.number,
                "part": request.part,
                "step": request.step,
                "transforms": list(as_logged(request.transforms)),
                "how": request.how or request.kind,
                "stage": request.stage,
                "bytes": size,
                "budget_left": left if left is None else round(left, 6),
                "outcome": outcome,
                "ran": request.ran,
                "why": " ".join(why.split()),
            }
        )


def _check_step(request: OwnerRequest, rules: Rules) -> None:
    step = request.step
    if step not in rules.steps:
        raise PolicyError(f"this site's owner does not allow step {step!r}{rules.steps.hint(step)}")
    if rules.level != "trusted":
        for what, found in (("step", installed_steps()), ("transform", installed_transforms())):
            for id in (step,) if what == "step" else request.transforms:
                if id in found and not found[id].declared.complete:
                    raise PolicyError(
                        f"this site's owner wants {what}s that declare the types of all parameters, and {id!r} does not"
                    )
    reorders = all(id in installed_transforms() and installed_transforms()[id].reorders for id in request.transforms)
    if request.transforms and not reorders and not rules.steps.names_it(step):
        raise PolicyError(f"this site's owner allows step {step!r} without transforms only")
    for transform in request.transforms:
        if not allows_transform(rules.transforms, transform):
            raise PolicyError(f"this site's owner does not allow the transform {transform!r}")
    if rules.sums_only:
        _check_single_sites(request, rules)
    if rules.sums_only and not request.stage and not is_public(step):
        raise PolicyError(
            f"this site's owner allows secure sums only, and this is a request for a single reply of step {step!r}: "
            "use Policy(secure_sum=True)"
        )


def _check_single_sites(request: OwnerRequest, rules: Rules) -> None:
    """Refuse a request whose sum over several sites would show single ones, unless the owner names it."""
    found, transforms = installed_steps().get(request.step), installed_transforms()
    apart = [id for id in request.transforms if id in transforms and transforms[id].by_site]
    apart = [id for id in apart if id not in rules.transforms]
    if found is not None and request.payload is not None and request.step not in rules.steps.names:
        apart += [found.id] if found.tells_sites_apart(request.payload) else []
    if apart:
        raise PolicyError(
            f"this site's owner allows sums over several sites only, and {apart[0]!r} treats each site in another way, "
            "so that a sum shows single sites"
        )
