"""Consensus ADMM: what FedPE and FedPG share.

T.-A. Nguyen et al., "Federated PCA on Grassmann Manifold for IoT Anomaly Detection": the sites minimise
``sum_i f_i(U_i)``, ``f_i(U) = ||X_i (I - U U')||^2 / rows``, subject to ``U_i = Z`` for all i. Rows are samples here,
columns in the paper, which does not divide by a number of rows: its rho is `rows` times ours.
"""

from __future__ import annotations

import math
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from fedspan.aggregation import Aggregator
from fedspan.aggregation.base import believed
from fedspan.checks import real_number, whole_number
from fedspan.errors import FedspanError, InputError, QuorumError
from fedspan.federation import Federation, Site, step
from fedspan.federation.federation import StepLike
from fedspan.linalg import polar_factor, q_factor
from fedspan.pca.parts.last_messages import LastMessages
from fedspan.pca.parts.orthogonal_iteration import random_basis
from fedspan.pca.parts.second_moment import Matrix, SecondMoment, second_moment
from fedspan.sums.moments import some_rows
from fedspan.wire import Message

#: "paper" is the algorithm as written. "corrected" differs in when duals are updated (`begin_visit`), in whose messages
#: are averaged and what is returned (`Consensus.reach`), in the default of rho, and in FedPG's projection. What the
#: paper leaves open is the same in both: duals begin at zero, the sites together at Z, and QR has a positive diagonal.
Variant = Literal["corrected", "paper"]

_TINY = float(np.finfo(np.float64).tiny)
_VISITS = 500  # of each site, by default
_UNBELIEVED = 3.0  # times the median of the local eigenvalues stands for the largest one where sites may lie


@step("pca.spectrum", reveals="sums")
def local_spectrum(site: Site, n_columns: int, rank: int, products: int) -> dict[str, Any]:
    """Leaves the site: the largest eigenvalue of ``X'X``, and its number of rows."""
    return {"top": second_moment(site, 1.0, (n_columns, rank), products).top, "n": len(site)}


@step("pca.dual", reveals="sums")
def local_dual(site: Site, Z: Matrix, rho: float) -> dict[str, Any]:
    """Algorithm 1, line 10; Algorithm 2, line 15: ``Y <- Y + rho (U - Z)``. Leaves the site: nothing."""
    site.state["Y"] += rho * (site.state["U"] - Z)
    return {}


def local_second_moment(site: Site, Z: Matrix, rows: float | None, products: int) -> SecondMoment:
    """Return the site's ``C_i = X_i'X_i / rows``, where ``None`` is its own number of rows."""
    return second_moment(site, rows or some_rows(site), (Z.shape[0], Z.shape[1]), products)


def begin_visit(site: Site, Z: Matrix, variant: Variant) -> tuple[Matrix, Matrix]:
    """Return U and Y (d, k) of a site that has received Z: those that it kept, or at its first visit Z and zero."""
    if "U" not in site.state:
        return q_factor(Z), np.zeros(Z.shape)
    U, Y = np.asfortranarray(site.state["U"]), site.state["Y"]
    if variant == "corrected":
        # The dual update of the last visit, with that visit's rho and the newest Z. So it needs no call of its own,
        # and the duals of all sites add up to zero at any time, whoever was away.
        Y += site.state["rho"] * (U - Z)
    return U, Y


def end_visit(site: Site, C: SecondMoment, U: Matrix, Y: Matrix, rho: float) -> dict[str, Any]:
    """Keep U and Y at the site, and return its part of equation (8), ``U + Y / rho``, and what belongs to it."""
    site.state["U"], site.state["Y"], site.state["rho"] = U, Y, rho
    return {"message": U + Y / rho, "rho": rho, "top": C.top, "n": len(site)}


def augmented_lagrangian(f: float, U: Matrix, Z: Matrix, Y: Matrix, rho: float) -> float:
    """Return a site's part of (13), where ``f = f_i(U)``: ``f + <Y, U - Z> + rho / 2 ||U - Z||^2``."""
    D = U - Z
    return f + float(np.vdot(Y, D)) + rho / 2.0 * float(np.vdot(D, D))


