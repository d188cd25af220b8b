"""An hour of simulated time in which gateways and their coordinator are killed at random moments; every count compared.

Three gateways follow files of JSON lines and CSV, which grow by torn pieces, hold bad lines, and are rotated. Each
closes its sums into periods. A coordinator learns from them, batch by batch, and saves its model. ``kill -9`` ends any
of these processes at any moment. At the end, alarms, sums and the model must be those of all rows, each counted once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import fedspan as fs
from fedspan.gateway.gateway_loop import gateway
from fedspan.gateway.kept_sums import KeptSums, read_sums
from fedspan.gateway.scorer import Scorer

MINUTES, ROWS, COLUMNS, GATEWAYS = 60, 300, 6, 3
#: Minutes between two rotations of a file, and the real seconds that a minute takes.
ROTATED, SECONDS = 15, 1.0
NAMES = [f"feature {j}" for j in range(COLUMNS)]

COORDINATOR = """
import sys, time
from pathlib import Path
import fedspan as fs
folder, model = Path(sys.argv[1]), Path(sys.argv[1]) / "model"
detector = fs.load(model)
while True:
    for batch in sorted({file.name for file in folder.glob("gateway-*/periods/*.npz")}):
        sites = [fs.gateway_site(file.parts[-3], file) for file in sorted(folder.glob(f"gateway-*/periods/{batch}"))]
        before = detector.n_samples_
        detector.learn_sums(fs.LocalFederation(sites), batch=batch)
        if detector.n_samples_ != before:
            detector.save(model)
    if len(sys.argv) > 2:
        break
    time.sleep(0.2)
"""


class Machine:
    """A process that is killed and started again."""

    def __init__(self, *command: str) -> None:
        self.command, self.kills = [sys.executable, *command], 0
        self.process = self._started()

    def kill(self) -> None:
        """End it without a warning, and start it again."""
        self.end()
        self.kills += 1
        self.process = self._started()

    def end(self) -> None:
        """End it without a warning."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def _started(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Source:
    """A file of rows that grows, and what was written to it so far."""

    def __init__(self, folder: Path, form: str, seed: int) -> None:
        self.folder, self.form, self.rng = folder, form, np.random.default_rng(seed)
        self.path = folder / f"rows.{form}"
        self.rows: list[np.ndarray] = []
        self.bad, self.number, self._torn = 0, 0, ""
        self._begin()

    def grow(self) -> None:
        """Write the rows of a minute, some lines that are none, and a part of a line."""
        X = self.rng.normal(size=(ROWS, COLUMNS)) * np.where(self.rng.random((ROWS, 1)) < 0.02, 6.0, 1.0)
        lines = [",".join(map(repr, x)) if self.form == "csv" else json.dumps(x) for x in X.tolist()]
        lines.insert(int(self.rng.integers(ROWS)), "no row" if self.form == "csv" else '{"feature 0": 1')
        self.rows.append(X)
        self.bad += 1
        text = self._torn + "\n".join(lines) + "\n"
        cut = len(text) - int(self.rng.integers(1, 40))
        self._torn = text[cut:]
        self._append(text[:cut])

    def rotate(self) -> None:
        """End the file, and begin another."""
        self._append(self._torn)
        self._torn = ""
        self.number += 1
        self.path.rename(self.folder / f"rows.{self.form}.{self.number}")
        self._begin()

    def end(self) -> None:
        """Write what is left of the last line."""
        self._append(self._torn)
        self._torn = ""

    def _begin(self) -> None:
        self.path.write_text(",".join(NAMES) + "\n" if self.form == "csv" else "", encoding="utf-8")

    def _append(self, text: str) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text)


