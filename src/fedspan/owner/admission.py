"""Admission: how a site judges one request, by its owner's rules, and the line that it writes about it.

The order of judgement: sender, user, rows, step, transforms, rounds, sets, size.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fedspan.errors import LedgerError, MessageError, PolicyError, with_note
from fedspan.federation import Site
from fedspan.federation.site.call_context import OversizeError
from fedspan.federation.site.steps import find_step, installed_steps
from fedspan.federation.site.transforms import MOST_PARTS, installed_transforms
from fedspan.federation.versions import version_of
from fedspan.owner.allowed_steps import GROUPS, LEVELS, AllowedSteps, allows_transform, is_public
from fedspan.owner.audit_log import AuditLog, AuditLogError
from fedspan.privacy import Ledger

LEAST_ROWS = 10
LEAST_SET = 5
LEAST_SITES = 2
#: Seconds that a step may take, whatever a request's deadline is.
STEP_SECONDS = 3600
#: The role, in a user's certificate, that may run steps. Other roles learn that a site exists, and its version.
ANALYST = "analyst"


@dataclass(frozen=True)
class Rules:
    """The ``[rules]`` of a site.

    Parameters
    ----------
    steps : AllowedSteps
    transforms : tuple of str
        Transforms that users may put before the rows, by id or the beginning of ids.
    level : {"aggregate", "secure", "private", "trusted"}
        What requests see of the rows: their moments, what secure sums hide, what noise covers, or all.
    least_rows : int
        A site with fewer rows answers nothing.
    largest_reply : int, optional
        Bytes that one reply may have.
    rounds_per_day : int, optional
        Calls of one user in a day (UTC), over all runs, for which data were read. The rounds of one secure sum count
        once. A call that is repeated because its reply was lost does not count.
    users : tuple of str, optional
        Users that may send requests. ``None``: all analysts of the federation.
    sums_only : bool
        Reply by secure sums only, apart from public steps.
    least_sites : int
        Take part in no secure sum that fewer sites could uncover, even if the federation's settings allow it.
    least_set : int
        A reply about fewer rows than this (a small task, a small part of the rows) is a reply about single rows.
    step_seconds : int
        Seconds that a step may take: a longer one is ended. A request's own deadline may be shorter.
    step_memory : int, optional
        Bytes that a step may take. Default: half of the machine's memory.
    """

    steps: AllowedSteps
    transforms: tuple[str, ...] = ("fedspan",)
    level: str = "trusted"
    least_rows: int = LEAST_ROWS
    largest_reply: int | None = None
    rounds_per_day: int | None = None
    users: tuple[str, ...] | None = None
    sums_only: bool = False
    least_sites: int = LEAST_SITES
    least_set: int = LEAST_SET
    step_seconds: int = STEP_SECONDS
    step_memory: int | None = None

    def in_words(self) -> list[str]:
        """Return one sentence for each rule."""
        steps = "; ".join(f"{name}: {GROUPS[name]}" if name in GROUPS else name for name in self.steps.names)
        replies = "no limit of the site's own" if self.largest_reply is None else f"{self.largest_reply:,} bytes"
        memory = "half of the memory" if self.step_memory is None else f"{self.step_memory:,} bytes"
        rounds = "no limit" if self.rounds_per_day is None else f"{self.rounds_per_day:,} per user and day"
        return [
            f"level: {self.level}: {LEVELS[self.level]}",
            f"steps: {len(self.steps.installed())} are allowed ({steps or 'public ones only'})",
            f"transforms: {', '.join(self.transforms) or 'none'}",
            f"users: {'all analysts of the federation' if self.users is None else ', '.join(self.users) or 'none'}",
            f"rows: at least {self.least_rows}, or nothing is answered; summaries are of at least {self.least_set}",
            f"replies: {replies}",
            f"rounds: {rounds}",
            f"work: a step may take {self.step_seconds:,} seconds and {memory}",
            f"secure sums: of at least {self.least_sites} sites{', and no other replies' if self.sums_only else ''}",
        ]


@dataclass
class OwnerRequest:
    """One request as the site's owner sees it: made when it arrives, completed while the site reads it.

    `user` and `role` come from the sender's certificate. `kind` is ``"call"``, or what the request is instead. `step`
    is the id of the step that runs; in a secure sum, of the step whose replies are added up, and `stage` names the
    round. `how` is ``"ask"``, ``"sum"``, ``"mean"`` or ``"merge"``. `payload` holds the parameters of the step, or is
    ``None`` where an earlier round of the sum was judged by them. `repeated` marks a call that gets its earlier reply
    again, `ran` one for which data were read.
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
    payload: Mapping[str, Any] | None = None
    repeated: bool = False
    ran: bool = False


