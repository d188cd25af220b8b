"""The record of a run: what was asked, who answered, what it cost and why it ended."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from fedspan.errors import InputError
from fedspan.federation.calls.call import AWAY
from fedspan.federation.privacy_spent import PrivacySpent

if TYPE_CHECKING:
    import pandas as pd

#: What a record says of a run that Ctrl-C ended.
INTERRUPTED = "interrupted by the user"


@dataclass(frozen=True)
class CallRecord:
    """One call. Bytes are those of the messages, by site; `replayed` calls were read from a journal.

    `how` says what the protocol wanted of the replies: ``"ask"`` (each of them), ``"sum"`` or ``"mean"``, with
    ``"secure "`` before it where a secure sum carried it. It is empty in records of older runs.
    """

    number: int
    step: str
    round: int | None
    asked: tuple[str, ...]
    answered: tuple[str, ...]
    failed: dict[str, str]
    bytes_down: dict[str, int]
    bytes_up: dict[str, int]
    seconds: float
    replayed: bool = False
    how: str = ""


@dataclass(frozen=True)
class Metrics:
    """What a protocol logged, and when."""

    call: int
    round: int | None
    values: dict[str, Any]


@dataclass
class RunRecord:
    """The record of one run.

    Attributes
    ----------
    what : str
        The estimator or protocol that ran.
    settings : dict
        Its parameters, as text.
    number, seed : int
        The run's number within its federation, and its seed.
    sites : tuple of str
        Who was there to be asked.
    calls : list of CallRecord
    metrics : list of Metrics
        What the protocol logged.
    stopped : str
        Why the run stopped, in words. Empty while it runs.
    privacy : PrivacySpent or None
        What the run has spent of the sites' privacy, where noise protects it.
    versions : dict of str to str
        Of Python and the packages at the coordinator when the run ended, with its kind of processor and its number of
        BLAS threads (see `fedspan.federation.versions`).
    policy : dict of str to str
        The federation's policy, as text.
    lenses : tuple of str
        Through which transforms the run saw the sites' rows, by name.
    conditions : str
        Which attacks and faults it rehearsed.

    A record of an older run has the last four empty.

    Examples
    --------
    >>> record = RunRecord("demo", {}, number=0, seed=0, sites=("a",))
    >>> record.metrics.append(Metrics(0, 0, {"loss": 0.5}))
    >>> record.metric("loss")
    [0.5]
    """

    what: str
    settings: dict[str, Any]
    number: int
    seed: int
    sites: tuple[str, ...]
    calls: list[CallRecord] = field(default_factory=list)
    metrics: list[Metrics] = field(default_factory=list)
    stopped: str = ""
    privacy: PrivacySpent | None = None
    versions: dict[str, str] = field(default_factory=dict)
    policy: dict[str, str] = field(default_factory=dict)
    lenses: tuple[str, ...] = ()
    conditions: str = ""

    @property
    def bytes_down(self) -> int:
        """Bytes sent to all sites."""
        return sum(sum(call.bytes_down.values()) for call in self.calls)

    @property
    def bytes_up(self) -> int:
        """Bytes received from all sites."""
        return sum(sum(call.bytes_up.values()) for call in self.calls)

    @property
    def seconds(self) -> float:
        """Seconds spent in calls."""
        return sum(call.seconds for call in self.calls)

    @property
    def failures(self) -> list[tuple[int, str, str]]:
        """Every failure as (call number, site, reason)."""
        return [(call.number, site, why) for call in self.calls for site, why in call.failed.items()]

    @property
    def absences(self) -> list[str]:
        """Who was away for a while, in words: in which calls, and when it answered again."""
        away = sorted({site for _, site, why in self.failures if why.startswith(AWAY)})
        return [sentence for site in away for sentence in _absences(site, self.calls)]

    def refuse(self, number: int, reasons: Mapping[str, str]) -> None:
        """Take note that replies to call `number`, which had been accepted, were refused by the protocol."""
        index = next(i for i in range(len(self.calls) - 1, -1, -1) if self.calls[i].number == number)
        call = self.calls[index]
        answered = tuple(site for site in call.answered if site not in reasons)
        self.calls[index] = replace(call, answered=answered, failed={**call.failed, **reasons})

    def metric(self, name: str) -> list[Any]:
        """Return all values logged under `name`, in order."""
        return [entry.values[name] for entry in self.metrics if name in entry.values]

    def summary(self) -> str:
        """Say in one line what the run did."""
        line = (
            f"{self.what}: {len(self.calls)} calls to {len(self.sites)} sites, {self.bytes_up:,} bytes up, "
            f"{self.bytes_down:,} down, {self.seconds:.2f} s"
        )
        failed = len(self.failures)
        spent = f"; privacy: {self.privacy.sentence()}" if self.privacy is not None else ""
        away = "".join(f"; {sentence}" for sentence in self.absences)
        return f"{line}{f', {failed} failed replies' if failed else ''}; {self.stopped or 'still running'}{spent}{away}"

    def to_frame(self) -> pd.DataFrame:
        """Return one row per call: who was asked, who failed and why, bytes, seconds, metrics logged after it."""
        try:
            import pandas as pd
        except ImportError:
            raise InputError("to_frame() needs pandas: install it with 'pip install fedspan[tables]'") from None
        rows = []
        for i, call in enumerate(self.calls):
            # What was logged before the first call stands with it.
            logged = [m.values for m in self.metrics if m.call == call.number or (i == 0 and m.call < call.number)]
            row: dict[str, Any] = {
                "call": call.number,
                "round": call.round,
                "step": call.step,
                "asked": len(call.asked),
                "answered": len(call.answered),
                "failed": "; ".join(f"{site}: {why}" for site, why in call.failed.items()),
                "bytes_down": sum(call.bytes_down.values()),
                "bytes_up": sum(call.bytes_up.values()),
                "seconds": call.seconds,
            }
            for name, value in ((name, value) for values in logged for name, value in values.items()):
                row[f"{name} (logged)" if name in row else name] = value
            rows.append(row)
        return pd.DataFrame(rows)

    def lines(self) -> list[str]:
        """Return the record as JSON Lines: the run, its calls and metrics, its end."""
        head = {
            "what": self.what,
            "settings": self.settings,
            "number": self.number,
            "seed": self.seed,
            "sites": self.sites,
            "policy": self.policy,
            "lenses": self.lenses,
            "conditions": self.conditions,
        }
        entries: list[tuple[str, Any]] = [("run", head), ("versions", self.versions)]
        entries += [("call", asdict(call)) for call in self.calls]
        entries += [("metrics", asdict(entry)) for entry in self.metrics]
        entries += [("privacy", self.privacy.values())] if self.privacy is not None else []
        entries += [("stopped", {"why": self.stopped})] if self.stopped else []
        return [json_line(kind, values) for kind, values in entries]

    @classmethod
    def from_lines(cls, lines: list[str]) -> RunRecord:
        """Read a record back from JSON Lines, in whatever order calls and metrics were written."""
        parsed = [json.loads(line) for line in lines if line.strip()]
        head = next(entry for entry in parsed if entry["kind"] == "run")
        record = cls(**{key: head[key] for key in ("what", "settings", "number", "seed")}, sites=tuple(head["sites"]))
        record.policy, record.conditions = head.get("policy", {}), head.get("conditions", "")
        record.lenses = tuple(head.get("lenses", ()))
        for entry in parsed:
            kind = entry.pop("kind")
            if kind == "call":
                entry["asked"], entry["answered"] = tuple(entry["asked"]), tuple(entry["answered"])
                record.calls.append(CallRecord(**entry))
            elif kind == "metrics":
                values = {k: float(v["float"]) if isinstance(v, dict) else v for k, v in entry["values"].items()}
                record.metrics.append(Metrics(entry["call"], entry["round"], values))
            elif kind == "versions":
                record.versions = entry
            elif kind == "privacy":
                record.privacy = PrivacySpent.of(entry)
            elif kind == "stopped":
                record.stopped = entry["why"]
            elif kind == "refused":
                record.refuse(entry["number"], entry["failed"])
        return record


def _absences(site: str, calls: list[CallRecord]) -> Iterator[str]:
    asked = [call for call in calls if site in call.asked]
    for missed, some in groupby(asked, lambda call: call.failed.get(site, "").startswith(AWAY)):
        numbers = [call.number for call in some]
        if missed:
            back = next((call.number for call in asked if call.number > numbers[-1]), None)
            which = f"calls {numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"call {numbers[0]}"
            yield f"site {site} was away in {which}" + ("" if back is None else f", and there again in call {back}")


def json_line(kind: str, values: Mapping[str, Any]) -> str:
    """Return one line of a record's file."""
    return json.dumps(strict_json({"kind": kind, **values}))


def strict_json(value: Any) -> Any:
    """Return `value` with NaN and infinity in words, because JSON has none for them."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, Mapping):
        return {str(key): strict_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict_json(item) for item in value]
    return value
