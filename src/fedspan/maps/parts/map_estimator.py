"""Base of the maps from posted distances: landmarks, neighbours, the order of rows, and places for new rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils.validation import check_is_fitted

from fedspan.arrays import Array
from fedspan.base import FedTransformer
from fedspan.checks import whole_number
from fedspan.errors import InputError
from fedspan.federation import Federation, transform
from fedspan.federation.site.parameters import Matrix, OneOf, Positive, Vector
from fedspan.landmarks.landmark_distances import distances_to, drawn_in
from fedspan.landmarks.parts.landmark_models import PostedRows
from fedspan.landmarks.parts.neighbor_search import find_neighbors, packages
from fedspan.linalg.kernels.landmark_form import METHODS, LandmarkForm, landmark_form
from fedspan.linalg.kernels.neighbors import nearest
from fedspan.linalg.layout.map_graph import placed
from fedspan.linalg.layout.map_quality import map_neighbors, shared_neighbors
from fedspan.linalg.subspaces import with_fixed_signs
from fedspan.sums.row_transforms import same_columns

#: The fewest rows of a map.
_FEWEST = 4
#: Rows whose neighbourhoods are compared with those on the map, and the number of neighbours of each.
_SAMPLE = 1000
_COMPARED = 10
#: Neighbours of a new row, and how many of them count: few near positions place it better than the mean of many.
NEIGHBORS = 15
PERPLEXITY = 5.0
_BLOCK_ROWS = 1024


@dataclass(eq=False, repr=False)
class _MapParameters:
    """The parameters that all maps have."""

    n_landmarks: int | str = "auto"
    _: KW_ONLY
    rounds: int | str = "auto"
    reduce: int | float | str | None = "auto"
    method: str = "coordinates"
    share: str = "distances"
    n_components: int = 2
    neighbors: str = "auto"
    landmark_settings: Mapping[str, Any] | None = None
    privacy: Any = None
    device: str | None = None
    n_jobs: int = 1


class FedMap(_MapParameters, ClassNamePrefixFeaturesOutMixin, FedTransformer, PostedRows):
    """Base of the maps. A subclass states how many neighbours it wants, and lays them out."""

    #: Packages of the extra "maps" that the layout on the processor needs.
    needs: tuple[str, ...] = ()
    axes_: Any

    def fit(self, X: Any, y: Any = None, *, sites: Any = None) -> Self:
        """Make a map of the rows of a table (with ``sites``) or a federation."""
        settings = self._distance_settings()
        whole_number("n_components", self.n_components, 1)
        if self.n_jobs != -1:
            whole_number("n_jobs", self.n_jobs, 1, why=", or -1 for one thread per processor")
        self._check_layout()
        packages(*self.needs if self.device is None else ())
        self._forget()
        with self._fitting(X, y, sites, ensure_min_samples=_FEWEST) as fed:
            posted = self._posted_form(fed, settings)
            rows, n = posted.rows, len(posted.rows)
            if n < _FEWEST:
                raise InputError(f"n_samples={n}: a map needs at least {_FEWEST} rows")
            form = landmark_form(posted.landmarks.reduced)
            coordinates = rows if self.method == "coordinates" else form.of(posted.B)
            start = principal_positions(coordinates.factor, self.n_components, fed.rng)
            k = self._n_neighbors(n)
            # A layout can't stream: these, and two numbers for each neighbour, are of all rows.
            fed.log(layout_bytes=rows.factor.nbytes + rows.offset.nbytes + 16 * k * n)
            indices, distances = find_neighbors(fed, rows, k, self.neighbors, self.n_jobs, self.device)
            fed.log(phase="layout")
            embedding = np.asarray(self._layout(fed, indices, distances, start), dtype=np.float64)
            if not np.isfinite(embedding).all():
                raise InputError("the layout gave positions that are not finite: use other settings of the layout")
            _log_preserved(fed, embedding, indices)
            fed.stop(f"landmarks, neighbours and layout of {n} rows done")
        self.factor_, self.offset_, self.residuals_ = rows.factor, rows.offset, posted.form.residuals
        self.axes_ = None if posted.landmarks.view is None else posted.landmarks.view.axes
        self.embedding_ = embedding
        self._in_table_order(X, sites, "factor_", "offset_", "embedding_")
        return self

    def fit_transform(self, X: Any, y: Any = None, *, sites: Any = None) -> Any:
        """Fit to `X` and return ``embedding_``."""
        return self.fit(X, y, sites=sites).embedding_

    def embedding_at(self, site: str) -> NDArray[np.float64]:
        """Return the positions of a site's rows, in their order there."""
        check_is_fitted(self)
        return np.asarray(self.embedding_[self._rows_of(site)])

    def transform(self, X: Any) -> Any:
        """Place new rows on the map, each at a mean of its nearest rows there; of a federation, at its sites.

        Then everything that the map knows goes to the sites: landmarks, and the landmark coordinates and positions of
        *all* rows of all sites. Do so only where the sites may see each other's rows.
        """
        check_is_fitted(self)
        form = landmark_form((self.landmarks_ - self.centre_) / self.scale_, self.method, self.residuals_)
        parameters = {name: getattr(form, name) for name in ("method", "matrix", "signs", "squares", "residuals")}
        own = ("centre", "scale", "factor", "offset", "embedding", "axes")
        parameters |= {name: getattr(self, f"{name}_") for name in own}
        parameters["landmarks"] = self.landmarks_
        if self.axes_ is not None:
            parameters["landmarks"] = (self.landmarks_ - self.centre_) @ self.axes_.T.astype(np.float64)
        return self._applied(X, place_on_map, **parameters)

    def _single_replies(self) -> str | None:
        return f"(share={self.share!r})"

    @abstractmethod
    def _check_layout(self) -> None:
        """Refuse parameters of the layout that cannot work."""

    @abstractmethod
    def _n_neighbors(self, n: int) -> int:
        """Return the number of neighbours that the layout of n rows needs."""

    @abstractmethod
    def _layout(self, fed: Federation, indices: Array, distances: Array, start: Array) -> Array:
        """Return positions (n, n_components) from neighbours and a start whose first column has the deviation 1."""

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components)


