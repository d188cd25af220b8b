"""Rows at sites, the landmarks that the sites learn, and what the coordinator makes of the posted distances."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan import datasets
from fedspan.arrays import Array
from fedspan.audit import psnr, relative_error, trilaterate
from fedspan.engines.local.embedded import LocalFederation, federate
from fedspan.errors import DataMissingError
from fedspan.federation import Federation, Site
from fedspan.landmarks.estimator import FedLandmarks
from fedspan.landmarks.landmark_distances import distances_to
from fedspan.landmarks.parts.neighbor_search import find_neighbors
from fedspan.linalg.kernels.landmark_form import LowRankDistances, landmark_form
from fedspan.linalg.layout.map_quality import plain_distances
from fedspan.maps.parts.map_estimator import FedMap, principal_positions
from fedspan.maps.tsne import FedTSNE
from fedspan.maps.umap import FedUMAP
from fedspan.privacy import GaussianGradient, PaperNoise
from fedspan.privacy.mechanisms import Mechanism

FACES: dict[str, type[FedMap]] = {"t-SNE": FedTSNE, "UMAP": FedUMAP}
#: Sites by default: one for each class of MNIST, as in the paper.
SITES = 10
#: Neighbours of each row that t-SNE takes by default, and more than any measure does.
NEIGHBORS = 90
DELTA = 1e-5
#: The paper's noise, as large as in its tables, and noise with a guarantee.
PAPER_NOISE, GUARANTEED = PaperNoise(1.0, DELTA), GaussianGradient(8.0, DELTA)
#: Rows that are rebuilt from posted distances, and the heads of `Leak.cells`.
REBUILT = 1000
LEAK_HEADS = ("leak: error", "PSNR")


@dataclass(frozen=True)
class PaperRows:
    """A table (n, m) with classes from 0, its number of landmarks, and the bounds of its values if there are any."""

    name: str
    X: Array
    y: NDArray[np.int64]
    n_landmarks: int
    bounds: tuple[float, float] | None = None

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.y.max()) + 1

    def sites(self, split: str, n_sites: int | None = None) -> Array:
        """Return a site for each row: at random (``"IID"``), or such that no two sites have a class in common."""
        if split == "IID":
            return datasets.split_iid(len(self.X), n_sites or SITES, seed=0)
        return datasets.split_by_label(self.y, n_sites)


def _fashion(n: int) -> PaperRows:
    try:
        return _drawn("Fashion-MNIST", datasets.load_fashion_mnist(part="all"), n, 500)
    except DataMissingError:
        return _drawn("Fashion-MNIST (10k file)", datasets.load_fashion_mnist(), n, 500)


def _drawn(name: str, made: Any, n: int, n_landmarks: int, images: bool = True) -> PaperRows:
    """Draw n rows; pixels become numbers from 0 to 1, other columns are standardised."""
    X = made.data if images else (made.data - made.data.mean(axis=0)) / made.data.std(axis=0)
    chosen = np.random.default_rng(0).permutation(len(X))[:n]
    y = np.unique(made.target, return_inverse=True)[1][chosen]
    rows = X[chosen] / np.float32(255) if images else X[chosen]
    return PaperRows(name, rows, y, n_landmarks, (0.0, 1.0) if images else None)


#: Up to n rows of each data set, at random; gaps of the mice's proteins are filled by means.
LOADERS: dict[str, Callable[[int], PaperRows]] = {
    "MNIST": lambda n: _drawn("MNIST", datasets.load_mnist(), n, 500),
    "Fashion-MNIST": _fashion,
    "COIL-20": lambda n: _drawn("COIL-20", datasets.load_coil20(), n, 300),
    "mice": lambda n: _drawn("mice protein", datasets.load_mice_protein(missing="mean"), n, 100, images=False),
}


@contextmanager
def coordinator(seed: int = 0) -> Iterator[Federation]:
    """Give what a layout needs of a coordinator: random numbers, and a record of its progress."""
    with LocalFederation([Site("none", np.zeros((1, 1)))]).begin("layout", seed=seed) as fed:
        yield fed


def neighbors_of(rows: LowRankDistances, k: int = NEIGHBORS) -> tuple[Array, Array]:
    """Return the nearest neighbours of each row and their distances (n, k)."""
    with coordinator() as fed:
        return find_neighbors(fed, rows, min(k, len(rows) - 1), "exact")


def laid_out(
    face: str, indices: Array, distances: Array, coordinates: Array, mirror: tuple[int, int] = (1, 1)
) -> Array:
    """Return the map (n, 2) by ``"t-SNE"`` or ``"UMAP"`` with default settings, from neighbours.

    Parameters
    ----------
    indices, distances : array (n, k)
        At least as many neighbours as the face takes.
    coordinates : array (n, r)
        Rows whose principal components are the start; `mirror` reverses some of these.
    """
    model = FACES[face]()
    k = model._n_neighbors(len(indices))
    with coordinator() as fed:
        start = principal_positions(coordinates, 2, fed.rng) * mirror
        return np.asarray(model._layout(fed, indices[:, :k], distances[:, :k], start), dtype=np.float64)


class Pooled:
    """Rows in one place: their true neighbours, and maps of them."""

    def __init__(self, X: Array, k: int = NEIGHBORS) -> None:
        self.rows = plain_distances(X)
        self.indices, self.distances = neighbors_of(self.rows, k)

    def maps(self, faces: Iterable[str]) -> dict[str, Array]:
        """Return a map by each of the faces."""
        return {face: laid_out(face, self.indices, self.distances, self.rows.factor) for face in faces}


@dataclass(frozen=True)
class Leak:
    """Errors of rebuilt rows: relative (1: no better than the mean row), and PSNR of images in dB."""

    relative_error: float
    psnr: float | None

    def cells(self) -> list[str]:
        """Return the relative error and the PSNR as text."""
        return [f"{self.relative_error:.2g}", "" if self.psnr is None else f"{self.psnr:.1f} dB"]


@dataclass(frozen=True)
class Learned:
    """Landmarks that sites have learned. Rows are in their own order."""

    rows: PaperRows
    model: Any

    @cached_property
    def B(self) -> Array:
        """Distances (n, n_y) to the landmarks, as the sites post them: in single precision."""
        found = distances_to(self.rows.X, self.model.landmarks_, self.model.centre_, self.model.scale_)
        return found.astype(np.float32)

    @property
    def epsilon(self) -> float:
        """Epsilon of the landmarks at delta 1e-5, the worst site's; infinity where there is no noise."""
        spent = self.model.run_.privacy
        return np.inf if spent is None else float(spent.worst)

    @property
    def positions(self) -> Array:
        """Landmarks (n_y, m), centred, in units of the rows' scale."""
        return np.asarray((self.model.landmarks_ - self.model.centre_) / self.model.scale_)

    def form(self, method: str) -> LowRankDistances:
        """Return the distances between rows by ``"coordinates"``, ``"squared"`` or ``"paper"``."""
        return landmark_form(self.positions, method).of(self.B / np.float32(self.model.scale_))

    def maps(self, method: str, faces: Iterable[str]) -> dict[str, Array]:
        """Return a map by each of the faces."""
        rows = self.form(method)
        coordinates = rows if method == "coordinates" else self.form("coordinates")
        indices, distances = neighbors_of(rows)
        far = distances * np.float32(self.model.scale_)
        return {face: laid_out(face, indices, far, coordinates.factor) for face in faces}

    def leak(self) -> Leak:
        """Rebuild the first 1000 rows by trilateration, as the coordinator can, and compare them with the true ones."""
        truth, bounds = np.asarray(self.rows.X[:REBUILT], dtype=np.float64), self.rows.bounds
        rebuilt = trilaterate(self.B[:REBUILT], self.model.landmarks_).rows
        return Leak(relative_error(rebuilt, truth), None if bounds is None else psnr(rebuilt, truth, bounds))


