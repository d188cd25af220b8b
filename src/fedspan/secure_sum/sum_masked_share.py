"""A site's part of a sum, and what it says where it has none.

Nothing that a single site says may depend on the values of its rows: with a transform that scales them, whether a number is
in range, or a matrix has an inverse, would be a question about any of them that could be asked as often as one likes.
So a site with a reply that cannot be added up, and one whose step fails for its rows, stays in the sum and spoils it:
the total says that somebody did so, and nothing else. The reason is in the site's own log.

A step that fails for invented rows too (the columns are others, there are no rows) is told in the open, with what it
says of these: so that a site that cannot take part costs its part alone.
"""

from __future__ import annotations

import logging
import secrets

from fedspan.errors import BudgetError, LedgerError, PolicyError, UnknownStepError
from fedspan.federation.site.noise_query import NoiseQuery
from fedspan.federation.site.site import Site
from fedspan.federation.site.steps import Step, find_step
from fedspan.secure_sum import sum_layout as forms
from fedspan.secure_sum.sum_fixed_point import FixedPoint
from fedspan.wire import Message, canonical

_log = logging.getLogger("fedspan.site")
#: What a site says of its rules and accounts; none of it is about the values of its rows.
_TOLD = (BudgetError, LedgerError, PolicyError, UnknownStepError)


def part_of(site: Site, what: str, payload: Message, numbers: FixedPoint) -> tuple[Message | None, forms.Form]:
    """Run the step `what`; return the site's part of the sum, ``None`` where it can only spoil it, and its form."""
    site.now_runs(what, payload)
    step = find_step(what)
    try:
        reply = canonical(step.function(site, **payload), "reply")
        site.context.check_size(reply)
    except _TOLD:
        raise
    except Exception as error:
        form = _invented_form(site, step, payload)
        why, part = f"{type(error).__name__}: {error}", None
    else:
        form, why = forms.form_of(reply), forms.out_of_range(reply, numbers)
        part = None if why else reply
    if part is None:
        log_spoilt(site.name, what, why)
    return part, form


def _invented_form(site: Site, step: Step, payload: Message) -> forms.Form:
    """Return the form that the reply has for invented rows: small ones, if it has none for others.

    Where these fail too, what they say is raised: it is not about the site's own rows.
    """
    for scale in (1.0, 0.0):
        try:
            reply = step.function(site.invented(Uncharged(), scale), **payload)
            return forms.form_of(canonical(reply, "reply"))
        except Exception:
            if scale == 0.0:
                raise
    raise AssertionError


def log_spoilt(site: str, what: str, why: str) -> None:
    """Tell the site's owner, and nobody else, why it spoils a sum."""
    _log.warning("site %r has no part to give in the secure sum of step %r, which fails: %s", site, what, why)


class Uncharged:
    """The account of a step that sees invented rows alone."""

    simulated = True
    strict = False

    def lasts(self, *, mu2: float = 0.0, rho: float = 0.0) -> bool:
        """Whether the budget lasts: nothing is charged."""
        return True

    def key(self, query: NoiseQuery, *, mu2: float = 0.0, rho: float = 0.0) -> bytes:
        """Return the key of noise that nobody sees."""
        return secrets.token_bytes(32)

    noise_key = key

    def fingerprint_key(self) -> bytes:
        """Return a key that is never used again."""
        return secrets.token_bytes(32)
