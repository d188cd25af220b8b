"""What a run with Gaussian noise spends, for its record; and which sites have ledgers of their own."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from fedspan.checks import frames_inside
from fedspan.errors import InputError, MissingPackageError
from fedspan.federation import CallRecord, FailureKind, Federation, PrivacySpent
from fedspan.federation.privacy_spent import UNIT
from fedspan.landmarks.parts.noisy_pull import local_ledger
from fedspan.privacy.accounting import accountant_epsilon
from fedspan.privacy.gaussian import epsilon_of

#: In the reason of a site that refuses because its budget is spent.
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
    mu = _mu(events)
    exact = epsilon_of(mu, privacy.delta)
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
        simulated_sites(mu**2, fed),
        unit=unit,
    )


@contextmanager
def spending(
    spent: PrivacySpent, seen: Federation, events: Callable[[Counter[str]], Mapping[float, int]]
) -> Iterator[None]:
    """Put what a block spends into the record, in which sites that refuse for their budget count with what they answer.

    Parameters
    ----------
    spent : PrivacySpent
        By every site that answers all.
    events : callable
        Given how often a site did not refuse which step, returns the Gaussian replies that it has been charged for, by
        noise over sensitivity: also those that were lost on the way.
    """
    before, first = seen.record.privacy, len(seen.record.calls)
    seen.spent(spent)
    try:
        yield
    finally:
        calls = seen.record.calls[first:]
        refused = {site for call in calls for site in call.failed if _refused(call, site)}
        epsilon, counted = dict(spent.epsilon), dict(spent.accountant)
        for site in refused & set(epsilon):
            steps = [call.step for call in calls if site in call.asked and not _refused(call, site)]
            charged = {z: count for z, count in events(Counter(steps)).items() if count}
            epsilon[site] = epsilon_of(_mu(charged), spent.delta) if charged else 0.0
            if counted:
                counted[site] = accountant_epsilon(charged, spent.delta) if charged else 0.0
        if refused:
            mended = replace(spent, epsilon=epsilon, accountant=counted, refused=tuple(sorted(refused)))
            seen.spent(mended if before is None else before + mended, again=True)


def _refused(call: CallRecord, site: str) -> bool:
    """Return whether a site refused a call because its privacy budget was spent."""
    return site in call.failed and call.failed[site].kind is FailureKind.BUDGET_SPENT


def _mu(events: Mapping[float, int]) -> float:
    return math.sqrt(sum(count / z**2 for z, count in events.items()))


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
    return (FRONT,) if seen.plain_transforms else ()


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
