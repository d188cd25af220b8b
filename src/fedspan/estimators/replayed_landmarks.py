"""Landmarks of a run whose model is lost: computed once more from the sums in its journal, as the coordinator did."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import FedspanError, InputError
from fedspan.estimators.landmarks import DEFAULTS
from fedspan.federation import Federation
from fedspan.federation.journal_reading import read_journal
from fedspan.federation.replies import Total
from fedspan.federation.site import generator
from fedspan.protocols.feddl import feddl


def replayed_landmarks(journal: Path) -> NDArray[np.float64]:
    """Return the landmarks (n_y, m) that FedDL learned in the run of a journal.

    The random start follows from the seed in the journal's head, and each round from the sum that was received: also
    where rows had noise, or sites computed on a device, of which the coordinator knows nothing. Runs with noise on
    gradients go by other steps, and are refused.
    """
    head, entries = read_journal(journal)
    privacy = str(head["settings"].get("privacy", None))
    if privacy != "None" and not privacy.startswith("GaussianData("):
        raise InputError(
            f"the landmarks cannot be computed from {journal}, whose rounds have noise on what was sent "
            f"(privacy={privacy}): name the model that the run made (--model, landmarks=)"
        )
    totals = (Total(entry.replies[""], entry.answered, entry.failed) for entry in entries if "" in entry.replies)
    try:
        settings = {name: _value(text) for name, text in head["settings"].items() if name in _USED}
        settings |= settings.pop("landmark_settings", None) or {}
        replayed = _Replayed(totals, generator(head["seed"], "coordinator"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is to be said was said when it ran
            return feddl(cast(Federation, replayed), **settings).points
    except (FedspanError, ValueError, SyntaxError, TypeError, KeyError, StopIteration):
        raise InputError(
            f"the landmarks cannot be computed from {journal}: name the model that the run made (--model, landmarks=)"
        ) from None


#: ``gamma`` is FedDL's own in `FedLandmarks`, and that of the affinity in `FedSpectralClustering`.
_USED = {*DEFAULTS, "landmark_settings"} - {"gamma", "device"}


def _value(text: str) -> Any:
    """Return a setting from its text in a journal's head, where dicts are written as calls."""
    node = ast.parse(text, mode="eval").body
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
    return ast.literal_eval(node)


class _Replayed:
    """As much of a federation as FedDL needs, whose sums are those of a journal."""

    def __init__(self, totals: Iterator[Total], rng: np.random.Generator) -> None:
        self.rng = rng
        self._totals = totals

    def sum(self, step: Any, /, **payload: object) -> Total:
        return next(self._totals)

    def apply(self, lens: Any, /, **parameters: object) -> _Replayed:
        return self

    def rounds(self, n: int) -> range:
        return range(n)

    def log(self, **metrics: object) -> None:
        """Keep nothing: the run has its record."""
