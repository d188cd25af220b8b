"""Consensus ADMM: what FedPE and FedPG share.

T.-A. Nguyen et al., "Federated PCA on Grassmann Manifold for IoT Anomaly Detection": the sites minimise
``sum_i f_i(U_i)``, ``f_i(U) = ||X_i (I - U U')||^2 / rows``, subject to ``U_i = Z`` for all i. Rows are samples here,
columns in the paper, which does not divide by a number of rows: its rho is `rows` times ours.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedspan.aggregation import Aggregator
from fedspan.aggregation.aggregator import believed
from fedspan.checks import one_of, real_number, whole_number
from fedspan.errors import FedspanError, InputError, QuorumError
from fedspan.federation import Federation, Replies, Site, step
from fedspan.federation.calling import StepLike
from fedspan.federation.site.parameters import MOST_PASSES, Count, Matrix, OneOf, Positive, Real
from fedspan.linalg import polar_factor, q_factor
from fedspan.pca.parts.orthogonal_iteration import random_basis
from fedspan.pca.parts.principal_axes import Rank
from fedspan.pca.parts.second_moment import SecondMoment, second_moment
from fedspan.sums.moments import site_weights, some_rows
from fedspan.wire import Message

#: "paper" is the algorithm as written. "corrected" differs in when duals are updated (`begin_visit`), and in whose
#: messages are averaged and what is returned (`Consensus.reach`). It also differs in the default of rho, and in FedPG's
#: projection. What the paper leaves open is the same in both: duals begin at zero, the sites together at Z, and QR has
#: a positive diagonal.
VARIANTS = ("corrected", "paper")
Variant = Annotated[Literal["corrected", "paper"], OneOf(VARIANTS)]
#: What a site divides by: the mean number of rows, or its own.
Rows = Annotated[float, Real(least=1.0)] | None

_TINY = float(np.finfo(np.float64).tiny)
_LARGEST = 1e150  # of a number whose square is finite
_VISITS = 500  # of each site, by default
#: With too small a rho the sites never agree. If they are this far apart (root mean square per direction) after every
#: this number of visits, the default rho is doubled, up to a multiple.
APART, _PATIENCE, _MOST_TIMES = 0.2, 20, 16.0
_TIMES_MEDIAN = 3.0  # this many times the median eigenvalue replaces the largest one, where sites may be malicious
#: A site that misses this many requests in a row counts as offline until it answers again. Replies that get lost now
#: and then must not do that, because the average jumps whenever a site leaves or returns.
MISSES = 10
#: What a reply to `local_update` holds beside its message.
_NUMBERS = ("rho", "top", "n", "loss", "augmented_lagrangian", "distance")


@step("pca.spectrum", reveals="sums", moments=True)
def local_spectrum(site: Site, n_columns: Count, rank: Rank, products: Count) -> dict[str, Any]:
    """Leaves the site: the largest eigenvalue of ``X'X``, and its number of rows."""
    return {"top": second_moment(site, 1.0, (n_columns, rank), products).top, "n": len(site)}


@step("pca.dual", reveals="sums", moments=True)
def local_dual(site: Site, Z: Matrix, rho: Positive) -> dict[str, Any]:
    """Algorithm 1, line 10; Algorithm 2, line 15: ``Y <- Y + rho (U - Z)``. Leaves the site: nothing."""
    site.state["Y"] += rho * (site.state["U"] - Z)
    return {}


def local_second_moment(site: Site, Z: Matrix, rows: float | None, products: int) -> SecondMoment:
    """Return the site's ``C_i = X_i'X_i / rows``, where ``None`` is its own number of rows."""
    return second_moment(site, rows or some_rows(site), (Z.shape[0], Z.shape[1]), products)


def begin_visit(site: Site, Z: Matrix, variant: Variant) -> tuple[Matrix, Matrix]:
    """Return U and Y (d, k) of a site that has received Z: those of its last visit, or at the first one Z and zero."""
    if "U" not in site.state:
        return q_factor(Z), np.zeros(Z.shape)
    U, Y = np.asfortranarray(site.state["U"]), site.state["Y"]
    if variant == "corrected":
        # The dual update of the last visit, with that visit's rho and the newest Z. It needs no call of its own, and
        # the duals of all sites add up to zero at any time, also where sites missed rounds.
        Y += site.state["rho"] * (U - Z)
    return U, Y


