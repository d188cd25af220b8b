"""A monitor of drift: windows of a stream, one after the other, by a sequential test with a stated false-alarm rate.

Each window is compared with the reference, and so are the last 2, 4, 8 and 16 windows together. A sudden shift shows in
one window; a slow one adds up. All tests of a window, of all spans, columns and sites, share `alpha` (Bonferroni). So
without drift at most a share `alpha` of the windows of independent rows raises an alarm, whatever the distributions
and however long the stream. Where rows that follow one another are alike, `alike` of them count as one.

A site is compared with its own first windows, since sites may differ from one another. If a site is off, or has more
rows than usual, the distribution of all rows changes by at most the change of the sites' shares. So a difference of all
rows counts beyond that.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import make_pipeline

from fedspan.anomaly.drift import (
    Baseline,
    Comparison,
    Drift,
    compared,
    counted,
    names_of,
    parts_of,
    shown,
    training_rows,
)
from fedspan.arrays import Vector
from fedspan.checks import damage_refused, json_value, printable, real_number, whole_number
from fedspan.errors import InputError
from fedspan.gateway.scorer import read_arrays
from fedspan.persistence import load as load_model

Counts = list[Vector]

#: Windows that are compared together, for all rows and for single sites.
SPANS, SITE_SPANS = (1, 2, 4, 8, 16), (1, 2, 4)
_SHOWN = 5


@dataclass(frozen=True)
class Window:
    """What the monitor found in one window.

    Attributes
    ----------
    name : str
    rows : int
    drifted : bool
    p_value : float
        Of all tests of all rows together.
    span : int
        The number of windows that show it most clearly.
    since : str
        The first window of the change, by the last windows; empty without drift.
    columns, sites : tuple of str
        Those that moved.
    moved : tuple of Comparison
        The clearest tests.
    score_index : float
        The population stability index of the scores.
    """

    name: str
    rows: int
    drifted: bool
    p_value: float
    span: int
    since: str
    columns: tuple[str, ...]
    sites: tuple[str, ...]
    moved: tuple[Comparison, ...]
    score_index: float


@dataclass
class _Stream:
    """The counts to compare with, and those of the last windows, of all rows or of one site."""

    before: Counts
    alike: float
    last: list[tuple[str, Counts]] = field(default_factory=list)
    margin: float = 0.0
    mixes: list[float] = field(default_factory=list)

    def add(self, name: str, counts: Counts, most: int, mix: float = 0.0) -> None:
        self.last = [*self.last, (name, counts)][-most:]
        self.mixes = [*self.mixes, mix][-most:]

    def found(self, spans: Sequence[int], alpha: float, names: list[tuple[str, str]]) -> tuple[Drift, int]:
        """Return the clearest of the comparisons of the last windows, and its span."""
        able = [span for span in spans if span <= len(self.last)]
        every = [self._of(span, alpha, names, len(spans)) for span in able]
        best = min(range(len(able)), key=lambda i: every[i].p_value)
        return every[best], able[best]

    def since(self, names: list[tuple[str, str]], wanted: Comparison) -> str:
        """Return the first window after the change of one test: the split of the windows that shows it most."""
        at = names.index((wanted.of, wanted.name))
        windows = [counts[at] for _, counts in self.last]
        best, found = -1.0, 0
        for split in range(len(windows)):
            old = self.before[at] + sum(windows[:split], np.zeros_like(self.before[at]))
            new = sum(windows[split:], np.zeros_like(old))
            n, m = float(old.sum()), float(new.sum())
            if n and m:
                apart = np.abs(np.cumsum(old) / n - np.cumsum(new) / m).max()
                if apart**2 * n * m / (n + m) > best:
                    best, found = apart**2 * n * m / (n + m), split
        return self.last[found][0]

    def _of(self, span: int, alpha: float, names: list[tuple[str, str]], times: int) -> Drift:
        now = _summed([counts for _, counts in self.last[-span:]])
        mix = max(self.mixes[-span:])
        return Drift(int(now[0].sum()), alpha, compared(self.before, now, names, times, self.margin, self.alike, mix))


class DriftMonitor:
    """Watch the windows of a stream for drift from what a detector was fitted on.

    Parameters
    ----------
    model : a fitted detector, or a pipeline that ends with one
        The reference: the monitor keeps it as it is now, while the model itself may learn on. Of a pipeline it also
        keeps the steps before the detector, and takes the rows that the pipeline takes.
    alpha : float, default=0.001
        The rate of false alarms, all tests of a window together: 0.001 is one in a thousand windows. Half of it is for
        all rows together, half for single sites.
    settle : int, default=4
        The first windows of a site, with which its later ones are compared.
    alike : float, default=1.0
        As of `drift`: the number of rows that count as one, where rows that follow one another are alike.

    Attributes
    ----------
    windows : list of Window
        What was found, the oldest first.

    Examples
    --------
    >>> import fedspan as fs
    >>> rng = np.random.default_rng(0)
    >>> model = fs.FedPCADetector().fit(rng.normal(size=(2000, 3)))
    >>> monitor = fs.DriftMonitor(model)
    >>> for hour in range(6):
    ...     rows = rng.normal(size=(1000, 3)) + [0.0, 1.0 if hour > 3 else 0.0, 0.0]
    ...     model = model.partial_fit(rows, batch=f"hour {hour}", monitor=monitor)
    >>> [window.name for window in monitor.windows if window.drifted], monitor.windows[-1].since
    (['hour 4', 'hour 5'], 'hour 4')
    >>> monitor.windows[-1].columns
    ('feature 1',)
    """

    def __init__(self, model: Any, *, alpha: float = 0.001, settle: int = 4, alike: float = 1.0) -> None:
        before, detector = parts_of(model, "a monitor")
        self.alpha = real_number("alpha", alpha, above=0, below=1)
        self.settle = whole_number("settle", settle, 1)
        self.alike = real_number("alike", alike, least=1)
        self.before, self.model = [copy.copy(step) for step in before], copy.copy(detector)
        self.windows: list[Window] = []
        self._begin(training_rows(self.model))

    def _begin(self, before: Baseline) -> None:
        self._view, self._edges = before.view, before.score_edges
        self._all = _Stream(before.counts, self.alike, margin=before.margin)
        self._sites: dict[str, _Stream] = {}
        self._seen: dict[str, int] = {}

    def watch(self, X: Any, *, sites: Any = None, window: str | None = None) -> Window | None:
        """Compare the rows of a window, a table (with ``sites``) or a federation, with the reference.

        A `window` whose name was watched before is skipped, and ``None`` returned.
        """
        name = f"window {len(self.windows)}" if window is None else window
        if any(known.name == name for known in self.windows):
            return None
        now = counted(self.model, shown(self.before, X), sites, self._edges, self._view)
        self._all.add(name, now.counts, SPANS[-1], self._mix(now))
        names = names_of(self.model, self._view)
        able = [site for site in now.sites if self._seen.get(site, 0) >= self.settle]
        found, span = self._all.found(SPANS, self.alpha / 2.0 if now.sites else self.alpha, names)
        moved = []
        for site, counts in now.sites.items():
            if site not in able:
                self._settle(site, counts)
                continue
            self._sites[site].add(name, counts, SITE_SPANS[-1])
            if self._sites[site].found(SITE_SPANS, self.alpha / 2.0 / len(able), names)[0].drifted:
                moved.append(site)
        made = self._window(name, int(now.counts[0].sum()), found, span, tuple(sorted(moved)), names)
        self.windows.append(made)
        return made

    def accept(self) -> None:
        """Take the last windows, since the change, as the reference from now on: the drift is known, and wanted."""
        if not self.windows:
            raise InputError("there is no window yet to take as the reference")
        since = self.windows[-1].since or self.windows[-1].name
        names = [name for name, _ in self._all.last]
        recent = [counts for _, counts in self._all.last[names.index(since) if since in names else -1 :]]
        self._begin(Baseline(self._edges, _summed(recent), {}, self._view))

    def _mix(self, now: Baseline) -> float:
        """Return how far the sites' shares of the rows are from those in their first windows."""
        if not self._sites:
            return 0.0
        usual = {site: float(known.before[0].sum()) / self._seen[site] for site, known in self._sites.items()}
        rows = {site: float(counts[0].sum()) for site, counts in now.sites.items()}
        whole, all_usual = max(sum(rows.values()), 1.0), max(sum(usual.values()), 1.0)
        apart = [abs(rows.get(site, 0.0) / whole - usual.get(site, 0.0) / all_usual) for site in rows.keys() | usual]
        return sum(apart) / 2.0

    def _settle(self, site: str, counts: Counts) -> None:
        """Add a window to the first ones of a site."""
        known = self._sites.get(site)
        before = counts if known is None else [old + new for old, new in zip(known.before, counts, strict=True)]
        self._sites[site], self._seen[site] = _Stream(before, self.alike), self._seen.get(site, 0) + 1

    def _window(
        self, name: str, rows: int, found: Drift, span: int, sites: tuple[str, ...], names: list[tuple[str, str]]
    ) -> Window:
        clear = tuple(one for one in found.moved if one.p_value < found.level)
        since = ""
        if clear:
            since = self._all.since(names, clear[0])
        elif sites:
            since = name
        index = next((one.index for one in found.moved if one.of == "score"), 0.0)
        shown = clear[:_SHOWN] or found.moved[:1]
        return Window(name, rows, bool(clear or sites), found.p_value, span, since, found.columns, sites, shown, index)

    def summary(self) -> str:
        """Return a line for each window with drift, and one for all of them."""
        lines = [f"{len(self.windows)} windows, {sum(one.drifted for one in self.windows)} with drift"]
        for one in self.windows:
            if one.drifted:
                what = ", ".join([*one.columns[:_SHOWN], *(f"site {site}" for site in one.sites)]) or one.moved[0].of
                lines.append(f"  {one.name}: {what}, since {one.since} (p {one.p_value:.1g})")
        return printable("\n".join(lines))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the monitor to a folder: its reference, the counts that it keeps, and what it found."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        for number, step in enumerate((*self.before, self.model)):
            step.save(path / f"reference-{number}.fedspan", record=False)
        arrays: dict[str, Any] = {}
        streams = {"": self._all, **self._sites}
        for number, stream in enumerate(streams.values()):
            for i, counts in enumerate([stream.before, *(own for _, own in stream.last)]):
                arrays |= {f"{number}-{i}-{j}": own for j, own in enumerate(counts)}
        about = {
            "steps": len(self.before) + 1,
            "alpha": self.alpha,
            "settle": self.settle,
            "alike": self.alike,
            "seen": self._seen,
            "edges": self._edges.tolist(),
            "margin": self._all.margin,
            "mixes": {name: stream.mixes for name, stream in streams.items()},
            "streams": {name: [window for window, _ in stream.last] for name, stream in streams.items()},
            "windows": [asdict(window) for window in self.windows],
        }
        arrays["about"] = np.array(json.dumps(about))
        if self._view is not None:
            arrays |= {f"view {key}": value for key, value in self._view.items() if value is not None}
        temporary = path / "monitor.npz.new"
        with temporary.open("wb") as file:
            np.savez_compressed(file, **arrays)
        os.replace(temporary, path / "monitor.npz")

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> DriftMonitor:
        """Read what `save` wrote."""
        path = Path(folder)
        if not (path / "monitor.npz").is_file():
            raise InputError(f"{folder} is not the folder of a monitor: it has no monitor.npz")
        with damage_refused("folder of a monitor"):
            arrays = read_arrays(path / "monitor.npz")
            about = json_value(str(arrays["about"]), 2**26)
            steps = int(about["steps"])
        model = make_pipeline(*(load_model(path / f"reference-{number}.fedspan") for number in range(steps)))
        with damage_refused("folder of a monitor"):
            return cls._of(model, about, arrays)

    @classmethod
    def _of(cls, model: Any, about: dict[str, Any], arrays: dict[str, Any]) -> DriftMonitor:
        made = cls(model, **{name: about[name] for name in ("alpha", "settle", "alike")})
        made._edges = np.array(about["edges"], dtype=np.float64)
        if made._view is not None:
            made._view = {key: arrays.get(f"view {key}") for key in made._view}
        names = names_of(made.model, made._view)
        for number, (name, windows) in enumerate(about["streams"].items()):
            counts = [[arrays[f"{number}-{i}-{j}"] for j in range(len(names))] for i in range(len(windows) + 1)]
            stream = _Stream(counts[0], made.alike, list(zip(windows, counts[1:], strict=True)))
            stream.mixes = [float(mix) for mix in about["mixes"][name]]
            if name:
                made._sites[name] = stream
            else:
                stream.margin = float(about["margin"])
                made._all = stream
        made._seen = {name: int(seen) for name, seen in about["seen"].items()}
        made.windows = [_window_of(values) for values in about["windows"]]
        return made


def _summed(windows: list[Counts]) -> Counts:
    return [sum(own, np.zeros_like(own[0])) for own in zip(*windows, strict=True)]


def _window_of(values: dict[str, Any]) -> Window:
    moved = tuple(Comparison(**_typed(Comparison, one)) for one in values["moved"])
    return Window(**{**_typed(Window, values), "moved": moved})


def _typed(kind: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Return a file's values of a record's fields, each of its declared type; a tuple is one of texts."""
    types: dict[Any, Any] = {"str": str, "int": int, "float": float, "bool": bool}
    return {
        one.name: types.get(one.type, lambda texts: tuple(map(str, texts)))(values[one.name]) for one in fields(kind)
    }
