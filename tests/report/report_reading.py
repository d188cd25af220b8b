"""What the tests of the report share: records, models, and a reader that refuses pages that are not well formed."""

from __future__ import annotations

import base64
import json
from html.parser import HTMLParser
from typing import Any

import numpy as np

from fedspan.federation import Ending, Failure
from fedspan.federation.outcomes import EndingKind, FailureKind
from fedspan.federation.record import CallRecord, Metrics, RunRecord

VOID = {"meta", "wbr", "br", "hr", "img", "input", "link"}
FINISHED = Ending(EndingKind.FINISHED)
KINDS = {"f4": "<f4", "u1": "<u1", "u2": "<u2", "u4": "<u4"}


class Page(HTMLParser):
    """Tags with attributes, visible text, and the content of scripts, of a page whose tags must be balanced."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.html = html
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == [], f"never closed: {self._open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open, f"</{tag}> closes nothing"
        assert self._open[-1] == tag, f"</{tag}> closes <{self._open[-1]}>"
        self._open.pop()

    def handle_data(self, data):
        inside = self._open[-1] if self._open else ""
        if inside in self.raw:
            self.raw[inside].append(data)
        else:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).replace("\u202f", " ").split())

    @property
    def ids(self) -> list[str]:
        return [attrs["id"] for _, attrs in self.tags if "id" in attrs]

    def all(self, tag: str, kind: str | None = None) -> list[dict[str, str | None]]:
        return [a for t, a in self.tags if t == tag and (kind is None or kind in (a.get("class") or "").split())]

    def map_data(self) -> Any:
        return json.loads(next(text for text in self.raw["script"] if text.startswith("{")))


def unpacked(packed: dict[str, str]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(packed["data"]), dtype=KINDS[packed["kind"]])


def late(detail: str = "") -> Failure:
    return Failure(FailureKind.LATE, detail)


NO_REPLY = Failure(FailureKind.NO_REPLY)


def a_call(number: int, step: str, sites: list[str], *, turn=None, failed=None, down=10, up=20, seconds=0.5, **more):
    failed = failed or {}
    ok = tuple(site for site in sites if site not in failed)
    asked = tuple(sites)
    return CallRecord(
        number, step, turn, asked, ok, failed, dict.fromkeys(asked, down), dict.fromkeys(ok, up), seconds, **more
    )


def a_record(what: str = "FedPCA", sites: tuple[str, ...] = ("a", "b"), **more) -> RunRecord:
    return RunRecord(what, more.pop("settings", {}), more.pop("number", 0), more.pop("seed", 0), tuple(sites), **more)


def logging(values: list[dict[str, Any]], **more) -> RunRecord:
    record = a_record(**more)
    record.metrics += [Metrics(i, i, entry) for i, entry in enumerate(values)]
    return record


SITES = ["a", "b", "c"]


def two_runs() -> list[RunRecord]:
    first = a_record(
        "Scaler", SITES, calls=[a_call(0, "x.moments", SITES, down=5, up=100, seconds=0.25)], stopped=FINISHED
    )
    calls = [
        a_call(0, "x.start", SITES, down=1, up=2, seconds=0.5),
        a_call(1, "x.multiply", SITES, turn=0, failed={"b": late("by 3 s")}, down=1000, up=2000, seconds=1.0),
        a_call(
            2,
            "x.multiply",
            SITES,
            turn=1,
            failed={"b": late("by 12 s"), "c": NO_REPLY},
            down=1000,
            up=2000,
            seconds=1.0,
        ),
    ]
    second = a_record(
        "PCA",
        SITES,
        number=1,
        calls=calls,
        stopped=Ending(EndingKind.CONVERGED, "tol reached"),
        seed=77,
        settings={"tol": 0.5},
    )
    return [first, second]


def of_loops(loops: list[list[float]], between: list[int | None]) -> RunRecord:
    """Return a run with loops that log their losses; `between` are rounds of calls without losses after each loop."""
    record = a_record()
    for losses in loops:
        for turn, loss in enumerate(losses):
            record.calls.append(a_call(len(record.calls), "f", ["a"], turn=turn))
            record.metrics.append(Metrics(len(record.calls) - 1, turn, {"loss": loss}))
        record.calls += [a_call(len(record.calls) + i, "g", ["a"], turn=turn) for i, turn in enumerate(between)]
    return record


class Fitted:
    """A model with whatever attributes it is given."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)