def counted_rounds(federation: Federation, n: int) -> closing[Generator[int, None, None]]:
    """Return a context for a library's own loop, in which each ``next(rounds, None)`` begins one of n rounds."""
    return closing(cast(Generator[int, None, None], federation.rounds(n)))


def _log_preserved(federation: Federation, positions: Array, indices: Array) -> None:
    """Log the share of the nearest rows, by landmark distances, that are also nearest on the map, for some rows."""
    k = min(_COMPARED, indices.shape[1])
    some = np.sort(federation.rng.choice(len(positions), min(_SAMPLE, len(positions)), replace=False))
    share = shared_neighbors(map_neighbors(positions, k, some), indices[some, :k])
    federation.log(preserved=share, preserved_neighbors=k, preserved_sample=len(some))


def principal_positions(C: Array, n_components: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the leading principal components of coordinates (n, r), the first one with deviation 1.

    Small noise makes up for missing components: no two rows start at one place.
    """
    D = C - C.mean(axis=0, dtype=np.float64)
    values, vectors = np.linalg.eigh(D.T @ D)
    axes = with_fixed_signs(vectors[:, ::-1][:, :n_components]) if len(values) else vectors
    positions = 1e-4 * rng.standard_normal((len(C), n_components))
    spread = np.sqrt(max(float(values[-1]) / len(C), 0.0)) if len(values) else 0.0
    if spread > 0:
        positions[:, : axes.shape[1]] += D @ axes / spread
    return positions


@transform("maps.place_on_map")
def place_on_map(
    X: Array,
    landmarks: Matrix,
    centre: Vector,
    scale: Positive,
    method: Annotated[str, OneOf(METHODS)],
    matrix: Matrix,
    signs: Vector,
    squares: Vector,
    residuals: bool,
    factor: Matrix,
    offset: Vector,
    embedding: Matrix,
    axes: Matrix | None = None,
) -> Array:
    """Return the positions (n, q) of rows on a map whose rows have the low-rank form `factor`, `offset`.

    With `axes` rows are seen along these, and `landmarks` are coordinates.
    """
    same_columns(X, len(centre))
    form = LandmarkForm(method, matrix, signs, squares, residuals)
    known = form.form_of(factor, offset)
    k = min(NEIGHBORS, len(known))
    positions = np.empty((len(X), embedding.shape[1]))
    for start in range(0, len(X), _BLOCK_ROWS):
        part = slice(start, start + _BLOCK_ROWS)
        near = drawn_in(X[part], centre, scale)
        rows = form.of(distances_to(near, landmarks, centre, scale, axes) / scale, np.float64)
        indices, _ = nearest(known, k, form.form_of(rows.factor.astype(factor.dtype), rows.offset.astype(factor.dtype)))
        # In double, so that a position does not depend on which rows are placed with it.
        inner = np.vecdot((rows.factor * rows.signs)[:, None], factor[indices].astype(np.float64))
        values = rows.offset[:, None] + offset[indices] + inner
        positions[part] = placed(embedding, indices, known.as_distances(values), PERPLEXITY)
    return positions