class Admission:
    """Judges requests to one site. A refusal is a `PolicyError`; nothing leaves before its line is in the log.

    Parameters
    ----------
    site : Site
    rules : Rules, optional
        The owner's. Without them every analyst may run every step.
    log : AuditLog, optional
    ledger : Ledger, optional

    Attributes
    ----------
    closed : str
        Why the site answers nothing at present, in a sentence for every sender; empty while it is open.
    fewest : callable
        Returns the smallest number of rows that a number of a reply would be about, from the step's id and its payload.
        An engine may let another process count.
    """

    def __init__(
        self, site: Site, rules: Rules | None = None, log: AuditLog | None = None, ledger: Ledger | None = None
    ) -> None:
        self.site = site
        self.log = log
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
        """Refuse a request that is not from a user of the federation, to this site, in this version of fedspan."""
        if not request.role:
            raise PolicyError(f"{request.user!r} is not a user of this federation: the certificate has no role")
        if self.site.name not in sites:
            raise MessageError(f"the message is for {', '.join(sorted(sites))[:200]}, not for {self.site.name}")
        mine = version_of("fedspan")
        if version != mine and request.kind != "hello":
            raise PolicyError(f"this site runs fedspan {mine}, and the request comes from fedspan {version}")
        if self.closed:
            raise PolicyError(self.closed)

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
        if rules is not None:
            _check_step(request, rules)
            self._check_rounds(request, rules)
        request.ran = not request.repeated
        # A strict ledger refuses what carries no noise, in words that do not depend on rows; noise covers the rest.
        if rules is not None and (self._ledger is None or not self._ledger.strict):
            self._check_sets(request, rules)

    def _check_sets(self, request: OwnerRequest, rules: Rules) -> None:
        """Refuse numbers about few rows, where that is not allowed. Which rows, or how many, is not revealed."""
        if request.payload is None or rules.steps.names_it(request.step, few_rows=True):
            return
        step = find_step(request.step)
        found = [installed_transforms()[id] for id in request.transforms if id in installed_transforms()]
        selecting = [one.least or len(self.site) // MOST_PARTS for one in found if one.selects]
        if selecting:
            # Sums over two selections differ by at least as many rows; parameters may make sets smaller.
            if not step.public and (step.fewest is not None or min(selecting) < rules.least_set):
                raise PolicyError(
                    f"this site's owner allows no numbers about fewer than {rules.least_set} rows, and those of step "
                    f"{request.step!r} over a selection of rows may be: that is in the group 'single rows'"
                )
            return
        if step.fewest is None or (request.stage and not step.fewest_in_sums):
            return
        try:
            enough = self.fewest(step.id, request.payload) >= rules.least_set
        except Exception:  # the step does not take this payload either, or it is too much work
            enough = False
        if not enough:
            raise PolicyError(
                f"this site's owner allows step {request.step!r} only where its numbers are about {rules.least_set} "
                "rows or more, and with these parameters some are about fewer, or can't be counted: that is in the "
                "group 'single rows'"
            )

    def _fewest(self, step: str, payload: Mapping[str, Any]) -> int:
        counted = find_step(step).fewest
        assert counted is not None
        return counted(self.site, **payload)

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
                "transforms": [transform[:200] for transform in request.transforms[:20]],
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
    if rules.sums_only and not request.stage and not is_public(step):
        raise PolicyError(
            f"this site's owner allows secure sums only, and this is a request for a single reply of step {step!r}: "
            "use Policy(secure_sum=True)"
        )