def main() -> None:
    """Run the hour, and print what was compared."""
    rng, begun = np.random.default_rng(0), time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        detector = fs.FedAnomalyDetector(random_state=0).fit(rng.normal(size=(2000, COLUMNS)))
        detector.partial_fit(rng.normal(size=(500, COLUMNS)), batch="first")  # it keeps its edges from now on
        detector.save(folder / "model")
        detector.export(folder / "detector.npz")
        sources, machines = [], []
        for number in range(GATEWAYS):
            own = folder / f"gateway-{number}"
            own.mkdir()
            sources.append(Source(own, ("jsonl", "csv", "jsonl")[number], number))
            options = [*_places(own, sources[-1].path), "--every", "2"]
            machines.append(Machine("-m", "fedspan", "gateway", str(folder / "detector.npz"), *options, "--follow"))
        while not all((source.folder / "state.npz").exists() for source in sources):  # they have begun
            time.sleep(0.1)
        machines.append(Machine("-c", COORDINATOR, str(folder)))
        for minute in range(1, MINUTES + 1):
            for number, source in enumerate(sources):
                source.grow()
                if (minute + 5 * number) % ROTATED == 0:
                    source.rotate()
            for _ in range(4):
                time.sleep(SECONDS / 4 * rng.random())
                if rng.random() < 0.5:
                    machines[int(rng.integers(len(machines)))].kill()
        for machine in machines:
            machine.end()
        for source in sources:
            source.end()
        kills = [machine.kills for machine in machines]
        _compare(folder, detector, sources)
    print(
        f"{MINUTES} simulated minutes in {time.monotonic() - begun:.0f} s: {sum(kills[:-1])} kills of {GATEWAYS} "
        f"gateways, {kills[-1]} of the coordinator; {sum(len(np.concatenate(s.rows)) for s in sources):,} rows, "
        f"{sum(s.bad for s in sources)} bad lines, {sum(s.number for s in sources)} rotations: all counts are equal"
    )


def _places(own: Path, rows: Path) -> list[str]:
    folders = {"rows": rows, "alarms": own / "alarms.jsonl", "state": own / "state.npz", "periods": own / "periods"}
    return [part for option, path in folders.items() for part in (f"--{option}", str(path))]


def _compare(folder: Path, detector: fs.FedAnomalyDetector, sources: list[Source]) -> None:
    """Let all come to their ends, and compare what was counted with all rows."""
    scorer, leaves = Scorer.load(folder / "detector.npz"), np.zeros(detector.leaf_counts_.shape)
    for source in sources:
        own, X = source.folder, np.concatenate(source.rows)
        files = own / "alarms.jsonl", own / "state.npz"
        gateway(folder / "detector.npz", source.path, None, *files, periods=own / "periods")
        kept = KeptSums.load(own / "state.npz")
        assert (kept.rows, kept.bad) == (len(X), source.bad), (kept.rows, len(X), kept.bad, source.bad)
        written = [json.loads(line) for line in (own / "alarms.jsonl").read_text(encoding="utf-8").splitlines()]
        scores = scorer.score(X)
        above = scores[scores > scorer.threshold]
        np.testing.assert_allclose([alarm["score"] for alarm in written if "score" in alarm], above, rtol=1e-9)
        assert kept.alarms == len(above)
        closed = [read_sums(file) for file in sorted((own / "periods").iterdir())]
        assert sum(int(sums["n"]) for sums in closed) == len(X)
        whole = KeptSums.empty(scorer)
        whole.add(X, scorer)
        for name in ("counts", "leaf_counts", "center_counts", "member_counts"):
            np.testing.assert_array_equal(sum(sums[name] for sums in closed), whole.sums[name])
        leaves += whole.sums["leaf_counts"]
    subprocess.run([sys.executable, "-c", COORDINATOR, str(folder), "once"], check=True)
    learned = fs.load(folder / "model")
    np.testing.assert_array_equal(learned.leaf_counts_, detector.leaf_counts_ + leaves)
    assert learned.n_samples_ == detector.n_samples_ + sum(len(np.concatenate(source.rows)) for source in sources)


if __name__ == "__main__":
    main()
