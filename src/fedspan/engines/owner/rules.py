"""What a site's owner allows, rule by rule."""

from __future__ import annotations

from dataclasses import dataclass

from fedspan.engines.owner.allowed_steps import GROUPS, AllowedSteps, covers, is_public
from fedspan.engines.remote.ask import Ask
from fedspan.errors import PolicyError

LEAST_ROWS = 10


@dataclass(frozen=True)
class Rules:
    """The ``[rules]`` of a site.

    Parameters
    ----------
    steps : AllowedSteps
        What may be asked.
    lenses : tuple of str
        Transforms that may stand before the rows, by name or module.
    least_rows : int
        A site with fewer rows answers nothing.
    largest_reply : int, optional
        Bytes that one reply may have.
    rounds_per_day : int, optional
        Answers that one user may have in a day (UTC), over all runs. The parts of one secure sum count once; a call
        that is repeated, because its answer was lost, counts again.
    users : tuple of str, optional
        Who may ask; everybody with a certificate of the federation where it is ``None``.
    sums_only : bool
        Answer in secure sums only, apart from public steps.
    """

    steps: AllowedSteps
    lenses: tuple[str, ...] = ("fedspan",)
    least_rows: int = LEAST_ROWS
    largest_reply: int | None = None
    rounds_per_day: int | None = None
    users: tuple[str, ...] | None = None
    sums_only: bool = False

    def check_ask(self, ask: Ask, rows: int) -> None:
        """Refuse what the rules forbid whenever it is asked."""
        if self.users is not None and ask.who not in self.users:
            raise PolicyError(f"this site's owner does not allow user {ask.who!r} to ask anything")
        self.check_rows(rows)
        if ask.step not in self.steps:
            raise PolicyError(f"this site's owner does not allow step {ask.step!r}")
        for lens in ask.lenses:
            if not covers(self.lenses, lens):
                raise PolicyError(f"this site's owner does not allow the transform {lens!r}")
        if self.sums_only and not ask.how.startswith("secure") and not is_public(ask.step):
            raise PolicyError(
                f"this site's owner allows secure sums only, and {ask.step!r} was asked for a reply of its own"
            )

    def check_rows(self, rows: int) -> None:
        """Refuse everything where there are too few rows. How many there are is not said."""
        if rows < self.least_rows:
            raise PolicyError(
                f"this site has fewer rows than its owner asks for ({self.least_rows}), and answers nothing"
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
            raise PolicyError(
                f"the reply has {size:,} bytes, and this site's owner allows {self.largest_reply:,} (largest_reply)"
            )

    def in_words(self) -> list[str]:
        """Return one sentence for each rule."""
        steps = "; ".join(f"{name}: {GROUPS[name]}" if name in GROUPS else name for name in self.steps.names)
        said = [
            f"steps: {len(self.steps.installed())} may be asked ({steps or 'public ones only'})",
            f"transforms: {', '.join(self.lenses) or 'none'}",
            f"users: {'everybody in the federation' if self.users is None else ', '.join(self.users) or 'nobody'}",
            f"rows: at least {self.least_rows}, or nothing is answered",
            "replies: "
            + ("no limit of the site's own" if self.largest_reply is None else f"{self.largest_reply:,} bytes"),
            "rounds: " + ("no limit" if self.rounds_per_day is None else f"{self.rounds_per_day:,} a user and day"),
        ]
        return [*said, "secure sums only: " + ("yes" if self.sums_only else "no")]
