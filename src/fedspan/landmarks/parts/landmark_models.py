"""Bases of estimators with landmarks: settings, FedDL with or without noise, and rows known by posted distances."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sized
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClusterMixin
from sklearn.utils.validation import check_is_fitted

from fedspan.arrays import Array
from fedspan.base import FedEstimator
from fedspan.checks import dict_of, frames_inside, one_of
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.federation.site_labels import site_rows
from fedspan.landmarks.feddl import PLAIN, Landmarks, feddl
from fedspan.landmarks.landmark_distances import landmark_distances, neighbor_hits, spread_out
from fedspan.landmarks.parts.card_rows import double_device
from fedspan.landmarks.parts.feddl_settings import FedDLSettings
from fedspan.landmarks.parts.neighbor_search import check_search
from fedspan.landmarks.parts.principal_view import Reduce, check_reduce
from fedspan.landmarks.private_feddl import POSTED, check_frequencies, private_feddl
from fedspan.linalg.kernels.landmark_form import FINE_ENOUGH, METHODS, LandmarkForm, LowRankDistances, landmark_form
from fedspan.linalg.kernels.neighbors import nearest
from fedspan.privacy.mechanisms import GaussianData, GaussianGradient, check_mechanism
from fedspan.privacy.noisy_rows import with_noisy_rows
from fedspan.privacy.run_privacy import refuse_strict

#: The names of FedDL's settings.
FEDDL_SETTINGS = tuple(field.name for field in fields(FedDLSettings))
#: Up to this number of rows a warning states that totals may reveal them. In a minute 40 rows of 64 columns are rebuilt
#: exactly, half of 50, and 100 in part (`benchmarks/leaks.py`); an attacker may have more time.
FEW_ROWS = 200
#: The number of rows whose nearest ones show whether single precision is enough, and the number of these.
_SAMPLE = 200
_NEAREST = 10
#: The share of true neighbours below which a warning reports lost precision.
_CONFUSED = 0.9


class LandmarkEstimator(FedEstimator):
    """Base of estimators that learn landmarks by FedDL."""

    privacy: Any = None

    def _feddl_settings(self, own: tuple[str, ...] = ("n_landmarks", "rounds", "device")) -> dict[str, Any]:
        """Return the settings of FedDL, the `own` parameters and ``landmark_settings``; refuse what cannot work."""
        allowed = sorted(set(FEDDL_SETTINGS) - set(own))
        more = dict_of("landmark_settings", getattr(self, "landmark_settings", None), "settings", allowed)
        settings = {**{name: getattr(self, name) for name in own}, **more}
        check_mechanism(self.privacy)
        noisy_sums = self.privacy is not None and not isinstance(self.privacy, GaussianData)
        FedDLSettings(**settings).completed(0.0 if noisy_sums else PLAIN.momentum, 0)
        check_frequencies(self.privacy, settings.get("n_frequencies"))
        return settings

    def _learn_landmarks(
        self, federation: Federation, settings: dict[str, Any], *, reduce: Reduce = None, posting: bool = False
    ) -> Landmarks:
        """Learn landmarks, with or without noise, set the attributes that describe them, and return them."""
        own = {**settings, "names": self._names(), "posting": posting}
        if self.privacy is None:
            found = feddl(federation, reduce=reduce, **own)
            _warn_of_few_rows(found)
        else:
            found = private_feddl(federation, privacy=self.privacy, **own)
        self.landmarks_, self.gamma_, self.mmd2_ = found.points, found.gamma, found.mmd2
        self.centre_, self.scale_, self.precision_ = np.asarray(found.centre), found.scale, found.precision
        return found

    def _seen(self, federation: Federation) -> Federation:
        """Return the federation as the mechanism shows it: with noisy rows, if the noise is on them."""
        return with_noisy_rows(federation, self.privacy) if isinstance(self.privacy, GaussianData) else federation

    def _applied(self, X: Any, function: Callable[..., Array], **parameters: Any) -> Any:
        """Return what a transform makes of a table, in its precision; of a federation, at its sites."""
        if isinstance(X, Federation):
            return self._seen(X).apply(function, columns=self._names(), **parameters)
        X = self._validated(X)
        return function(X, **parameters).astype(X.dtype, copy=False)


def _warn_of_few_rows(found: Landmarks) -> None:
    numbers, columns = found.rounds * len(found.points), len(found.centre)
    if 0 < found.n <= FEW_ROWS and numbers > found.n:
        warnings.warn(
            f"FedDL's totals hold {numbers * columns} numbers about {found.n} rows, which have {found.n * columns}: "
            "an attacker that sees them may compute the rows, even under a secure sum (docs/leaks.md); use more rows, "
            "or noise by privacy=GaussianGradient",
            stacklevel=frames_inside(),
        )


class Posted(NamedTuple):
    """Landmarks, the distances B (n, n_y) of all rows to them, in units of their scale, and the low-rank form of these.

    Rows are in site order, then row order. `rows` is what `form` makes of B, for a search for neighbours.
    """

    landmarks: Landmarks
    B: Array
    form: LandmarkForm
    rows: LowRankDistances


class PostedRows(LandmarkEstimator):
    """Base of estimators with one result per row: in the order of a table, or in site order, then row order.

    Attributes
    ----------
    row_sites_ : array (n,)
        Number of the site of each row, in ``sites_``.
    """

    row_sites_: NDArray[np.int32]
    #: Attributes that exist only if the sites of a federation post values, one that every fit sets, and the way out.
    _if_posted: tuple[tuple[str, ...], str, str] = ((), "", "")

    def __getattr__(self, name: str) -> Any:
        names, always, way_out = self._if_posted
        if name in names and always in vars(self):
            raise AttributeError(f"{name} does not exist: values of a federation's rows stay at its sites; {way_out}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _rows_of(self, site: str) -> NDArray[np.bool_]:
        """Return which rows belong to a site."""
        if site not in self.sites_:
            raise InputError(f"site={site!r} must be one of {', '.join(map(repr, self.sites_[:10]))}")
        return np.asarray(self.row_sites_ == self.sites_.index(site))

    def _forget(self) -> None:
        """Delete what an earlier fit, perhaps with other settings, has left."""
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)

    def _refuse_unused(self, names: tuple[str, ...], why: str) -> None:
        """Refuse other values than the defaults for parameters without effect."""
        defaults = inspect.signature(type(self).__init__).parameters
        for name in names:
            value, default = getattr(self, name), defaults[name].default
            if value is not default and value != default:
                raise InputError(f"{name}={value!r} has no effect with {why}: leave it at {default!r}")

    def _keep_row_sites(self, posted: Mapping[str, Sized]) -> None:
        """Set ``row_sites_`` from what each site posted, in site order."""
        counts = [len(posted.get(name, ())) for name in self.sites_]
        self.row_sites_ = np.repeat(np.arange(len(counts), dtype=np.int32), counts)

    def _in_table_order(self, X: Any, sites: Any, *names: str) -> None:
        """Bring ``row_sites_`` and other attributes per row from site order into the order of a table's rows."""
        if isinstance(X, Federation) or sites is None:
            return
        order = np.concatenate(list(site_rows(sites, len(self.row_sites_)).values()))
        for name in ("row_sites_", *names):
            values = getattr(self, name)
            ordered = np.empty_like(values)
            ordered[order] = values
            setattr(self, name, ordered)

    def _distance_settings(self) -> dict[str, Any]:
        """Return the settings of FedDL; refuse what cannot work with posted distances."""
        settings = self._feddl_settings()
        self._reduction()
        one_of("method", self.method, METHODS)
        one_of("share", self.share, ("distances",))
        check_search(self.neighbors, self.method, self.device)
        return settings

    def _reduction(self) -> Reduce:
        """Return how rows are reduced before landmarks are learned; refuse what noise does not cover."""
        reduce: Reduce = getattr(self, "reduce", None)
        check_reduce(reduce)
        if self.privacy is not None and reduce not in (None, "auto"):
            raise InputError(
                f"reduce={reduce!r} does not go with privacy={self.privacy!r}, whose noise does not cover the sums of "
                "PCA: leave it at 'auto', or put FedPCA(privacy=GaussianMoments(...)) before the map"
            )
        return reduce if self.privacy is None else None

    def _posted(self, federation: Federation, settings: dict[str, Any]) -> tuple[Landmarks, Array]:
        """Return landmarks, and the distances (n, n_y) of all rows to them, in units of the landmarks' scale."""
        if isinstance(self.privacy, GaussianGradient):
            refuse_strict(federation, "maps and clusters need distances that GaussianGradient has no noise for")
        federation.log(phase="landmarks")
        found = self._learn_landmarks(federation, settings, reduce=self._reduction(), posting=True)
        federation.log(phase="distances")
        spent = federation.record.privacy
        if spent is not None and not isinstance(self.privacy, GaussianData):
            federation.spent(spent.leaving_out(POSTED), again=True)
        return found, self._requested(federation, found, "single")

    def _requested(self, federation: Federation, found: Landmarks, precision: str) -> Array:
        device = None if self.privacy is not None else self.device
        posted = landmark_distances(self._seen(federation), landmarks=found, precision=precision, device=device)
        self._keep_row_sites(posted)
        return np.concatenate(list(posted.values()))

    def _posted_form(self, federation: Federation, settings: dict[str, Any]) -> Posted:
        """Return the rows as `method` makes them of posted distances, for a search for neighbours.

        Sites post distances in single precision, and again in double where single cannot separate the nearest ones.
        The record has `site_recall`, the share of true neighbours within the sites that are found.
        """
        found, B = self._posted(federation, settings)
        form = landmark_form(found.reduced, self.method, None if settings["rounds"] else False)
        rows, precision = form.of(B, device=double_device(self.device)), "single"
        if not _fine(rows, settings["device"]):
            precision = "double"
            federation.log(posted=precision)
            B = self._requested(federation, found, precision)
            rows = form.of(B, np.float64)
        how = {"method": self.method, "residuals": form.residuals, "precision": precision, "device": self.device}
        share, of = neighbor_hits(self._seen(federation), landmarks=found, **how)
        if of:
            federation.log(site_recall=share, site_recall_of=of)
        if precision == "double" and share < _CONFUSED and not _fine(rows, settings["device"]):
            warnings.warn(
                f"rows are so near to their neighbours, beside the spread of all ({found.scale:.3g}), that distances "
                f"to landmarks hardly separate them: {100 * share:.0f} % of ten neighbours within the sites were "
                "found; leave out outliers, scale the columns, or make maps of the groups one by one",
                stacklevel=frames_inside(),
            )
        return Posted(found, B, form, rows)


class LabelledRows(ClusterMixin, PostedRows):
    """Base of estimators with one cluster per row."""

    labels_: Array

    def fit_predict(self, X: Any, y: Any = None, *, sites: Any = None) -> Array:
        """Fit to `X` and return ``labels_``."""
        return np.asarray(self.fit(X, y, sites=sites).labels_)

    def labels_at(self, site: str) -> Array:
        """Return the labels of a site's rows, in their order there."""
        check_is_fitted(self)
        return self.labels_[self._rows_of(site)]


def _fine(rows: LowRankDistances, device: str | None) -> bool:
    """Return whether rounding is small beside the distances of some rows to their nearest ones."""
    if len(rows) < 2:
        return True
    some = spread_out(len(rows), _SAMPLE)
    k = min(_NEAREST, len(rows) - 1)
    here = None if rows.factor.dtype == np.float64 else device
    found = nearest(rows, k + 1, rows.rows(some), here)[0]
    others = np.array([[i for i in near if i != own][:k] for own, near in zip(some, found, strict=True)])
    return rows.fineness(some, others) >= FINE_ENOUGH
