"""Maps whose rows, and positions, stay at their sites: what `FedTSNE` is with ``share="sums"`` and ``"centers"``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from fedspan.checks import one_of, true_or_false
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.landmarks.parts.posted_rows import in_order, row_order
from fedspan.maps.by_centers import one_shot_map, place_by_centres, placing
from fedspan.maps.by_sums import Layout, PrivateMap, private_map
from fedspan.maps.parts.map_centres import Codebooks, MapCentres
from fedspan.maps.parts.map_estimator import FedMap
from fedspan.maps.parts.noisy_centres import NoisyBook
from fedspan.privacy.mechanisms import GaussianCenters

Array = NDArray[Any]
Matrix = NDArray[np.float64]

SHARES = ("distances", "sums", "centers")
#: What only maps by posted distances use.
_OF_DISTANCES = (
    "n_landmarks",
    "rounds",
    "method",
    "n_components",
    "perplexity",
    "early_exaggeration_iter",
    "n_iter",
    "neighbors",
    "landmark_settings",
    "device",
    "n_jobs",
)
#: What a fit leaves behind.
_FITTED_BY_SUMS = ("centers_", "center_counts_", "center_positions_", "density_", "density_extent_", "mean_", "axes_")
_FITTED_BY_DISTANCES = (
    "landmarks_",
    "gamma_",
    "mmd2_",
    "centre_",
    "scale_",
    "precision_",
    "factor_",
    "offset_",
    "residuals_",
    "kl_divergence_",
)


class PrivateMaps(FedMap):
    """Mixin of maps that can also be made of sums."""

    post_positions: bool
    sums_settings: Mapping[str, Any] | None

    def fit(self, X: Any, y: Any = None, *, sites: Any = None) -> Self:
        """Make a map of the rows of a table (with ``sites``) or a federation."""
        one_of("share", self.share, SHARES)
        true_or_false("post_positions", self.post_positions)
        self._forget(_FITTED_BY_SUMS if self.share == "distances" else _FITTED_BY_DISTANCES)
        self._forget(("embedding_", "row_sites_"))
        if self.share == "distances":
            for name, unused in (("post_positions", self.post_positions), ("sums_settings", self.sums_settings)):
                if unused:
                    raise InputError(f"{name}={unused!r} goes with share='sums' or 'centers', and has no effect here")
            return super().fit(X, y, sites=sites)
        self._check_privacy()
        layout, books = self._settings()
        mine = not isinstance(X, Federation)  # rows of a table are the user's own, wherever they are shown
        one_shot = partial(one_shot_map, privacy=self.privacy)
        make: Callable[..., PrivateMap] = private_map if self.share == "sums" else one_shot
        with self._fitting(X, y, sites, ensure_min_samples=books.least_rows) as fed:
            found = make(
                fed, layout=layout, books=books, post_positions=mine or self.post_positions, names=self._names()
            )
            self._keep_map(found)
            if found.embedding is not None:
                counts = [len(found.embedding.get(name, ())) for name in fed.sites]
                order = row_order(X, sites, sum(counts))
                self.row_sites_ = in_order(order, np.repeat(np.arange(len(counts), dtype=np.int32), counts))
                positions = np.concatenate(list(found.embedding.values()))
                self.embedding_ = in_order(order, positions.astype(np.float64))
        return self

    def transform(self, X: Any) -> Any:
        """Place new rows on the map; of a federation, at its sites.

        With ``share="sums"`` or ``"centers"`` centres, their positions and the density go to the sites: nothing that is
        about a single row. With ``"distances"`` a new row's position is a mean of those of its nearest rows on the map,
        and everything that the map knows goes to the sites: landmarks, and the landmark coordinates and positions of
        *all* rows of the map, of whatever site. Do so only where the sites may see each other's rows.
        """
        check_is_fitted(self)
        if self.share == "distances":
            return super().transform(X)
        if isinstance(X, Federation):
            return X.apply(place_by_centres, columns=self._names(), **self._placing())
        X = self._validated(X)
        return place_by_centres(X, **self._placing()).astype(X.dtype, copy=False)

    def __getattr__(self, name: str) -> Any:
        if name in ("embedding_", "row_sites_") and "center_positions_" in self.__dict__:
            raise AttributeError(
                f"there is no {name}: the positions of a federation's rows stay at its sites; fit with "
                "post_positions=True, or let the sites place their rows by transform(federation)"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _check_privacy(self) -> None:
        if self.privacy is None:
            return
        if self.share == "sums":
            share = "centers" if isinstance(self.privacy, GaussianCenters) else "distances"
            raise InputError(
                f"privacy={self.privacy!r} goes with share={share!r}: no noise covers the sums of every round of "
                "share='sums'"
            )
        if not isinstance(self.privacy, GaussianCenters):
            raise InputError(
                f"privacy={self.privacy!r} must be None or fedspan.privacy.GaussianCenters(epsilon, delta, clip) with "
                "share='centers'"
            )
        self.privacy.check()

    def _settings(self) -> tuple[Layout, Codebooks | NoisyBook]:
        """Return the settings of a map of sums; what has no effect on it is refused."""
        defaults = inspect.signature(type(self).__init__).parameters
        for name in _OF_DISTANCES:
            value = getattr(self, name)
            if value is not defaults[name].default and value != defaults[name].default:
                raise InputError(
                    f"{name}={value!r} has no effect with share={self.share!r}, and must be left as it is: use "
                    "sums_settings"
                )
        if self.sums_settings is not None and not isinstance(self.sums_settings, Mapping):
            raise InputError(f"sums_settings={self.sums_settings!r} must be a dict of settings, or None")
        given = dict(self.sums_settings or {})
        book: type[Codebooks | NoisyBook] = Codebooks if self.privacy is None else NoisyBook
        names = {kind: [field.name for field in fields(kind)] for kind in (Layout, book)}
        for name in given:
            if name not in names[Layout] + names[book]:
                allowed = ", ".join(names[Layout] + names[book])
                raise InputError(f"sums_settings has {name!r}, and may have {allowed}")
        parts = {kind: {name: given[name] for name in names[kind] if name in given} for kind in names}
        return Layout(**parts[Layout]), book(**parts[book])

    def _settings_that_count(self) -> dict[str, Any]:
        unused = ("post_positions", "sums_settings") if self.share == "distances" else _OF_DISTANCES
        return {name: value for name, value in super()._settings_that_count().items() if name not in unused}

    def _single_replies(self) -> str | None:
        if self.share == "distances":
            return "(share='distances')"
        return "(post_positions=True)" if self.post_positions else None

    def _keep_map(self, made: PrivateMap) -> None:
        found = made.found
        self.mean_, self.axes_ = found.mean, found.axes
        # The axes are orthogonal and all of one length, so that this is the way back.
        self.centers_ = found.mean + found.centres @ found.axes / float(np.vdot(found.axes[0], found.axes[0]))
        self.center_counts_, self.center_positions_ = found.counts, made.positions
        self.density_ = made.density
        high = made.low + made.cell * (len(made.density) - 1)
        self.density_extent_ = (float(made.low[0]), float(high[0]), float(made.low[1]), float(high[1]))

    def _placing(self) -> dict[str, Any]:
        left, right, bottom, _ = self.density_extent_
        centres = (self.centers_ - self.mean_) @ self.axes_.T
        found = MapCentres(self.mean_, self.axes_, 1.0, centres, self.center_counts_, np.zeros(0), 0)
        cell = (right - left) / (len(self.density_) - 1)
        low = np.array([left, bottom])
        return placing(found, self.center_positions_, self.density_, low, cell, self._settings()[0])

    def _forget(self, names: tuple[str, ...]) -> None:
        for name in names:
            self.__dict__.pop(name, None)

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components)