def augmented_lagrangian(f: float, U: Matrix, Z: Matrix, Y: Matrix, rho: float) -> float:
    """Return a site's part of (13), where ``f = f_i(U)``: ``f + <Y, U - Z> + rho / 2 ||U - Z||^2``."""
    D = U - Z
    return f + float(np.vdot(Y, D)) + rho / 2.0 * float(np.vdot(D, D))


def measures(C: SecondMoment, U: Matrix, Z: Matrix, lagrangian: float) -> dict[str, float]:
    """Return what a site reports of a visit's beginning: the loss of the span of Z, the Lagrangian, ``||U - Z||``."""
    loss, D = C.trace - C.captured(q_factor(Z)), U - Z
    return {"loss": loss, "augmented_lagrangian": lagrangian, "distance": math.sqrt(float(np.vdot(D, D)))}


def end_visit(site: Site, C: SecondMoment, U: Matrix, Y: Matrix, rho: float) -> dict[str, Any]:
    """Keep U and Y at the site; return its part ``U + Y / rho`` of equation (8), rho, n and its eigenvalue."""
    site.state["U"], site.state["Y"], site.state["rho"] = U, Y, rho
    return {"message": U + Y / rho, "rho": rho, "top": C.top, "n": len(site)}


@dataclass(frozen=True)
class Consensus:
    """The coordinator's side. The parameters are those of `fedpg`; `default_rho` is the rho of ``None``."""

    rank: int
    n_columns: int
    default_rho: float
    variant: Variant = "corrected"
    rho: float | None = None
    local_steps: int = 10
    participation: float = 1.0
    max_rounds: int | None = None
    tol: float = 1e-4
    aggregator: Aggregator | None = None

    def __post_init__(self) -> None:
        check_settings(self)

    def reach(self, fed: Federation, local_update: StepLike) -> tuple[Matrix, dict[str, float]]:
        """Run Algorithm 1 or 2 with its `local_update`; return the result (d, k) and the weight of each site in it."""
        max_rounds = self.max_rounds or math.ceil(_VISITS / self.participation)
        products = math.ceil(self.participation * max_rounds) * (self.local_steps + 2)
        tops, rows, own_rho = self._spectra(fed, products)
        settings = {"rows": rows, "variant": self.variant, "local_steps": self.local_steps, "products": products}
        as_written = self.variant == "paper"

        Z = random_basis(fed.rng, self.n_columns, self.rank)  # line 1
        weights: dict[str, float] = {}
        last = LastReplies(fed.sites, Z.shape)
        losses: deque[float] = deque(maxlen=1 + math.ceil(1 / self.participation))
        patience = math.ceil(_PATIENCE / self.participation)
        rho, times = 0.0, 1.0
        for number in fed.rounds(max_rounds):  # line 2
            calls = len(fed.record.calls)
            unit = self._unit(tops, last)
            before, rho = rho, times * self._rho(unit) if own_rho is None else own_rho
            if rho != before:  # the first, a larger one, or the site with the largest eigenvalue has come or left
                fed.log(rho=rho, rho_unit=unit)
            some = fed if self.participation == 1 else fed.sample(self.participation)  # line 3
            now = last.request(fed, some, local_update, Z=Z, rho=rho, **settings)  # lines 4 to 6; 4 to 11
            names = now if as_written else last.names
            if not names:
                continue  # no site has answered yet
            Z, weights = self._average(last, names)  # line 7; 12
            if as_written:  # lines 8 to 12; 13 to 16
                with suppress(QuorumError):  # a site that misses this call keeps its old dual
                    fed.ask(local_dual, now, Z=Z, rho=rho)
            loss, consensus, per_site = self._logged(fed, last, calls, rows)
            losses.append(loss)
            if self.rho is None and own_rho is None and (number + 1) % patience == 0:
                apart = consensus > APART * math.sqrt(self.rank)
                times = min(2.0 * times, _MOST_TIMES) if apart else times
            settled = len(losses) == losses.maxlen and abs(losses[-1] - losses[0]) <= self.tol**2 * unit * per_site
            if settled and consensus <= self.tol and last.complete:
                fed.stop(
                    f"converged: consensus {consensus:.1e} is at most tol={self.tol:g}, and the loss has settled",
                    converged=True,
                )
        return Z if as_written else _polar(Z), weights

    def _spectra(self, fed: Federation, products: int) -> tuple[dict[str, float], float | None, float | None]:
        """Request eigenvalues and numbers of rows before the first round.

        Returns the largest eigenvalue of each site's C_i, and the rows that all sites divide by (``None``: each by its
        own). Then the paper's rho of 1 in our numbers, where it applies.
        """
        replies = fed.ask(local_spectrum, n_columns=self.n_columns, rank=self.rank, products=products)
        replies = fed.accept(replies, _checked_spectrum)
        counts = replies.stack("n").astype(np.float64)
        rows = max(1.0, float(np.mean(counts))) if self.aggregator is None else None
        with np.errstate(over="ignore"):
            tops = replies.stack("top") / (np.maximum(1.0, counts) if rows is None else rows)
        as_written = self.rho is None and self.variant == "paper"
        own_rho = 1.0 / max(1.0, rows or float(np.median(counts))) if as_written else None
        return dict(zip(replies, tops.tolist(), strict=True)), rows, own_rho

    def _unit(self, tops: dict[str, float], last: LastReplies) -> float:
        """Return the unit of rho: the largest known eigenvalue of the sites that are not offline."""
        known = tops | {name: reply["top"] for name, reply in last.replies.items()}
        offline = last.offline
        online = [top for name, top in known.items() if name not in offline]
        if not online:
            return 1.0
        unit = max(online) if self.aggregator is None else _TIMES_MEDIAN * float(np.median(online))
        return unit if unit > _TINY else 1.0  # for data that are zero everywhere any rho will do

    def _rho(self, unit: float) -> float:
        rho = unit * (self.default_rho if self.rho is None else self.rho)
        if not _TINY < rho < _LARGEST:
            raise FedspanError(
                f"rho is {rho:g} with the largest eigenvalue of a site, {unit:g}, which is out of range: scale the data"
            )
        return rho

    def _average(self, last: LastReplies, names: tuple[str, ...]) -> tuple[Matrix, dict[str, float]]:
        """Return equation (8), or the aggregate of its messages, and the weight of each site in it.

        Messages made with an earlier rho count in proportion to it: then ``sum_i (rho_i (U_i - Z) + Y_i)`` is 0.
        """
        messages = last.values("message", names)
        if self.aggregator is None:
            rho = last.values("rho", names)
            weights = rho / rho.sum()
            with np.errstate(over="ignore", invalid="ignore"):
                Z = np.tensordot(weights, messages, 1)
        else:
            combined = self.aggregator(messages, believed(self.aggregator, last.values("n", names)))
            Z, weights = combined.value, combined.weights
        if not np.isfinite(Z).all():
            raise FedspanError(
                "the mean of the sites' messages is not finite, because some site sends huge numbers: an aggregator "
                "such as fedspan.aggregation.GeometricMedian() tolerates them"
            )
        return Z, site_weights(names, weights)

    def _logged(self, fed: Federation, last: LastReplies, calls: int, rows: float | None) -> tuple[float, float, float]:
        """Log the progress, and return loss and consensus: of all rows, or medians where sites may be malicious.

        The third is the ratio of the loss per row to the mean of the sites' losses: 1, while no site is offline. All
        come from the last reply of every site that counts, which is about the beginning of that site's last visit.
        """
        keys = ("n", "loss", "augmented_lagrangian", "distance")
        counts, losses, lagrangians, distances = (last.values(key, last.names) for key in keys)
        per_site = 1.0
        if rows is None:
            loss, lagrangian, consensus = (float(np.median(found)) for found in (losses, lagrangians, distances))
        else:
            with np.errstate(over="ignore"):  # only false reports overflow
                per_row = rows / max(1.0, float(counts.sum()))
                loss, lagrangian = per_row * float(losses.sum()), per_row * float(lagrangians.sum())
                consensus = float(np.linalg.norm(distances)) / math.sqrt(len(distances))
                per_site = per_row * len(counts)
        sent = sum(sum(call.bytes_down.values()) + sum(call.bytes_up.values()) for call in fed.record.calls[calls:])
        fed.log(loss=loss, augmented_lagrangian=lagrangian, consensus=consensus, bytes=sent)
        return loss, consensus, per_site