def learned(rows: PaperRows, sites: Array, privacy: Mechanism | None = None, **settings: Any) -> Learned:
    """Learn landmarks from rows at sites, with the defaults of `FedLandmarks` unless `settings` differ."""
    settings = {"n_landmarks": rows.n_landmarks, **settings}
    return Learned(rows, FedLandmarks(**settings, privacy=privacy, random_state=0).fit(federate(rows.X, sites=sites)))


def epsilon_words(epsilon: float) -> str:
    """Return an epsilon to three digits; without noise, a word.

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


def paper_way(split: str, privacy: Mechanism | None) -> str:
    """Return the name that a split and a noise have in the published tables, which have no guaranteed noise."""
    return split if privacy is None else f"{split}, noise" if isinstance(privacy, PaperNoise) else ""


def beside(value: float, theirs: float | None = None) -> str:
    """Return our number, with the paper's in brackets where it has one.

    Examples
    --------
    >>> beside(0.95378, 0.9477), beside(-0.25)
    ('.954 [.948]', '-.250')
    """
    shown = [
        f"{number:.3f}".replace("0.", ".", 1) if abs(number) < 1 else f"{number:.3f}" for number in (value, theirs or 0)
    ]
    return shown[0] + ("" if theirs is None else f" [{shown[1]}]")
