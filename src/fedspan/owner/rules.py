"""What a site's owner allows, rule by rule."""

from __future__ import annotations

from dataclasses import dataclass

from fedspan.errors import PolicyError, with_note
from fedspan.federation import Site
from fedspan.federation.site.steps import find_step
from fedspan.owner.allowed_steps import GROUPS, AllowedSteps, allows_transform, is_public
from fedspan.owner.owner_request import Ask

LEAST_ROWS = 10
LEAST_SET = 5


@dataclass(frozen=True)
class Rules:
    """The ``[rules]`` of a site.

    Parameters
    ----------
    steps : AllowedSteps
        What may be asked.
    transforms : tuple of str
        Transforms that may stand before the rows, by name or module.
    least_rows : int
        A site with fewer rows answers nothing.
    largest_reply : int, optional
        Bytes that one reply may have.
    rounds_per_day : int, optional
        Calls for which data were looked at, of one user in a day (UTC), over all runs, whatever came of them. The
        rounds of one secure sum count once, and a call that is repeated because its answer was lost does not.
    users : tuple of str, optional
        Who may ask; everybody with a certificate of the federation where it is ``None``.
    sums_only : bool
        Answer in secure sums only, apart from public steps.
    least_set : int
        What is about fewer rows than this (a small task, a small part of the rows) is a reply about single rows.
    """

    steps: AllowedSteps
    transforms: tuple[str, ...] = ("fedspan",)
    least_rows: int = LEAST_ROWS
    largest_reply: int | None = None
    rounds_per_day: int | None = None
    users: tuple[str, ...] | None = None
    sums_only: bool = False
    least_set: int = LEAST_SET

    def check_user(self, who: str) -> None:
        """Refuse who is not listed."""
        if self.users is not None and who not in self.users:
            raise PolicyError(
                f"you are not among this site's users: this site's owner does not allow user {who!r} to ask anything"
            )

    def check_call(self, ask: Ask) -> None:
        """Refuse what the rules forbid whenever it is asked."""
        if ask.step not in self.steps:
            raise PolicyError(f"this site's owner does not allow step {ask.step!r}{self.steps.hint(ask.step)}")
        if ask.transforms and not self.steps.names_it(ask.step):
            raise PolicyError(f"this site's owner allows step {ask.step!r} without transforms only")
        for transform in ask.transforms:
            if not allows_transform(self.transforms, transform):
                raise PolicyError(f"this site's owner does not allow the transform {transform!r}")
        if self.sums_only and not ask.secure and not is_public(ask.step):
            raise PolicyError(
                f"this site's owner allows secure sums only, and {ask.step!r} was asked for a reply of its own: "
                "ask with Policy(secure_sum=True)"
            )

    def check_rows(self, rows: int) -> None:
        """Refuse everything where there are too few rows. How many there are is not said."""
        if rows < self.least_rows:
            raise PolicyError(
                f"this site has fewer rows than its owner asks for ({self.least_rows}), and answers nothing"
            )

    def check_sets(self, ask: Ask, site: Site) -> None:
        """Refuse what is about few rows, where that is not allowed. Which rows these are, or how many, is not said."""
        if ask.payload is None or self.steps.names_it(ask.step, few_rows=True):
            return
        step = find_step(ask.step)
        if step.fewest is None or (ask.secure and not step.fewest_in_sums):
            return
        try:
            enough = step.fewest(site, **ask.payload) >= self.least_set
        except Exception:  # the step itself will not take this payload either
            enough = False
        if not enough:
            raise PolicyError(
                f"this site's owner allows step {ask.step!r} only where its numbers are about {self.least_set} rows or "
                "more, and with these parameters some are about fewer (or it cannot be told): that is in the group "
                "'single rows'"
            )

    def check_rounds(self, rounds: int) -> None:
        """Refuse what would be the user's round number `rounds` today."""
        if self.rounds_per_day is not None and rounds > self.rounds_per_day:
            raise PolicyError(
                f"this site's owner allows a user {self.rounds_per_day} rounds a day (UTC), and today's are used up"
            )

    def check_size(self, size: int) -> None:
        """Refuse to let go of a reply that is too large."""
        if self.largest_reply is not None and size > self.largest_reply:
            raise with_note(
                PolicyError(f"the reply has more bytes than the {self.largest_reply:,} of this site's largest_reply"),
                f"it has {size:,}",
            )

    def in_words(self) -> list[str]:
        """Return one sentence for each rule."""
        steps = "; ".join(f"{name}: {GROUPS[name]}" if name in GROUPS else name for name in self.steps.names)
        said = [
            f"steps: {len(self.steps.installed())} may be asked ({steps or 'public ones only'})",
            f"transforms: {', '.join(self.transforms) or 'none'}",
            f"users: {'everybody in the federation' if self.users is None else ', '.join(self.users) or 'nobody'}",
            f"rows: at least {self.least_rows}, or nothing is answered; summaries are of at least {self.least_set}",
            "replies: "
            + ("no limit of the site's own" if self.largest_reply is None else f"{self.largest_reply:,} bytes"),
            "rounds: " + ("no limit" if self.rounds_per_day is None else f"{self.rounds_per_day:,} a user and day"),
        ]
        return [*said, "secure sums only: " + ("yes" if self.sums_only else "no")]
