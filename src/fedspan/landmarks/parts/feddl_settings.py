"""The settings of FedDL, which several estimators have."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from fedspan.checks import one_of, real_number, whole_number
from fedspan.errors import InputError
from fedspan.linalg.array_backend import check_device
from fedspan.privacy.mechanisms import GaussianData, GaussianGradient, check_mechanism


@dataclass(frozen=True)
class FedDLSettings:
    """The settings of FedDL, as `FedLandmarks` documents them."""

    n_landmarks: int = 500
    rounds: int = 50
    gamma: float = 1.0
    momentum: float | None = None
    step_size: float | None = None
    local_steps: int = 1
    upload: str = "gradient"
    precision: str = "auto"
    n_frequencies: int | None = None
    device: str | None = None

    def check(self, noise: bool) -> None:
        """Refuse settings that cannot work, before any site is contacted; `noise` on the sums changes defaults."""
        whole_number("n_landmarks", self.n_landmarks, 2)
        whole_number("rounds", self.rounds, 0)
        real_number("gamma", self.gamma, above=0)
        edge = 2 * (1 + real_number("momentum", self.inertia(noise), least=0, below=1))
        if self.step_size is not None:
            real_number("step_size", self.step_size, above=0, below=edge, why=", twice 1 + momentum: above is unstable")
        whole_number("local_steps", self.local_steps, 1)
        one_of("upload", self.upload, ("gradient", "landmarks"))
        one_of("precision", self.precision, ("auto", "single", "double"))
        if self.n_frequencies is not None:
            whole_number("n_frequencies", self.n_frequencies, 0)
        check_device(self.device)

    def inertia(self, noise: bool) -> float:
        """Return the momentum, or its default."""
        return (0.0 if noise else 0.9) if self.momentum is None else self.momentum


#: The names of all settings.
FEDDL_SETTINGS = tuple(field.name for field in fields(FedDLSettings))


def checked_settings(model: Any, own: tuple[str, ...] = ("n_landmarks", "rounds", "device")) -> dict[str, Any]:
    """Return the settings of a model with a mechanism: its `own` parameters and its ``landmark_settings``."""
    more = getattr(model, "landmark_settings", None) or {}
    allowed = sorted(set(FEDDL_SETTINGS) - set(own))
    for name in more:
        if name not in allowed:
            raise InputError(f"landmark_settings has {name!r}, and may have {', '.join(allowed)}")
    settings = {**{name: getattr(model, name) for name in own}, **more}
    check_mechanism(model.privacy)
    FedDLSettings(**settings).check(model.privacy is not None and not isinstance(model.privacy, GaussianData))
    check_frequencies(model.privacy, settings.get("n_frequencies"))
    return settings


def check_frequencies(privacy: Any, n_frequencies: int | None) -> None:
    """Refuse to follow MMD^2 by sums that the noise does not cover."""
    if isinstance(privacy, GaussianGradient) and n_frequencies:
        raise InputError(
            f"n_frequencies={n_frequencies} must be 0 with GaussianGradient: its noise does not cover the sums by "
            "which MMD^2 is followed"
        )
