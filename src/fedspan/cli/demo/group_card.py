"""Card: hidden groups of clients are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedspan.arrays import Array
from fedspan.cli.demo.demo_data import simulated_clinics
from fedspan.cli.demo.map_card import box
from fedspan.linalg import matched_share
from fedspan.mixed_regression.estimator import FedMixedRegressor
from fedspan.report import write_report
from fedspan.report.cards_page import Card
from fedspan.report.charts.svg import line, path, specks, svg, text
from fedspan.report.markup import Html

CLINICS, ROWS, COLOURS = 90, 10, (0, 6, 4)
LINES = """
import fedspan as fs
from fedspan.cli.demo import demo_data

dose, answer, clinic, hidden = demo_data.simulated_clinics(90, 10, 0)
model = fs.FedMixedRegressor("auto", start="spectral", random_state=0)
model.fit(dose, answer, sites=clinic)
print(model.n_clusters_, "groups, slopes", model.coef_.ravel())
right = fs.linalg.matched_share(model.labels_, hidden)
print(f"{right:.0%} of the clinics are in their group")
"""
_GAP, _SIDE, _HEAD = 12, 174, 20


def group_card(folder: Path, seed: int) -> Card:
    """Fit the mixture, compare its groups with the hidden ones, and write its report."""
    dose, answer, clinic, hidden = simulated_clinics(CLINICS, ROWS, seed)
    model = FedMixedRegressor("auto", start="spectral", random_state=seed).fit(dose, answer, sites=clinic)
    settings = {"data": "simulated: ninety clinics of ten patients, three hidden groups", "seed": str(seed)}
    title = "Ninety clinics, hidden groups"
    write_report(folder / "report.html", title=title, records=model.run_, models=[model], settings=settings)
    right = round(CLINICS * matched_share(model.labels_, hidden))
    group = model.labels_[np.searchsorted(model.sites_, clinic)]
    return Card(
        "groups",
        "Groups of clients",
        "Ninety clinics answer to a drug in one of three ways. The groups are found without a label.",
        _picture(dose[:, 0], answer, group, model.coef_[:, 0], np.asarray(model.intercept_).reshape(-1)),
        f"{right} of {CLINICS}",
        "clinics are put into their true group, which the coordinator never saw",
        "groups/report.html",
        LINES,
        "The patients are simulated.",
    )


def _picture(dose: Array, answer: Array, group: Array, slopes: Array, offsets: Array) -> Html:
    """Draw all rows in grey, and in the colours of the groups that were found, with their lines."""
    low, high = float(answer.min()), float(answer.max())

    def place(x: Any, y: Any, left: float) -> tuple[Any, Any]:
        inside = _SIDE - 16
        return left + 8 + (x + 1) / 2 * inside, _HEAD + 8 + (high - y) / (high - low) * inside

    body = []
    for left, name in ((0.0, "all patients"), (float(_SIDE + _GAP), "groups, as found")):
        body += [text(left + _SIDE / 2, 13, name, "mid strong"), path(box(left, _HEAD, _SIDE, _SIDE), "ground")]
    body.append(path(specks(zip(*place(dose, answer, 0.0), strict=True)), "dots grey"))
    right = float(_SIDE + _GAP)
    for k in np.argsort(slopes):
        some, colour = group == k, COLOURS[int(k) % len(COLOURS)]
        body.append(path(specks(zip(*place(dose[some], answer[some], right), strict=True)), f"dots s{colour}"))
    for k, slope in enumerate(slopes):
        offset = float(offsets[k % len(offsets)]) if len(offsets) else 0.0
        ends = [place(x, np.clip(slope * x + offset, low, high), right) for x in (-1.0, 1.0)]
        body.append(line(ends, f"s{COLOURS[k % len(COLOURS)]}"))
    return svg(body, "answers to a dose: all patients, and the three groups that were found", height=_HEAD + _SIDE)
