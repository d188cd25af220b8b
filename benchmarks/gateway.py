"""Detectors on a gateway: rows a second, time and memory for one row; and a federated update of 100 sites.

40 columns. An exported detector scores rows in batches of 100 and one at a time, and ``fedspan gateway`` reads JSON
lines and CSV from a file. An update takes 1,000 new rows of each of 100 sites. Processor time; the best of some turns.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import fedspan as fs
from fedspan.gateway.scorer import Scorer

COLUMNS, BATCH, TURNS = 40, 100, 7
LINES = 20_000
SITES, NEW_ROWS = 100, 1000


def best(work: Callable[[], object]) -> float:
    """Return the least processor time of some turns, in seconds."""
    found = []
    for _ in range(TURNS):
        begun = time.process_time()
        work()
        found.append(time.process_time() - begun)
    return min(found)


def scored(detector: fs.FedPCADetector | fs.FedAnomalyDetector, X: np.ndarray, file: Path) -> None:
    """Print how fast an exported detector is."""
    detector.export(file)
    scorer = Scorer.load(file)
    batches = [X[i : i + BATCH] for i in range(0, 5000, BATCH)]
    many = best(lambda: [scorer.score(batch) for batch in batches]) / 5000
    one = best(lambda: [scorer.score_one(x) for x in X[:500]]) / 500
    kB = file.stat().st_size / 1000
    print(
        f"{file.stem}: {1 / many:,.0f} rows a second in batches of {BATCH}, {1e6 * one:.1f} us for one row, {kB:.0f} kB"
    )


def whole(file: Path, rows: Path) -> None:
    """Print how fast ``fedspan gateway`` is with a file, and its largest memory, from a process of its own."""
    code = (
        "import sys, time; from pathlib import Path\n"
        "from fedspan.gateway.gateway_loop import gateway\n"
        "begun = time.process_time()\n"
        "gateway(Path(sys.argv[1]), rows=Path(sys.argv[2]), alarms=Path(sys.argv[2] + '.alarms'))\n"
        "status = Path('/proc/self/status')\n"
        "lines = status.read_text().splitlines() if status.exists() else ['VmHWM: 0']\n"
        "print(time.process_time() - begun, *(line.split()[1] for line in lines if 'VmHWM' in line))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(file), str(rows)], check=True, capture_output=True, text=True
    )
    seconds, memory = done.stdout.split()
    rate, MB = LINES / float(seconds), float(memory) / 1e3
    print(f"fedspan gateway, {file.stem}, {rows.suffix[1:]}: {rate:,.0f} lines a second, {MB:.0f} MB")


def updated(rng: np.random.Generator) -> None:
    """Print the time and the bytes of one update."""
    sites = np.arange(SITES * NEW_ROWS) % SITES
    feds = [fs.federate(rng.normal(size=(len(sites), COLUMNS)), sites=sites) for _ in range(TURNS + 1)]
    exact = fs.FedPCA(5).fit(feds[0]).run_.bytes_up
    for model in (fs.FedPCA(5), fs.FedPCADetector(), fs.FedAnomalyDetector(random_state=0)):
        model.partial_fit(feds[0])
        new = iter(feds[1:])
        seconds = best(lambda model=model, new=new: model.partial_fit(next(new)))
        ratio = model.run_.bytes_up / exact
        name = type(model).__name__
        rows = f"{SITES} x {NEW_ROWS:,} rows"
        print(f"{name}.partial_fit, {rows}: {seconds:.3f} s, {ratio:.2f} times the bytes of an exact round")


def main() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_000, COLUMNS)) @ rng.normal(size=(COLUMNS, COLUMNS))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        detectors = (fs.FedAnomalyDetector(random_state=0), fs.FedPCADetector())
        for detector in detectors:
            scored(detector.fit(X[:4000]), X, folder / f"{type(detector).__name__}.npz")
        names = [f"feature {j}" for j in range(COLUMNS)]
        some = X[np.arange(LINES) % len(X)]
        lines = "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in some.round(4).tolist())
        (folder / "rows.jsonl").write_text(lines, encoding="utf-8")
        np.savetxt(folder / "rows.csv", some, fmt="%.4f", delimiter=",", header=",".join(names), comments="")
        for detector in detectors:
            for ending in ("jsonl", "csv"):
                whole(folder / f"{type(detector).__name__}.npz", folder / f"rows.{ending}")
    updated(rng)


if __name__ == "__main__":
    main()
