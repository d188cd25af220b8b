"""Differential privacy: the noise that sites add to their replies, what it costs, and each site's own account of it."""

from __future__ import annotations

from fedspan.privacy.accounting import Cost, accountant_epsilon, zcdp_epsilon
from fedspan.privacy.gaussian import epsilon_of, mu_of, sigma_of
from fedspan.privacy.ledger import Charge, Ledger, SimulatedLedger
from fedspan.privacy.mechanisms import (
    GaussianCenters,
    GaussianData,
    GaussianGradient,
    GaussianMoments,
    Mechanism,
    PaperNoise,
)
from fedspan.privacy.noise import normal, with_noise

__all__ = [
    "Charge",
    "Cost",
    "GaussianCenters",
    "GaussianData",
    "GaussianGradient",
    "GaussianMoments",
    "Ledger",
    "Mechanism",
    "PaperNoise",
    "SimulatedLedger",
    "accountant_epsilon",
    "epsilon_of",
    "mu_of",
    "normal",
    "sigma_of",
    "with_noise",
    "zcdp_epsilon",
]
