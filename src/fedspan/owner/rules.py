"""The rules of a site's owner: the table ``[rules]`` in ``site.toml``."""

from __future__ import annotations

from dataclasses import dataclass

from fedspan.owner.allowed_steps import GROUPS, LEVELS, AllowedSteps

LEAST_ROWS = 10
LEAST_SET = 5
LEAST_SITES = 2
#: Seconds that a step may take, whatever a request's deadline is.
STEP_SECONDS = 3600


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
    approval : bool
        Run no study before the owner has approved it.
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
    approval: bool = False

    def in_words(self) -> dict[str, str]:
        """Return each rule in a few words, by its name."""
        steps = "; ".join(f"{name}: {GROUPS[name]}" if name in GROUPS else name for name in self.steps.names)
        replies = "no limit of the site's own" if self.largest_reply is None else f"{self.largest_reply:,} bytes"
        memory = "half of the memory" if self.step_memory is None else f"{self.step_memory:,} bytes"
        rounds = "no limit" if self.rounds_per_day is None else f"{self.rounds_per_day:,} per user and day"
        return {
            "level": f"{self.level}: {LEVELS[self.level]}",
            "steps": f"{len(self.steps.installed())} are allowed ({steps or 'public ones only'})",
            "transforms": ", ".join(self.transforms) or "none",
            "users": "all analysts of the federation" if self.users is None else ", ".join(self.users) or "none",
            "rows": f"at least {self.least_rows}, or nothing is answered; summaries are of at least {self.least_set}",
            "replies": replies,
            "rounds": rounds,
            "work": f"a step may take {self.step_seconds:,} seconds and {memory}",
            "secure sums": f"of at least {self.least_sites} sites{', and no other replies' if self.sums_only else ''}",
            "approval": "no study runs before you have approved it" if self.approval else "not required",
        }
