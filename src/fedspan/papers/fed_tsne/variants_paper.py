"""Ways to learn landmarks and post distances: the paper's and ours, with and without noise."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.engines.local.embedded import federate
from fedspan.landmarks.estimator import FedLandmarks
from fedspan.landmarks.landmark_distances import distances_to
from fedspan.linalg.kernels.landmark_form import LowRankDistances, landmark_form
from fedspan.papers.fed_tsne.layouts_paper import laid_out, neighbors_of
from fedspan.papers.fed_tsne.rows_paper import Rows
from fedspan.privacy import GaussianGradient, PaperNoise
from fedspan.privacy.mechanisms import Mechanism

Array = NDArray[Any]

DELTA = 1e-5
#: The paper's noise, as large as in its tables.
PAPER_NOISE = PaperNoise(1.0, DELTA)
#: Noise with a guarantee.
GUARANTEED = GaussianGradient(8.0, DELTA)


@dataclass(frozen=True)
class Learned:
    """Landmarks that sites have learned, and all that the coordinator can do with them. Rows are in their own order."""

    rows: Rows
    model: Any

    @cached_property
    def B(self) -> Array:
        """Distances (n, n_y) to the landmarks, as the sites post them: in single precision."""
        found = distances_to(self.rows.X, self.model.landmarks_, self.model.centre_, self.model.scale_)
        return found.astype(np.float32)

    @property
    def epsilon(self) -> float:
        """Of the landmarks at delta 1e-5, the worst site's; infinity where there is no noise."""
        spent = self.model.run_.privacy
        return np.inf if spent is None else float(spent.worst)

    def form(self, method: str) -> LowRankDistances:
        """Return the distances between rows by ``"coordinates"``, ``"squared"`` or ``"paper"``."""
        Y = (self.model.landmarks_ - self.model.centre_) / self.model.scale_
        return landmark_form(Y, method).of(self.B / np.float32(self.model.scale_))

    def maps(self, method: str, faces: Iterable[str]) -> dict[str, Array]:
        """Return a map by each of the faces."""
        rows = self.form(method)
        coordinates = rows if method == "coordinates" else self.form("coordinates")
        indices, distances = neighbors_of(rows)
        far = distances * np.float32(self.model.scale_)
        return {face: laid_out(face, indices, far, coordinates.factor) for face in faces}


def epsilon_words(epsilon: float) -> str:
    """Return an epsilon to three digits, in words where there is none.

    Examples
    --------
    >>> epsilon_words(np.inf), epsilon_words(8.0), epsilon_words(22_853.1), epsilon_words(3.2e9)
    ('none', '8', '22,900', '3e+09')
    """
    if np.isinf(epsilon):
        return "none"
    if epsilon >= 1e6:
        return f"{epsilon:.0e}"
    return f"{epsilon:.3g}" if epsilon < 1000 else f"{float(f'{epsilon:.3g}'):,.0f}"


def noise_words(privacy: Mechanism | None) -> str:
    """Return which noise it is, as the end of a line's name."""
    return "" if privacy is None else ", paper's noise" if isinstance(privacy, PaperNoise) else ", guaranteed noise"


def learned(rows: Rows, sites: Array, privacy: Mechanism | None = None, *, seed: int = 0, **settings: Any) -> Learned:
    """Learn landmarks from rows at sites, with the defaults of `FedLandmarks` unless `settings` say otherwise."""
    settings = {"n_landmarks": rows.n_landmarks, **settings}
    fed = federate(rows.X, sites=sites)
    return Learned(rows, FedLandmarks(**settings, privacy=privacy, random_state=seed).fit(fed))
