"""What the tests of the report share: records to draw, and a reader that refuses pages that are not well formed."""

from __future__ import annotations

import base64
import json
from html.parser import HTMLParser
from typing import Any

import numpy as np

from fedspan.federation.record import CallRecord, Metrics, RunRecord

VOID = {"meta", "wbr", "br", "hr", "img", "input", "link"}
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
