"""``fedspan run --partial``: rounds of a study whose tables grow, each of which takes what is new at each site.

A round is one folder. ``stream.json``, which is replaced as a whole, names the last accepted round with the place of
each site behind it. A kill at any moment leaves the accepted round: its successor is begun again, and takes the same
rows and those that came since.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from fedspan.anomaly.drift_monitor import DriftMonitor
from fedspan.anomaly.parts.explained_detector import ExplainedDetector
from fedspan.cli.console import print_line
from fedspan.cli.study.run_command import embedded
from fedspan.cli.study.run_folder import make_folder
from fedspan.cli.study.stream_rows import Mark, new_tables
from fedspan.cli.study.study_file import Study
from fedspan.durable.whole_file import write_whole
from fedspan.errors import FedspanError, InputError
from fedspan.federation import Federation
from fedspan.persistence import load
from fedspan.pipelines import partial_fit
from fedspan.report.drift_page import write_drift_page
from fedspan.sums.new_rows import BLOCK, rows_since

#: Rounds whose numbers are kept, and whose folders are: the accepted one and the previous one.
_HISTORY, _FOLDERS = 1000, 2


@dataclass
class StreamState:
    """The last accepted round: its number, the mark of each site behind it, and what the last rounds did."""

    round: int = 0
    marks: dict[str, Mark] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> StreamState:
        """Read ``stream.json``, or begin a stream."""
        if not path.exists():
            return cls()
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            marks = {name: Mark(**mark) for name, mark in found["marks"].items()}
            return cls(int(found["round"]), marks, list(found["history"]))
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} is not the state of a stream: {error}") from None

    def write(self, path: Path) -> None:
        """Replace ``stream.json``."""
        write_whole(path, json.dumps(asdict(self), indent=1).encode())


def run_stream(
    study: Study,
    *,
    every: float | None,
    rounds: int | None,
    connect: Callable[[], Federation] | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Run one round, or one `every` number of seconds, up to `rounds` of them. If none is accepted, the last raises."""
    stream = Stream(study, connect)
    begun, done, accepted = time.monotonic(), 0, False
    while True:
        try:
            print_line(stream.round())
            accepted = True
        except FedspanError as error:
            if every is None or isinstance(error, InputError) or (done + 1 == rounds and not accepted):
                raise
            print_line(f"round {stream.state.round + 1} was not accepted: {error}")
        done += 1
        if every is None or (rounds is not None and done >= rounds):
            return
        due = begun + every * (1 + (time.monotonic() - begun) // every)
        wait(max(0.0, due - time.monotonic()))


class Stream:
    """The rounds of one study in its output folder."""

    def __init__(self, study: Study, connect: Callable[[], Federation] | None = None) -> None:
        self.study, self.connect = study, connect
        self._connection: Federation | None = None
        self.output = study.output
        used = self.output.exists() and any(self.output.iterdir())
        if used and not (self.output / "stream.json").exists() and not (self.output / "rounds").exists():
            raise InputError(f"{self.output} is used already, and by no stream: choose another folder with --out")
        for model in (*study.preprocess, study.model):
            if not hasattr(model, "partial_fit"):
                raise InputError(f"{study.path}: {type(model).__name__} does not learn on: leave --partial out")
        self.state = StreamState.read(self.output / "stream.json")
        self._show()

    def round(self) -> str:
        """Take the new rows of all sites, learn from them, and accept the round; return a line about it."""
        try:
            return self._round()
        finally:  # a site reads its table again when no user is connected
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _round(self) -> str:
        study, number = self.study, self.state.round + 1
        fed, marks, absent = self._new_rows()
        if fed is None:
            return f"round {number}: no new rows{_because(absent)}"
        if fed.policy.secure_sum and len(fed.sites) < 2:
            fed.close()
            return f"round {number}: only {fed.sites[0]} has new rows, and a secure sum takes two sites: they wait"
        with fed:
            model, monitor = self._models()
            plan, batch = study.stream, f"round-{number}"
            detector = model[-1]
            if monitor is not None:
                monitor.watch(fed, window=batch)
            partial_fit(model, fed, decay=plan.decay, half_life=plan.half_life, batch=batch)
        counted = [site for site in marks if site in detector.batch_sites_]
        if plan.monitor and monitor is None and isinstance(detector, ExplainedDetector):
            monitor = DriftMonitor(model, alike=plan.alike)
        rows = {site: marks[site].rows - self.state.marks.get(site, Mark()).rows for site in counted}
        drifted = bool(monitor is not None and monitor.windows and monitor.windows[-1].drifted)
        about = {"round": number, "at": datetime.now(UTC).isoformat(timespec="seconds"), "rows": rows, "drift": drifted}
        self._accept(number, model, monitor, {site: marks[site] for site in counted}, about)
        total = f"{sum(rows.values()):,} rows of {len(rows)} sites"
        return f"round {number}: {total}{', DRIFT' if drifted else ''}{_because(absent)}"

    def _new_rows(self) -> tuple[Federation | None, dict[str, Mark], dict[str, str]]:
        if self.connect is not None:
            self._connection = self.connect()
            places = {site: mark.rows // BLOCK for site, mark in self.state.marks.items()}
            new, stops = rows_since(places, self._connection)
            return new, {site: Mark(BLOCK * stop) for site, stop in stops.items()}, {}
        tables, marks, absent = new_tables(self.study, self.state.marks)
        return (embedded(self.study, tables) if tables else None), marks, absent

    def _models(self) -> tuple[Any, DriftMonitor | None]:
        """Return the pipeline of the accepted round, or that of the study, and the monitor."""
        if not self.state.round:
            return make_pipeline(*(clone(model) for model in (*self.study.preprocess, self.study.model))), None
        folder = self._folder(self.state.round)
        watched = (folder / "monitor").is_dir()
        return load(folder), DriftMonitor.load(folder / "monitor") if watched else None

    def _accept(
        self, number: int, model: Any, monitor: DriftMonitor | None, marks: dict[str, Mark], about: dict[str, Any]
    ) -> None:
        """Write the round's folder, then the state that names it."""
        made = self._folder(number).with_suffix(".new")
        shutil.rmtree(made, ignore_errors=True)
        make_folder(made)
        _save(made, [step for _, step in model.steps])
        if monitor is not None:
            monitor.save(made / "monitor")
        shutil.rmtree(self._folder(number), ignore_errors=True)  # of a round that was not accepted
        made.rename(self._folder(number))
        history = [*self.state.history, about][-_HISTORY:]
        self.state = StreamState(number, {**self.state.marks, **marks}, history)
        self.state.write(self.output / "stream.json")
        self._show()

    def _show(self) -> None:
        """Show the accepted round where a run has its models, and remove older folders."""
        if not self.state.round:
            return
        folder = self._folder(self.state.round)
        for file in sorted(folder.glob("*.fedspan")):
            write_whole(self.output / file.name, file.read_bytes())
        write_whole(self.output / "study.toml", self.study.text.encode())
        if (folder / "monitor").is_dir():
            monitor = DriftMonitor.load(folder / "monitor")
            write_drift_page(self.output / "drift.html", monitor, title=self.study.path.stem)
        for old in (self.output / "rounds").iterdir():
            if old.name.isdigit() and int(old.name) not in range(self.state.round - _FOLDERS + 1, self.state.round + 1):
                shutil.rmtree(old)

    def _folder(self, number: int) -> Path:
        return self.output / "rounds" / f"{number:06d}"


def _save(folder: Path, models: Sequence[Any]) -> None:
    for number, model in enumerate(models[:-1]):
        model.save(folder / f"preprocess-{number}-{type(model).__name__}.fedspan", record=False)
    models[-1].save(folder / "model.fedspan", record=False)


def _because(absent: dict[str, str]) -> str:
    return f" ({'; '.join(f'{site}: {why}' for site, why in sorted(absent.items()))})" if absent else ""
