"""FedDL once more, from the sums in a run's journal: the landmarks of a lost model, and totals to attack.

The random start follows from the seed in the journal's head, and each round from the sum that was received. It needs
neither the sites nor their devices. Runs with noise on gradients use other steps, and are refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import chain, islice
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
from fedspan.landmarks.parts.landmark_models import FEDDL_SETTINGS

#: ``gamma`` is FedDL's own in `FedLandmarks`, and that of the affinity in `FedSpectralClustering`.
_USED = {*FEDDL_SETTINGS, "landmark_settings"} - {"gamma", "device"}
Calls = list[tuple[str, dict[str, Any], Total]]


def replay_feddl(journal: Path) -> tuple[NDArray[np.float64], Sums | None]:
    """Return the landmarks (n_y, m) that FedDL learned in the run of a journal, and the sums that it received.

    Sums of rounds that missed a site are left out; ``None`` where no round has sums of pulls.
    """
    head, entries = read_journal(journal)
    settings = head["settings"]
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
    fed = _ReplayedFederation(totals, generator(head["seed"], "coordinator"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the run itself warned
            found = feddl(cast(Federation, fed), **used)
    except (FedspanError, ValueError, TypeError, KeyError, StopIteration):
        raise InputError(
            f"the landmarks can't be computed from {journal}: name the model that the run made (--model, model=)"
        ) from None
    return found.points, _sums(fed.calls)


def _sums(calls: Calls) -> Sums | None:
    """Return what the sums reveal of all rows together."""
    n = max((total["n"] for step, _, total in calls if step == "landmarks.pull"), default=0)

    def whole(wanted: str) -> list[tuple[dict[str, Any], Total]]:
        return [(payload, total) for step, payload, total in calls if step == wanted and total["n"] == n]

    pulls, waves = whole("landmarks.pull"), whole("landmarks.characteristic")
    merged, secure = whole("sums.moments"), whole("sums.centred_sums")
    if not pulls or not (merged or secure):
        return None
    if merged:
        sums = merged[-1][1]
        mean, variance = sums["centre"] + sums["shift"], np.maximum(sums["scatter"] / n, 0.0)
    else:
        payload, sums = secure[-1]
        shift = sums["sum"] / n
        mean, variance = payload["centre"] + shift, np.maximum(sums["squares"] / n - shift**2, 0.0)
    scale = float(np.sqrt(variance.sum()))
    return Sums(
        n=n,
        centre=mean,
        scale=scale,
        variance=variance / scale**2,
        gamma=float(pulls[0][0]["gamma"]),
        landmarks=np.concatenate([payload["Y"] for payload, _ in pulls]).astype(np.float64),
        pulls=np.concatenate([total["pull"] for _, total in pulls]).astype(np.float64),
        directions=np.concatenate([np.zeros((0, len(mean))), *[payload["W"] for payload, _ in waves]]),
        waves=np.concatenate([np.zeros((2, 0)), *[total["characteristic"] for _, total in waves]], axis=1),
    )


class _ReplayedFederation:
    """The part of a federation that FedDL uses; its sums are those of a journal."""

    sites: tuple[str, ...] = ()

    def __init__(self, totals: Iterator[Total], rng: np.random.Generator) -> None:
        self.rng = rng
        self.calls: Calls = []
        first = list(islice(totals, 1))  # moments: merged, or by secure sums
        self._totals = chain(first, totals)
        self.policy = Policy(secure_sum=bool(first) and "scatter" not in first[0])

    def sum(self, step: Any, /, **payload: Any) -> Total:
        total = next(self._totals)
        self.calls.append((find_step(step).id, payload, total))
        return total

    def merge(self, step: Any, check: Any = None, /, **payload: Any) -> Total:
        return self.sum(step, **payload)

    def subset(self, names: Any) -> _ReplayedFederation:
        return self

    def apply(self, transform: Any, /, **parameters: object) -> _ReplayedFederation:
        return self

    def rounds(self, n: int) -> range:
        return range(n)

    def log(self, **metrics: object) -> None:
        """Ignore metrics: the run has its record."""
