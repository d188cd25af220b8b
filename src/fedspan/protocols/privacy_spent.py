"""What a run with Gaussian noise spends, for its record; and which sites have ledgers of their own."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from fedspan.checks import frames_inside
from fedspan.errors import InputError, MissingPackageError
from fedspan.federation import Federation, PrivacySpent
from fedspan.federation.spent import UNIT
from fedspan.privacy.accounting import accountant_epsilon
from fedspan.privacy.gaussian import epsilon_of
from fedspan.protocols.noisy_pull import local_ledger

#: In the reason of a site that refuses because its budget is spent.
REFUSED = "privacy budget"
FRONT = "what was learned before from the rows as they are (the transforms in front)"


class _Budgeted(Protocol):
    @property
    def delta(self) -> float: ...


def gaussian_spent(
    privacy: _Budgeted,
    fed: Federation,
    events: Mapping[float, int],
    covers: tuple[str, ...],
    leaves_out: tuple[str, ...] = (),
    unit: str = UNIT,
) -> PrivacySpent:
    """Return what Gaussian replies (by noise over sensitivity, how many) spend at every site, exactly and counted."""
    mu2 = sum(count / z**2 for z, count in events.items())
    exact = epsilon_of(math.sqrt(mu2), privacy.delta)
    try:
        counted = dict.fromkeys(fed.sites, accountant_epsilon(events, privacy.delta))
    except MissingPackageError:
        counted = {}
    return PrivacySpent(
        repr(privacy),
        dict.fromkeys(fed.sites, exact),
        privacy.delta,
        counted,
        covers,
        leaves_out + in_front(fed),
        simulated_sites(mu2, fed),
        unit=unit,
    )


def refused_in_part(
    spent: PrivacySpent, fed: Federation, multiplier: float, rounds: int, steps: int, delta: float
) -> PrivacySpent:
    """Return what was spent, of sites that refused for their budget only for the rounds in which they did not."""
    refusals = Counter(site for _, site, reason in fed.record.failures if REFUSED in reason)
    epsilon, counted = dict(spent.epsilon), dict(spent.accountant)
    for site, count in refusals.items():
        answered = steps * max(0, rounds - count)
        epsilon[site] = epsilon_of(math.sqrt(answered) / multiplier, delta) if answered else 0.0
        if counted:
            counted[site] = accountant_epsilon({multiplier: answered}, delta) if answered else 0.0
    return replace(spent, epsilon=epsilon, accountant=counted, refused=tuple(sorted(refusals)))


def refuse_strict(fed: Federation, what: str) -> None:
    """Refuse what sites with a strict ledger would not answer, before any of their budget is spent on the way there."""
    replies = fed.ask(local_ledger, mu2=0.0).ok
    strict = [site for site, reply in replies.items() if reply.get("strict") is True]
    if strict:
        raise InputError(
            f"{', '.join(strict[:10])} let nothing out that carries no noise (a strict ledger), and {what}: use "
            "GaussianData, whose noise covers them, or leave these sites out"
        )


def in_front(seen: Federation) -> tuple[str, ...]:
    """Return, in words, that transforms which stand in front were learned without noise, where there are any."""
    return (FRONT,) if seen.plain_lenses else ()


def simulated_sites(mu2: float, fed: Federation) -> tuple[str, ...]:
    """Return the sites whose noise is simulated or that do not say; warn where budgets do not last for `mu2`."""
    replies = fed.ask(local_ledger, mu2=mu2).ok
    short = [site for site, reply in replies.items() if reply.get("lasts") is False]
    if short:
        warnings.warn(
            f"the privacy budget of {', '.join(short[:10])} does not last for this run: unless it repeats questions "
            "that were answered before, these sites will refuse before its end",
            stacklevel=frames_inside(),
        )
    return tuple(site for site in fed.sites if replies.get(site, {}).get("simulated") is not False)
