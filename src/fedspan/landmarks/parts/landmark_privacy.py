"""What the estimators do with ``privacy=...``: landmarks with noise, and who sees noisy rows."""

from __future__ import annotations

import warnings
from typing import Any

from fedspan.checks import frames_inside
from fedspan.federation import Federation, PrivacySpent
from fedspan.landmarks.feddl import Landmarks, check_settings, feddl
from fedspan.landmarks.private_feddl import POSTED, check_frequencies, private_feddl
from fedspan.privacy.mechanisms import GaussianData, check_mechanism
from fedspan.privacy.noisy_rows import with_noisy_rows

#: Rows up to which a warning tells that totals may be the rows. In a minute 40 rows of 64 columns are rebuilt exactly,
#: half of 50, and 100 in part (`benchmarks/leaks.py`); an attacker may have more time.
FEW_ROWS = 200


class SpendsPrivacy:
    """Base of estimators with a parameter ``privacy``."""

    run_: Any
    privacy: Any

    @property
    def privacy_(self) -> PrivacySpent | None:
        """What the fit has spent of the sites' privacy, what that covers and what not."""
        spent: PrivacySpent | None = self.run_.privacy
        return spent


def check_all(settings: dict[str, Any], privacy: Any) -> None:
    """Refuse settings of FedDL and a mechanism that cannot work, before any site is asked."""
    check_mechanism(privacy)
    check_settings(**settings, noise=privacy is not None and not isinstance(privacy, GaussianData))
    check_frequencies(privacy, settings["n_frequencies"])


def learned_landmarks(
    federation: Federation, privacy: Any, settings: dict[str, Any], names: tuple[str, ...] | None
) -> Landmarks:
    """Return landmarks, with or without noise."""
    if privacy is None:
        found = feddl(federation, **settings, names=names)
        _tell_few_rows(found, settings)
        return found
    return private_feddl(federation, privacy=privacy, **settings, names=names)


def _tell_few_rows(found: Landmarks, settings: dict[str, Any]) -> None:
    """Warn where FedDL's totals are as good as the rows: they are few, and the totals hold more numbers than they."""
    told = settings["rounds"] * len(found.points)
    if 0 < found.n <= FEW_ROWS and told > found.n:
        columns = len(found.centre)
        warnings.warn(
            f"FedDL's totals hold {told * columns} numbers about {found.n} rows, which have {found.n * columns}: "
            "whoever sees them may compute so few rows, also under a secure sum (docs/leaks.md); take more rows, or "
            "noise by privacy=GaussianGradient",
            stacklevel=frames_inside(),
        )


def posting(federation: Federation, privacy: Any) -> Federation:
    """Return the federation whose sites post distances; where no noise covers these, the record says so."""
    spent = federation.record.privacy
    if spent is not None and not isinstance(privacy, GaussianData):
        federation.spent(spent.leaving_out(POSTED), again=True)
    return seen_by(privacy, federation)


def seen_by(privacy: Any, fed: Federation) -> Federation:
    """Return the federation as a mechanism shows it: of noisy rows, where the noise is on them."""
    return with_noisy_rows(fed, privacy) if isinstance(privacy, GaussianData) else fed
