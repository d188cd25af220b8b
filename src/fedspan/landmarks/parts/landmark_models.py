"""What estimators with landmarks share: FedDL with or without noise, fitted attributes, what was spent."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from fedspan.checks import frames_inside
from fedspan.federation import Federation, PrivacySpent
from fedspan.landmarks.feddl import Landmarks, feddl
from fedspan.landmarks.private_feddl import private_feddl
from fedspan.privacy.mechanisms import GaussianData
from fedspan.privacy.noisy_rows import with_noisy_rows

#: Up to this number of rows a warning states that totals may reveal them. In a minute 40 rows of 64 columns are rebuilt
#: exactly, half of 50, and 100 in part (`benchmarks/leaks.py`); an attacker may have more time.
FEW_ROWS = 200


class SpendsPrivacy:
    """Base of estimators whose run may add noise."""

    run_: Any
    privacy: Any

    @property
    def privacy_(self) -> PrivacySpent | None:
        """What the fit has spent of the sites' privacy, what that covers and what not."""
        spent: PrivacySpent | None = self.run_.privacy
        return spent


def learned_landmarks(
    federation: Federation, privacy: Any, settings: dict[str, Any], names: tuple[str, ...] | None
) -> Landmarks:
    """Return landmarks, with or without noise."""
    if privacy is not None:
        return private_feddl(federation, privacy=privacy, **settings, names=names)
    found = feddl(federation, **settings, names=names)
    numbers, columns = settings["rounds"] * len(found.points), len(found.centre)
    if 0 < found.n <= FEW_ROWS and numbers > found.n:
        warnings.warn(
            f"FedDL's totals hold {numbers * columns} numbers about {found.n} rows, which have {found.n * columns}: "
            "an attacker who sees them may compute the rows, even under a secure sum (docs/leaks.md); use more rows, "
            "or noise by privacy=GaussianGradient",
            stacklevel=frames_inside(),
        )
    return found


def keep_landmarks(model: Any, found: Landmarks) -> None:
    """Set the fitted attributes that describe landmarks."""
    model.landmarks_, model.gamma_, model.mmd2_ = found.points, found.gamma, found.mmd2
    model.centre_, model.scale_, model.precision_ = np.asarray(found.centre), found.scale, found.precision


def seen_by(privacy: Any, fed: Federation) -> Federation:
    """Return the federation as a mechanism shows it: with noisy rows, if the noise is on them."""
    return with_noisy_rows(fed, privacy) if isinstance(privacy, GaussianData) else fed
