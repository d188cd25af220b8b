"""What estimators with landmarks share: settings, FedDL with or without noise, and rows known by posted distances."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sized
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.base import FedEstimator
from fedspan.checks import frames_inside
from fedspan.errors import InputError
from fedspan.federation import Federation, PrivacySpent
from fedspan.federation.site_labels import site_rows
from fedspan.landmarks.feddl import FedDLSettings, Landmarks, feddl
from fedspan.landmarks.landmark_distances import landmark_distances, neighbor_hits
from fedspan.landmarks.parts.run_privacy import refuse_strict
from fedspan.landmarks.private_feddl import POSTED, check_frequencies, private_feddl
from fedspan.linalg.kernels.landmark_form import FINE_ENOUGH, LandmarkForm, LowRankDistances, landmark_form
from fedspan.linalg.kernels.neighbors import nearest
from fedspan.privacy.mechanisms import GaussianData, GaussianGradient, check_mechanism
from fedspan.privacy.noisy_rows import with_noisy_rows

Array = NDArray[Any]

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


class SpendsPrivacy:
    """Base of estimators whose run may add noise."""

    run_: Any
    privacy: Any

    @property
    def privacy_(self) -> PrivacySpent | None:
        """What the fit has spent of the sites' privacy, what that covers and what not."""
        spent: PrivacySpent | None = self.run_.privacy
        return spent


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


class PostedRows(SpendsPrivacy, FedEstimator):
    """Base of estimators with one result per row: in the order of a table, or in site order, then row order.

    Attributes
    ----------
    row_sites_ : array (n,)
        Number of the site of each row, in ``sites_``.
    """

    row_sites_: NDArray[np.int32]

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


@dataclass(frozen=True)
class Posted:
    """Landmarks, the distances B (n, n_y) of all rows to them, in site order, then row order, and their low-rank form.

    Distances are in units of the landmarks' scale. `rows` is what `form` makes of them, for a search for neighbours.
    """

    landmarks: Landmarks
    B: Array
    form: LandmarkForm
    rows: LowRankDistances


def posted_rows(
    model: PostedRows, federation: Federation, settings: dict[str, Any]
) -> tuple[Landmarks, dict[str, Array]]:
    """Return landmarks and the distances (n_p, n_y) of each site's rows to them, in units of the landmarks' scale."""
    privacy = model.privacy
    if isinstance(privacy, GaussianGradient):
        refuse_strict(federation, "maps and clusters need distances that GaussianGradient has no noise for")
    federation.log(phase="landmarks")
    found = learned_landmarks(federation, privacy, settings, model._names())
    federation.log(phase="distances")
    spent = federation.record.privacy
    if spent is not None and not isinstance(privacy, GaussianData):
        federation.spent(spent.leaving_out(POSTED), again=True)
    posted = landmark_distances(seen_by(privacy, federation), landmarks=found)
    model._keep_row_sites(posted)
    return found, posted


def posted_form(model: PostedRows, federation: Federation, settings: dict[str, Any], method: str) -> Posted:
    """Return the rows as `method` makes them of posted distances, for a search for neighbours.

    Sites post distances in single precision, and again in double where single cannot separate the nearest ones. The
    record has `site_recall`, the share of true neighbours within the sites that are found.
    """
    found, posted = posted_rows(model, federation, settings)
    form = landmark_form(found.reduced, method, None if settings["rounds"] else False)
    rows = form.of(B := np.concatenate(list(posted.values())))
    seen, precision = seen_by(model.privacy, federation), "single"
    if not _fine(rows, settings["device"]):
        precision = "double"
        federation.log(posted=precision)
        posted = landmark_distances(seen, landmarks=found, precision=precision)
        model._keep_row_sites(posted)
        rows = form.of(B := np.concatenate(list(posted.values())), np.float64)
    share, of = neighbor_hits(seen, landmarks=found, method=method, residuals=form.residuals, precision=precision)
    if of:
        federation.log(site_recall=share, site_recall_of=of)
    if precision == "double" and share < _CONFUSED and not _fine(rows, settings["device"]):
        warnings.warn(
            f"rows are so near to their neighbours, beside the spread of all ({found.scale:.3g}), that distances to "
            f"landmarks hardly separate them: {100 * share:.0f} % of ten neighbours within the sites were found; "
            "leave out outliers, scale the columns, or make maps of the groups one by one",
            stacklevel=frames_inside(),
        )
    return Posted(found, B, form, rows)


def _fine(rows: LowRankDistances, device: str | None) -> bool:
    """Return whether rounding is small beside the distances of some rows to their nearest ones."""
    if len(rows) < 2:
        return True
    some = np.unique(np.linspace(0, len(rows) - 1, min(_SAMPLE, len(rows))).astype(np.intp))
    k = min(_NEAREST, len(rows) - 1)
    here = None if rows.factor.dtype == np.float64 else device
    found = nearest(rows, k + 1, rows.rows(some), here)[0]
    others = np.array([[i for i in near if i != own][:k] for own, near in zip(some, found, strict=True)])
    return rows.fineness(some, others) >= FINE_ENOUGH


def row_order(X: Any, sites: Any, n: int) -> Array | None:
    """Return the table's row of each row in site order; ``None`` if X is a federation or has one site."""
    if isinstance(X, Federation) or sites is None:
        return None
    return np.concatenate(list(site_rows(sites, n).values()))


def in_order(order: Array | None, values: Array) -> Array:
    """Return values per row, which are in site order, in the order of the table's rows."""
    if order is None:
        return values
    ordered = np.empty_like(values)
    ordered[order] = values
    return ordered
