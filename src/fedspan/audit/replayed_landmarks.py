"""Landmarks of a run whose model is lost: computed once more from the sums in its journal, as the coordinator did."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fedspan.audit.received_run import mechanism_of
from fedspan.audit.sums_attack import Sums
from fedspan.errors import FedspanError, InputError
from fedspan.federation import Federation
from fedspan.federation.journal import read_journal
from fedspan.federation.replies import Total
from fedspan.federation.site.site import generator
from fedspan.landmarks.feddl import feddl
from fedspan.landmarks.parts.landmark_models import FEDDL_SETTINGS


def replayed_landmarks(journal: Path) -> NDArray[np.float64]:
    """Return the landmarks (n_y, m) that FedDL learned in the run of a journal.

    The random start follows from the seed in the journal's head, and each round from the sum that was received: also
    where rows had noise, or sites computed on a device, of which the coordinator knows nothing. Runs with noise on
    gradients go by other steps, and are refused.
    """
    return _replayed(journal)[0]


def replayed_sums(journal: Path) -> Sums | None:
    """Return what the sums of FedDL in the run of a journal say of all rows together, for an attack on them.

    Sums that most rounds' sites are not in are left out; ``None`` where there are no rounds, or sites sent something
    else than sums of pulls.
    """
    _, calls = _replayed(journal)
    n = max((total["n"] for name, _, total in calls if name == "local_pull"), default=0)
    whole = {name: [(told, total) for step, told, total in calls if step == name and total["n"] == n] for name in _SUMS}
    if not whole["local_pull"] or not whole["local_centred_sums"]:
        return None
    told, moments = whole["local_centred_sums"][-1]
    mean = moments["sum"] / n
    variance = np.maximum(moments["squares"] / n - mean**2, 0.0)
    scale = float(np.sqrt(variance.sum()))
    pulls, waves = whole["local_pull"], whole["local_characteristic"]
    m = len(mean)
    return Sums(
        n=n,
        centre=told["centre"] + mean,
        scale=scale,
        variance=variance / scale**2,
        gamma=float(pulls[0][0]["gamma"]),
        landmarks=np.concatenate([payload["Y"] for payload, _ in pulls]).astype(np.float64),
        pulls=np.concatenate([total["pull"] for _, total in pulls]).astype(np.float64),
        directions=np.concatenate([np.zeros((0, m)), *[payload["W"] for payload, _ in waves]]).astype(np.float64),
        waves=np.concatenate([np.zeros((2, 0)), *[total["characteristic"] for _, total in waves]], axis=1),
    )


_SUMS = ("local_centred_sums", "local_characteristic", "local_pull")


def _replayed(journal: Path) -> tuple[NDArray[np.float64], list[tuple[str, dict[str, Any], Total]]]:
    """Return the landmarks, and each sum with what was asked."""
    head, entries = read_journal(journal)
    privacy = mechanism_of(head["settings"])
    if privacy not in ("", "GaussianData"):
        raise InputError(
            f"the landmarks cannot be computed from {journal}, whose rounds have noise on what was sent "
            f"(privacy={privacy}): name the model that the run made (--model, landmarks=)"
        )
    collected = (entry.collected for entry in entries)
    totals = (Total(found.replies[""], found.answered, found.failed) for found in collected if "" in found.replies)
    try:
        settings = {name: value for name, value in head["settings"].items() if name in _USED}
        if head["what"] == "FedLandmarks" and "gamma" in head["settings"]:
            settings["gamma"] = head["settings"]["gamma"]
        settings |= settings.pop("landmark_settings", None) or {}
        replayed = _Replayed(totals, generator(head["seed"], "coordinator"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is to be said was said when it ran
            return feddl(cast(Federation, replayed), **settings).points, replayed.calls
    except (FedspanError, ValueError, SyntaxError, TypeError, KeyError, StopIteration):
        raise InputError(
            f"the landmarks cannot be computed from {journal}: name the model that the run made (--model, landmarks=)"
        ) from None


#: ``gamma`` is FedDL's own in `FedLandmarks`, and that of the affinity in `FedSpectralClustering`.
_USED = {*FEDDL_SETTINGS, "landmark_settings"} - {"gamma", "device"}


class _Replayed:
    """As much of a federation as FedDL needs, whose sums are those of a journal."""

    def __init__(self, totals: Iterator[Total], rng: np.random.Generator) -> None:
        self.rng = rng
        self.calls: list[tuple[str, dict[str, Any], Total]] = []
        self._totals = totals

    def sum(self, step: Any, /, **payload: Any) -> Total:
        total = next(self._totals)
        self.calls.append((step.__name__, payload, total))
        return total

    def apply(self, transform: Any, /, **parameters: object) -> _Replayed:
        return self

    def rounds(self, n: int) -> range:
        return range(n)

    def log(self, **metrics: object) -> None:
        """Keep nothing: the run has its record."""