class LastReplies:
    """The last reply of each site to `local_update`: only some sites answer at a time, and all of them are averaged.

    A site that has never answered does not count, nor does one that is offline: `names` are those that count. `shape`
    is that of a reply's "message"; its other keys are single numbers.
    """

    def __init__(self, sites: tuple[str, ...], shape: tuple[int, ...]) -> None:
        self.replies: dict[str, Message] = {}
        self._sites, self._shape = sites, shape
        self._missed: Counter[str] = Counter()  # requests in a row, by site

    @property
    def names(self) -> tuple[str, ...]:
        """The sites that count, in name order."""
        offline = self.offline
        return tuple(name for name in self._sites if name in self.replies and name not in offline)

    @property
    def offline(self) -> frozenset[str]:
        """The sites that have missed too many requests in a row."""
        return frozenset(name for name, missed in self._missed.items() if missed >= MISSES)

    @property
    def complete(self) -> bool:
        """Whether every site has answered, except those that are offline."""
        return self.offline.union(self.replies).issuperset(self._sites)

    def values(self, key: str, names: Iterable[str]) -> NDArray[np.float64]:
        """Return the value of `key` in the last replies of these sites, stacked."""
        return np.array([self.replies[name][key] for name in names], dtype=np.float64)

    def request(self, fed: Federation, some: Federation, step: StepLike, /, **payload: object) -> tuple[str, ...]:
        """Request a step at `some` of the sites of `fed`, keep the replies, and return the sites that answered.

        The last replies of the others remain, so that a missed quorum costs this round alone. The run ends when fewer
        sites than the policy's quorum are left in all.
        """
        try:
            replies = fed.accept(some.ask(step, **payload), self._checked)
        except QuorumError as error:
            self._missed.update(error.failed.keys())
            if len(fed.sites) - len(self.offline) < fed.policy.needed(len(fed.sites)):
                raise
            return ()
        self.keep(replies)
        return tuple(replies)

    def keep(self, replies: Replies) -> None:
        """Keep replies that are in order, and count failures."""
        self.replies |= replies.ok
        for name in replies.ok:
            self._missed[name] = 0
        self._missed.update(replies.failed.keys())

    def _checked(self, reply: Message) -> Message:
        message = reply.get("message")
        if not isinstance(message, np.ndarray) or message.shape != self._shape or message.dtype.kind != "f":
            raise InputError(f"'message' must be an array {self._shape} of real numbers")
        for key in _NUMBERS:
            if type(reply.get(key)) not in (int, float):
                raise InputError(f"{key!r} must be a number")
        return reply


def check_settings(of: Any) -> None:
    """Refuse settings of a `Consensus`, or of an estimator, that cannot work; ``None`` is a default."""
    one_of("variant", of.variant, VARIANTS)
    whole_number("local_steps", of.local_steps, 1, MOST_PASSES)
    real_number("participation", of.participation, above=0, most=1)
    if of.max_rounds is not None:
        whole_number("max_rounds", of.max_rounds, 1)
    for name in ("tol", "rho"):
        if getattr(of, name) is not None:
            real_number(name, getattr(of, name), above=0, why=", or None for the default")


def _checked_spectrum(reply: Message) -> Message:
    top, n = reply.get("top"), reply.get("n")
    if type(top) is not float or type(n) is not int or not (0.0 <= top < np.inf and n >= 0):
        raise InputError("'top' must be an eigenvalue of at least 0, and 'n' a number of rows")
    return reply


def _polar(Z: Matrix) -> Matrix:
    try:
        return polar_factor(Z)
    except InputError:
        raise FedspanError("the sites' messages average to a matrix of too low a rank: they do not agree") from None
