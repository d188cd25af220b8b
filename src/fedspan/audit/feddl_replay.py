"""FedDL once more, from the sums in a run's journal: the landmarks of a lost model, and totals to attack.

The random start follows from the seed in the journal's head, and each round from the sum that was received. It needs
neither the sites nor their devices. Runs with noise on gradients use other steps, and are refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import chain, takewhile
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fedspan.audit.sums_attack import Sums
from fedspan.errors import FedspanError, InputError
from fedspan.federation import Federation, Policy
from fedspan.federation.journal import read_journal
from fedspan.federation.replies import Total
from fedspan.federation.site.site import generator
from fedspan.federation.site.steps import find_step
from fedspan.landmarks.feddl import feddl
from fedspan.landmarks.parts.feddl_settings import fixed_settings
from fedspan.landmarks.parts.landmark_models import FEDDL_SETTINGS
from fedspan.landmarks.parts.principal_view import PrincipalView
from fedspan.sums.row_moments import RowMoments

#: ``gamma`` is FedDL's own in `FedLandmarks`, and that of the affinity in `FedSpectralClustering`.
_USED = {*FEDDL_SETTINGS, "landmark_settings"} - {"gamma", "device"}
Calls = list[tuple[str, dict[str, Any], Total]]


def replay_feddl(journal: Path) -> tuple[NDArray[np.float64], Sums | None]:
    """Return the landmarks (n_y, m) that FedDL learned in the run of a journal, and the sums that it received.

    Sums of rounds that missed a site are left out; ``None`` where no round has sums of pulls.
    """
    head, entries = read_journal(journal)
    settings = head["settings"]
    if settings.keys().isdisjoint(("n_landmarks", "reduce", "landmark_settings")):
        raise InputError(f"{journal} is of {head['what']}, which learns no landmarks")
    privacy = settings.get("privacy")
    mechanism = privacy["class"].rpartition(".")[2] if isinstance(privacy, dict) else None
    if mechanism not in (None, "GaussianData"):
        raise InputError(
            f"the landmarks can't be computed from {journal}, whose rounds have noise on what was sent "
            f"(privacy={mechanism}): name the model that the run made (--model, model=)"
        )
    collected = (entry.collected for entry in entries)
    totals = (Total(found.replies[""], found.answered, found.failed) for found in collected if "" in found.replies)
    used = {name: value for name, value in settings.items() if name in _USED}
    if head["what"] == "FedLandmarks":
        used["gamma"] = settings["gamma"]
    used |= used.pop("landmark_settings", None) or {}
    if mechanism is None:
        used["reduce"] = settings.get("reduce")
        used["device"] = None if settings.get("device") is None else "cpu"  # the calls are those of a card
    else:
        used = fixed_settings(used)
    first = next(totals, None)
    secure = first is not None and "scatter" not in first  # moments come in one message where no sum is secure
    replayed = chain([] if first is None else [first], totals)
    fed = _ReplayedFederation(replayed, generator(head["seed"], "coordinator"), secure=secure)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the run itself warned
            found = feddl(cast(Federation, fed), **used)
    except (FedspanError, ValueError, TypeError, KeyError, StopIteration):
        raise InputError(
            f"the landmarks can't be computed from {journal}: name the model that the run made (--model, model=)"
        ) from None
    return found.points, _sums(fed.calls, found.view)


def _sums(calls: Calls, view: PrincipalView | None) -> Sums | None:
    """Return what the sums reveal of all rows together, along the axes of a view if there is one."""
    n = max((total["n"] for step, _, total in calls if step == "landmarks.pull"), default=0)

    def whole(wanted: str) -> list[tuple[dict[str, Any], Total]]:
        return [(payload, total) for step, payload, total in calls if step == wanted and total["n"] == n]

    pulls, waves = whole("landmarks.pull"), whole("landmarks.characteristic")
    merged, centred = whole("sums.moments"), whole("sums.centred_sums")  # the latter of secure sums
    centred += [call for call in whole("landmarks.card_moments") if call[0]["centre"] is not None]
    if not pulls or not (merged or centred):
        return None
    if merged:
        moments = RowMoments(*(merged[-1][1][name] for name in ("n", "weight", "centre", "shift", "scatter")))
        mean, variance, centre = np.zeros(len(moments.mean)), moments.variance, moments.mean
    else:
        payload, sums = centred[-1]
        mean = sums["sum"] / n
        variance, centre = np.maximum(sums["squares"] / n - mean**2, 0.0), payload["centre"] + mean
    scale = float(np.sqrt(variance.sum()))
    if view is not None:
        mean = np.zeros(len(view.axes))
        centre, variance, scale = mean, view.variance, view.spread
    return Sums(
        n=n,
        centre=centre,
        scale=scale,
        variance=variance / scale**2,
        gamma=float(pulls[0][0]["gamma"]),
        landmarks=np.concatenate([payload["Y"] for payload, _ in pulls]).astype(np.float64),
        pulls=np.concatenate([total["pull"] for _, total in pulls]).astype(np.float64),
        directions=np.concatenate([np.zeros((0, len(mean))), *[payload["W"] for payload, _ in waves]]),
        waves=np.concatenate([np.zeros((2, 0)), *[total["characteristic"] for _, total in waves]], axis=1),
        view=view,
    )


class _ReplayedFederation:
    """The part of a federation that FedDL uses; its sums are those of a journal."""

    def __init__(self, totals: Iterator[Total], rng: np.random.Generator, *, secure: bool) -> None:
        self.rng = rng
        self.calls: Calls = []
        self.policy = Policy(secure_sum=secure)
        self._totals = totals
        self._stopped = False

    def sum(self, step: Any, /, **payload: Any) -> Total:
        total = next(self._totals)
        self.calls.append((find_step(step).id, payload, total))
        return total

    def merge(self, step: Any, check: object = None, /, **payload: Any) -> Total:
        return self.sum(step, **payload)

    def apply(self, transform: Any, /, **parameters: object) -> _ReplayedFederation:
        return self

    def rounds(self, n: int) -> Iterator[int]:
        self._stopped = False
        return takewhile(lambda _: not self._stopped, range(n))

    def stop(self, reason: str, *, converged: bool = False) -> None:
        self._stopped = True

    def log(self, **metrics: object) -> None:
        """Ignore metrics: the run has its record."""