def report(C: SecondMoment, U: Matrix, Z: Matrix, lagrangian: float) -> dict[str, float]:
    """Return what a site tells of the beginning of its visit: the loss of the span of Z, this, and ``||U - Z||``."""
    loss, D = C.trace - C.captured(q_factor(Z)), U - Z
    return {"loss": loss, "augmented_lagrangian": lagrangian, "distance": math.sqrt(float(np.vdot(D, D)))}


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
        """Refuse settings that cannot work."""
        check_settings(self.variant, self.rho, self.local_steps, self.participation, self.max_rounds, self.tol)

    def reach(self, fed: Federation, local_update: StepLike) -> tuple[Matrix, dict[str, float]]:
        """Run Algorithm 1 or 2 with its `local_update`; return the result (d, k) and the weight of each site in it."""
        max_rounds = self.max_rounds or math.ceil(_VISITS / self.participation)
        products = math.ceil(self.participation * max_rounds) * (self.local_steps + 2)
        tops, rows, own_rho = self._spectra(fed, products)
        settings = {"rows": rows, "variant": self.variant, "local_steps": self.local_steps, "products": products}
        as_written = self.variant == "paper"

        Z = random_basis(fed.rng, self.n_columns, self.rank)  # line 1
        weights: dict[str, float] = {}
        last = LastMessages(fed.sites, Z.shape, ("n", "rho", "top", "loss", "augmented_lagrangian", "distance"))
        losses: deque[float] = deque(maxlen=1 + math.ceil(1 / self.participation))
        rho = 0.0
        for _ in fed.rounds(max_rounds):  # line 2
            calls = len(fed.record.calls)
            unit = self._unit(tops, last)
            before, rho = rho, self._rho(unit, own_rho)
            if rho != before:  # the first, or the site with the largest eigenvalue has come or gone
                fed.log(rho=rho, rho_unit=unit)
            some = fed if self.participation == 1 else fed.sample(self.participation)  # line 3
            now = last.ask(fed, some, local_update, Z=Z, rho=rho, **settings)  # lines 4 to 6; 4 to 11
            names = now if as_written else last.names
            if not names:
                continue  # nobody has answered yet
            Z, weights = self._average(last, names)  # line 7; 12
            if as_written:  # lines 8 to 12; 13 to 16
                with suppress(QuorumError):  # who misses this keeps his old dual
                    fed.ask(local_dual, now, Z=Z, rho=rho)
            loss, consensus, per_site = self._logged(fed, last, calls, rows)
            losses.append(loss)
            settled = len(losses) == losses.maxlen and abs(losses[-1] - losses[0]) <= self.tol**2 * unit * per_site
            if settled and consensus <= self.tol and last.complete:
                fed.stop(
                    f"converged: consensus {consensus:.1e} is at most tol={self.tol:g}, and the loss has settled",
                    converged=True,
                )
        return Z if as_written else _polar(Z), weights

    def _spectra(self, fed: Federation, products: int) -> tuple[dict[str, float], float | None, float | None]:
        """Ask for eigenvalues and rows before the first round.

        Returns the largest eigenvalue of each site's C_i, the rows that all sites divide by (``None``: each by its
        own), and the paper's rho of 1 in our numbers where that is the one to take.
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

    def _unit(self, tops: dict[str, float], last: LastMessages) -> float:
        """Return the unit of rho: the largest eigenvalue of the sites that are there, as far as it is known."""
        known = {**tops, **dict(zip(last.names, last.numbers(last.names)[:, 2].tolist(), strict=True))}
        there = [top for name, top in known.items() if name not in last.gone]
        if not there:
            return 1.0
        unit = max(there) if self.aggregator is None else _UNBELIEVED * float(np.median(there))
        return unit if unit > _TINY else 1.0  # of data that are zero everywhere any rho will do

    def _rho(self, unit: float, own: float | None) -> float:
        rho = unit * (self.default_rho if self.rho is None else self.rho) if own is None else own
        if not _TINY < rho < np.inf:
            raise FedspanError(
                f"rho is {rho:g} with the largest eigenvalue of a site, {unit:g}: no number to compute with"
            )
        return rho

    def _average(self, last: LastMessages, names: tuple[str, ...]) -> tuple[Matrix, dict[str, float]]:
        """Return equation (8), or what the aggregator makes of its messages, and the weight of each site in it.

        Messages made with an earlier rho count in proportion to it: then ``sum_i (rho_i (U_i - Z) + Y_i)`` is 0.
        """
        messages = last.messages(names)
        if self.aggregator is None:
            share = last.numbers(names)[:, 1] / last.numbers(names)[:, 1].sum()
            with np.errstate(over="ignore", invalid="ignore"):
                Z, weights = np.tensordot(share, messages, 1), dict(zip(names, share.tolist(), strict=True))
        else:
            combined = self.aggregator(messages, believed(self.aggregator, last.numbers(names)[:, 0]))
            Z, weights = combined.value, dict(zip(names, combined.weights.tolist(), strict=True))
        if not np.isfinite(Z).all():
            raise FedspanError(
                "the mean of the sites' messages is not finite, because some site sends huge numbers: with an "
                "aggregator such as fedspan.aggregation.GeometricMedian() these do no harm"
            )
        return Z, weights

    def _logged(
        self, fed: Federation, last: LastMessages, calls: int, rows: float | None
    ) -> tuple[float, float, float]:
        """Log how far it has come, and return loss and consensus: of all rows, or medians where sites may lie.

        The third is by how much the loss per row is more than the mean of the sites' losses: 1, while all are there.

        From the last numbers of every site that counts, each of which is about the beginning of that site's last visit.
        """
        counts, _, _, losses, lagrangians, distances = last.numbers(last.names).T
        per_site = 1.0
        if rows is None:
            loss, lagrangian, consensus = (float(np.median(told)) for told in (losses, lagrangians, distances))
        else:
            with np.errstate(over="ignore"):  # of what is not true, it does not matter
                per_row = rows / max(1.0, float(counts.sum()))
                loss, lagrangian = per_row * float(losses.sum()), per_row * float(lagrangians.sum())
                consensus = float(np.linalg.norm(distances)) / math.sqrt(len(distances))
                per_site = per_row * len(counts)
        sent = sum(sum(call.bytes_down.values()) + sum(call.bytes_up.values()) for call in fed.record.calls[calls:])
        fed.log(loss=loss, augmented_lagrangian=lagrangian, consensus=consensus, bytes=sent)
        return loss, consensus, per_site


def check_settings(
    variant: str, rho: float | None, local_steps: int, participation: float, max_rounds: int | None, tol: float | None
) -> None:
    """Refuse settings that cannot work, each with a sentence; ``None`` is a default."""
    if variant not in get_args(Variant):
        raise InputError(f"variant={variant!r} must be 'corrected' or 'paper'")
    whole_number("local_steps", local_steps, 1)
    if max_rounds is not None:
        whole_number("max_rounds", max_rounds, 1)
    for name, value in (("tol", tol), ("rho", rho)):
        if value is not None:
            real_number(name, value, above=0, why=", or None for the default")
    real_number("participation", participation, above=0, most=1)


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
