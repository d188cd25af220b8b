"""The settings of FedDL: their defaults, what depends on the data, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedspan.checks import one_of, real_number, whole_number
from fedspan.federation.site.parameters import MOST_PASSES
from fedspan.linalg.array_backend import check_device

#: Kernel evaluations times columns of one round, above which ``precision="auto"`` is single.
SINGLE_ABOVE = 2**32
#: ``n_landmarks="auto"``: landmarks per column of the rows as FedDL sees them, the fewest and the most (the paper's).
PER_COLUMN, FEWEST_LANDMARKS, PAPER_LANDMARKS = 2, 50, 500
#: ``rounds="auto"``: the most rounds (the paper's). They end sooner if in this number of rounds the least MMD^2 fell by
#: less than this share of its fall since the start.
PAPER_ROUNDS = 50
_PATIENCE, _SETTLED = 5, 0.02


@dataclass(frozen=True)
class FedDLSettings:
    """The settings of FedDL, as `FedLandmarks` documents them."""

    n_landmarks: int | str = PAPER_LANDMARKS
    rounds: int | str = PAPER_ROUNDS
    gamma: float = 1.0
    momentum: float | None = None
    step_size: float | None = None
    local_steps: int = 1
    upload: str = "gradient"
    precision: str = "auto"
    n_frequencies: int | None = None
    device: str | None = None

    def completed(self, momentum: float, n_frequencies: int) -> FedDLSettings:
        """Return these settings with the defaults of a variant; refuse settings that cannot work."""
        momentum = momentum if self.momentum is None else self.momentum
        n_frequencies = n_frequencies if self.n_frequencies is None else self.n_frequencies
        chosen = replace(self, momentum=momentum, n_frequencies=n_frequencies)
        for name, least in {"n_landmarks": 2, "rounds": 0}.items():
            if getattr(chosen, name) != "auto":
                whole_number(name, getattr(chosen, name), least, why=", or 'auto'")
        real_number("gamma", chosen.gamma, above=0)
        edge = 2 * (1 + real_number("momentum", chosen.momentum, least=0, below=1))
        if self.step_size is not None:
            real_number("step_size", self.step_size, above=0, below=edge, why=", twice 1 + momentum: above is unstable")
        whole_number("local_steps", chosen.local_steps, 1, MOST_PASSES)
        one_of("upload", chosen.upload, ("gradient", "landmarks"))
        one_of("precision", chosen.precision, ("auto", "single", "double"))
        whole_number("n_frequencies", chosen.n_frequencies, 0)
        check_device(chosen.device)
        return chosen

    def landmarks_for(self, columns: int) -> int:
        """Return the number of landmarks for rows of this number of columns.

        More landmarks than columns determine all distances between rows. Twice as many average rounding errors.
        """
        if self.n_landmarks == "auto":
            return max(FEWEST_LANDMARKS, min(PAPER_LANDMARKS, PER_COLUMN * columns))
        return int(self.n_landmarks)

    @property
    def most_rounds(self) -> int:
        """The number of rounds, or their limit."""
        return PAPER_ROUNDS if self.rounds == "auto" else int(self.rounds)

    def precision_for(self, numbers: int, *, reduced: bool = False) -> str:
        """Return the precision for this number of kernel evaluations times columns in a round.

        Coordinates along axes that are in single precision themselves are not better in double.
        """
        if self.precision == "auto":
            return "single" if reduced or numbers > SINGLE_ABOVE else "double"
        return self.precision


def settled(followed: list[float]) -> bool:
    """Return whether MMD^2 has settled: the last rounds lowered it by little, beside the fall since the start.

    Examples
    --------
    >>> settled([1.0, 0.5, 0.2, 0.1]), settled([1.0, 0.1, 0.099, 0.098, 0.098, 0.099, 0.098])
    (False, True)
    """
    if len(followed) <= _PATIENCE:
        return False
    before = min(followed[:-_PATIENCE])
    return before - min(followed) <= _SETTLED * (followed[0] - before)


def fixed_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with the paper's numbers in place of ``"auto"``: noise is made for a known number of rounds."""
    paper = {"n_landmarks": PAPER_LANDMARKS, "rounds": PAPER_ROUNDS}
    return {name: paper[name] if name in paper and value == "auto" else value for name, value in settings.items()}
