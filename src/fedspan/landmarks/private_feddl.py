"""FedDL under differential privacy: noise on the rows, on what is sent in each round, or as the paper adds it.

The record of the run states what was spent, what the noise covers and what it does not (`RunRecord.privacy`).
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import numpy as np

from fedspan.errors import InputError, MissingPackageError
from fedspan.federation import Federation, PrivacySpent
from fedspan.federation.site.steps import find_step
from fedspan.landmarks.feddl import Landmarks, Variant, feddl
from fedspan.landmarks.parts.feddl_settings import FedDLSettings, fixed_settings
from fedspan.landmarks.parts.noisy_pull import (
    LANDMARKS_WITHIN,
    local_noisy_descent,
    local_noisy_pull,
    local_paper_cost,
    local_paper_descent,
    local_paper_pull,
    local_rows,
    pull_sensitivity,
)
from fedspan.privacy.accounting import accountant_epsilon
from fedspan.privacy.gaussian import epsilon_of
from fedspan.privacy.mechanisms import GaussianData, GaussianGradient, PaperNoise, check_mechanism, per_column
from fedspan.privacy.noisy_rows import with_noisy_rows
from fedspan.privacy.run_privacy import gaussian_spent, in_front, simulated_sites, spending
from fedspan.sums.columns import agree_on_columns
from fedspan.sums.moments import Moments, moments

MOMENTS = "the sums and squares of the columns, which kernel width and start are made of"
POSTED = "the posted distances of every row to every landmark, from which rows can be rebuilt"
_COVERED = ("what is sent in each round, and so the landmarks",)


def private_feddl(
    fed: Federation, *, privacy: GaussianData | GaussianGradient | PaperNoise, **settings: Any
) -> Landmarks:
    """Return landmarks for all rows, by `feddl` with noise.

    Parameters
    ----------
    privacy : GaussianData, GaussianGradient or PaperNoise
    **settings
        Of `feddl`; ``"auto"`` stands for the paper's numbers.
    """
    check_mechanism(privacy)
    check_frequencies(privacy, settings.get("n_frequencies"))
    settings = fixed_settings(settings)
    if isinstance(privacy, GaussianData):
        return _with_noisy_rows(fed, privacy, settings)
    if isinstance(privacy, GaussianGradient):
        return _with_noisy_gradients(fed, privacy, settings)
    return _with_paper_noise(fed, privacy, settings)


def check_frequencies(privacy: Any, n_frequencies: int | None) -> None:
    """Refuse to follow MMD^2 by sums that the noise does not cover."""
    if isinstance(privacy, GaussianGradient) and n_frequencies:
        raise InputError(
            f"n_frequencies={n_frequencies} must be 0 with GaussianGradient: its noise does not cover the sums by "
            "which MMD^2 is followed"
        )


def _with_noisy_rows(fed: Federation, privacy: GaussianData, settings: dict[str, Any]) -> Landmarks:
    """Sites add noise to their rows, once: a site that answers one call is charged for all."""
    once = {privacy.sigma / (2 * privacy.clip): 1}
    spent = gaussian_spent(privacy, fed, once, ("everything that is made of the rows",))
    with spending(spent, fed, lambda steps: once if steps else {}):
        return feddl(with_noisy_rows(fed, privacy), **settings)


def _with_noisy_gradients(fed: Federation, privacy: GaussianGradient, settings: dict[str, Any]) -> Landmarks:
    """Sites add noise to their sums; kernel sums and MMD^2 are not requested."""
    rounds, steps = (settings.get(name, getattr(FedDLSettings, name)) for name in ("rounds", "local_steps"))
    multiplier = privacy.multiplier(max(1, rounds * steps))
    public = privacy.center is not None
    spent = gaussian_spent(privacy, fed, {multiplier: rounds * steps}, _COVERED, () if public else (MOMENTS,))
    noisy = [find_step(step).id for step in (local_noisy_pull, local_noisy_descent)]

    def public_moments(fed: Federation, _: object = None) -> Moments:
        columns, fed = agree_on_columns(fed)
        center, scale = (per_column(name, getattr(privacy, name), columns.count) for name in ("center", "scale"))
        return Moments(int(fed.sum(local_rows)["n"]), center, scale**2)

    variant = Variant(
        local_noisy_pull,
        local_noisy_descent,
        {"multiplier": multiplier},
        kernel=False,
        n_frequencies=0,
        moments=public_moments if public else moments,
        within=LANDMARKS_WITHIN,
        deviation=lambda n_landmarks, gamma: multiplier * pull_sensitivity(n_landmarks, gamma),
    )
    with spending(spent, fed, lambda answered: {multiplier: steps * sum(answered[name] for name in noisy)}):
        return feddl(fed, **settings, variant=variant)


def _with_paper_noise(fed: Federation, privacy: PaperNoise, settings: dict[str, Any]) -> Landmarks:
    """Sites add noise of the size of their own gradients, and report at the end what it was worth."""
    fed.need_single_replies("PaperNoise, whose worth each site reports for itself,")
    variant = Variant(local_paper_pull, local_paper_descent, {"beta": float(privacy.beta)})
    found = feddl(fed, **settings, variant=variant)
    replies = fed.ask(local_paper_cost).ok
    worth = {site: _reported_mu2(replies.get(site, {}).get("mu2")) for site in fed.sites}
    accountant: dict[str, float] = {}
    with suppress(MissingPackageError):
        accountant = {
            site: accountant_epsilon({_figures(1 / math.sqrt(mu2)): 1}, privacy.delta) if mu2 else 0.0
            for site, mu2 in worth.items()
        }
    leaves_out = (MOMENTS, "the kernel sums that the step is made of", "the sums by which MMD^2 is followed")
    fed.spent(
        PrivacySpent(
            repr(privacy),
            {site: epsilon_of(math.sqrt(mu2), privacy.delta) for site, mu2 in worth.items()},
            privacy.delta,
            accountant,
            _COVERED,
            (leaves_out if settings.get("n_frequencies") != 0 else leaves_out[:2]) + in_front(fed),
            simulated_sites(0.0, fed),
            guaranteed=False,
        )
    )
    return found


def _reported_mu2(mu2: object) -> float:
    """Return what a site reports that its noise was worth; infinite where the report cannot be true."""
    return float(mu2) if isinstance(mu2, int | float) and mu2 >= 0 else math.inf


def _figures(value: float) -> float:
    """Return a number to six figures, so that equal sites need one computation."""
    return float(np.format_float_positional(value, precision=6, fractional=False))
