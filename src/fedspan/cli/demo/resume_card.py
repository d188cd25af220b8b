"""Card: a coordinator is killed, started again, and ends with the same bytes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from fedspan.datasets import load_digits
from fedspan.engines.local.embedded import federate
from fedspan.errors import FedspanError
from fedspan.pca.estimator import FedPCA
from fedspan.report import write_report
from fedspan.report.cards_page import Card
from fedspan.report.charts.svg import WIDTH, line, path, pixels, svg, text
from fedspan.report.markup import Html

KILLED_IN = 10
LINES = """
import numpy as np, fedspan as fs
from fedspan.datasets import load_digits

X, hospital = load_digits().data.astype(float), np.arange(1797) % 10
fed = fs.federate(X, sites=hospital, run_dir="run")  # with a journal
pca = fs.FedPCA(5, solver="subspace_iteration").fit(fed)
replayed = sum(call.replayed for call in pca.run_.calls)
print(replayed, "of", len(pca.run_.calls), "calls are replayed")
# Kill it at any moment, run it again: it ends with the same bytes.
"""
#: The run in another process, which ends without a chance to tidy up.
_KILLED = """
import os, sys
from pathlib import Path
from fedspan.cli.demo.resume_card import fit
from fedspan.federation import Observer

class Kill(Observer):
    def round(self, number, of):
        if number == int(sys.argv[3]):
            os.kill(os.getpid(), 9)

fit(Path(sys.argv[1]), int(sys.argv[2]), Kill())
"""
_TOP, _FLOOR, _LEFT = 24, 172, 6


def resume_card(folder: Path, seed: int) -> Card:
    """Run without a break, run and kill, resume, compare, and write the report of the resumed run."""
    with tempfile.TemporaryDirectory() as temporary:
        unbroken = fit(Path(temporary, "unbroken"), seed)
        killed = Path(temporary, "killed")
        command = [sys.executable, "-W", "ignore", "-c", _KILLED, str(killed), str(seed), str(KILLED_IN)]
        child = subprocess.run(command, capture_output=True, text=True, check=False)
        if child.returncode == 0 or not killed.is_dir():
            raise FedspanError(f"the process that was to be killed ended by itself: {child.stderr[-300:]}")
        resumed = fit(killed, seed)
    pairs = zip(resumed.components_.tobytes(), unbroken.components_.tobytes(), strict=True)
    differ = sum(a != b for a, b in pairs)
    replayed = sum(call.replayed for call in resumed.run_.calls)
    settings = {"data": "scikit-learn's digits, ten sites", "killed in round": str(KILLED_IN), "seed": str(seed)}
    title = "Killed and resumed"
    write_report(
        folder / "report.html", title=title, records=resumed.run_, models=[resumed], settings=settings, image=(8, 8)
    )
    size = resumed.components_.nbytes
    return Card(
        "resume",
        "Killed and resumed",
        "The coordinator is killed in the middle of a run, starts again, and repeats no call.",
        _picture(unbroken.run_.metric("residual"), resumed.run_.metric("residual")),
        str(differ),
        f"of {size:,} bytes of the result differ from an unbroken run; {replayed} calls came from the journal",
        "resume/report.html",
        LINES,
    )


def fit(run_dir: Path, seed: int, observer: Any = None) -> FedPCA:
    """Fit in a run's folder: from the start, or from where a run stopped there."""
    X = load_digits().data.astype(float)
    with federate(X, sites=np.arange(len(X)) % 10, seed=seed, run_dir=run_dir) as fed:
        if observer is not None:
            fed.observe(observer)
        return FedPCA(5, solver="subspace_iteration", tol=1e-12, random_state=seed).fit(fed)


def _picture(unbroken: list[float], resumed: list[float]) -> Html:
    """Draw the error, round by round: one curve lies on the other."""
    logs = np.log10(np.maximum(np.array([*unbroken, *resumed], dtype=np.float64), 1e-300))
    low, high = float(logs.min()), float(logs.max())

    def place(i: int, value: float) -> tuple[float, float]:
        x = _LEFT + i / (len(unbroken) - 1) * (WIDTH - 2 * _LEFT)
        return x, _TOP + (high - float(np.log10(max(value, 1e-300)))) / ((high - low) or 1.0) * (_FLOOR - _TOP)

    places = [place(i, value) for i, value in enumerate(unbroken)]
    again = [place(i, value) for i, value in enumerate(resumed)]
    x, y = places[KILLED_IN - 1]
    body = [
        path(f"M{pixels(_LEFT)} 16h{pixels(x - _LEFT)}V{_FLOOR}H{_LEFT}z", "ground"),
        path(f"M0 {_FLOOR}H{WIDTH}", "grid"),
        line(places, "s0 thick"),
        line(again[:KILLED_IN], "s3"),
        line(again[KILLED_IN - 1 :], "s0"),
        path(f"M{pixels(x)} 16V{_FLOOR}", "mark"),
        path(f"M{pixels(x - 6)} {pixels(y - 6)}l12 12m0 -12l-12 12", "cross"),
        text(_LEFT + 6, _FLOOR - 10, "read from the journal", ""),
        text(x + 8, 32, f"killed in round {KILLED_IN}", "alarm"),
        text(x + 8, 48, "then resumed, on the same line", ""),
        text(WIDTH - _LEFT, _FLOOR + 16, f"round {len(unbroken)}", "end"),
        text(_LEFT, _FLOOR + 16, "error of the components, falling to 10⁻¹²", ""),
    ]
    return svg(body, "error by round, of an unbroken and of a resumed run", height=194)
