"""Account for Gaussian noise in a run's record, and find the sites that have ledgers of their own."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from fedspan.checks import frames_inside
from fedspan.errors import InputError, MissingPackageError
from fedspan.federation import CallRecord, FailureKind, Federation, PrivacySpent, Site, step
from fedspan.federation.privacy_spent import UNIT
from fedspan.federation.site.parameters import NotNegative
from fedspan.privacy.accounting import accountant_epsilon
from fedspan.privacy.gaussian import epsilon_of
from fedspan.privacy.mechanisms import GaussianCenters, GaussianData, GaussianGradient, GaussianMoments

#: What no noise covers where transforms were fitted before the run.
FRONT = "what was learned before from the rows as they are (the transforms in front)"
#: The number of Gaussian replies for each ratio of noise to sensitivity.
Events = Mapping[float, int]


@step("privacy.ledger", reveals="nothing")
def local_ledger(site: Site, mu2: NotNegative) -> dict[str, Any]:
    """Leaves the site: whether its noise is simulated, its budget lasts for a cost of `mu2`, its ledger is strict."""
    ledger = site.ledger
    return {
        "simulated": ledger is None or ledger.simulated,
        "lasts": ledger is None or ledger.lasts(mu2=mu2),
        "strict": ledger is not None and ledger.strict,
    }


def gaussian_spent(
    privacy: GaussianData | GaussianGradient | GaussianCenters | GaussianMoments,
    fed: Federation,
    events: Events,
    covers: tuple[str, ...],
    leaves_out: tuple[str, ...] = (),
    unit: str = UNIT,
) -> PrivacySpent:
    """Return what Gaussian replies spend at every site, exactly and by the accountant."""
    mu = _mu(events)
    counted: dict[str, float] = {}
    with suppress(MissingPackageError):
        counted = dict.fromkeys(fed.sites, accountant_epsilon(events, privacy.delta))
    return PrivacySpent(
        repr(privacy),
        dict.fromkeys(fed.sites, epsilon_of(mu, privacy.delta)),
        privacy.delta,
        counted,
        covers,
        leaves_out + in_front(fed),
        simulated_sites(mu**2, fed),
        unit=unit,
    )


@contextmanager
def spending(spent: PrivacySpent, seen: Federation, events: Callable[[Counter[str]], Events]) -> Iterator[None]:
    """Record what a block spends; a site that refuses because of its budget counts with what it answered.

    Parameters
    ----------
    spent : PrivacySpent
        What every site spends that answers all calls.
    events : callable
        Takes the number of calls of each step that a site did not refuse. Returns the Gaussian replies that it was
        charged for, including lost ones.
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
            corrected = replace(spent, epsilon=epsilon, accountant=counted, refused=tuple(sorted(refused)))
            seen.spent(corrected if before is None else before + corrected, again=True)


def _refused(call: CallRecord, site: str) -> bool:
    """Return whether a site refused a call because its privacy budget was spent."""
    return site in call.failed and call.failed[site].kind is FailureKind.BUDGET_SPENT


def _mu(events: Events) -> float:
    return math.sqrt(sum(count / z**2 for z, count in events.items()))


def refuse_strict(fed: Federation, what: str) -> None:
    """Refuse what sites with a strict ledger would not answer, before the run spends any of their budget."""
    replies = fed.ask(local_ledger, mu2=0.0).ok
    strict = [site for site, reply in replies.items() if reply.get("strict") is True]
    if strict:
        raise InputError(
            f"{', '.join(strict[:10])} send nothing without noise (a strict ledger), and {what}: use GaussianData, "
            "whose noise covers them, or leave these sites out"
        )


def in_front(seen: Federation) -> tuple[str, ...]:
    """Return a note that transforms in front were learned without noise, if there are any."""
    return (FRONT,) if seen.plain_transforms else ()


def simulated_sites(mu2: float, fed: Federation) -> tuple[str, ...]:
    """Return the sites whose noise is simulated or that do not report it; warn if budgets do not last for `mu2`."""
    replies = fed.ask(local_ledger, mu2=mu2).ok
    short = [site for site, reply in replies.items() if reply.get("lasts") is False]
    if short:
        warnings.warn(
            f"the privacy budget of {', '.join(short[:10])} does not last for this run: unless it repeats earlier "
            "requests, these sites will refuse before its end",
            stacklevel=frames_inside(),
        )
    return tuple(site for site in fed.sites if replies.get(site, {}).get("simulated") is not False)
