"""The record of a run: what was requested, which sites answered, what it cost and how it ended."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from hashlib import blake2b
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from fedspan.checks import damage_refused, first_of, json_value, needs_pandas, printable
from fedspan.federation.message_sizes import read, written
from fedspan.federation.notebook_html import fact_table
from fedspan.federation.outcomes import NOT_ENDED, Ending, Failure
from fedspan.federation.privacy_spent import PrivacySpent
from fedspan.federation.site.steps import dotted_name

if TYPE_CHECKING:
    import pandas as pd

_HOWS = ("ask", "sum", "mean", "merge")
#: Of runs and federations whose sites are not machines of their own.
SIMULATED = "Simulated: all sites were in one process."


@dataclass(frozen=True)
class CallRecord:
    """One call. Bytes are those of the messages, by site; `replayed` calls were read from a journal.

    `how` is what the protocol wanted of the replies: ``"ask"`` (each of them), ``"merge"`` (one reply made of all),
    ``"sum"`` or ``"mean"``, which a secure sum carried where `secure` is set.
    """

    number: int
    step: str
    round: int | None
    asked: tuple[str, ...]
    answered: tuple[str, ...]
    failed: dict[str, Failure]
    bytes_down: Mapping[str, int]
    bytes_up: Mapping[str, int]
    seconds: float
    replayed: bool = False
    how: str = "ask"
    secure: bool = False

    def values(self, sites: tuple[str, ...] = ()) -> dict[str, Any]:
        """Return the call as a record's file keeps it.

        What many sites did is a short line: names are left out where they are all `sites` of the run, or all that were
        requested. The size of each message is left out where all sizes are the same.
        """
        return {
            **vars(self),
            "asked": None if self.asked == sites else self.asked,
            "answered": None if self.answered == self.asked else self.answered,
            "failed": {site: failure.values() for site, failure in self.failed.items()},
            "bytes_down": written(self.bytes_down, self.asked),
            "bytes_up": written(self.bytes_up, self.answered),
        }

    @classmethod
    def of(cls, values: Mapping[str, Any], sites: tuple[str, ...]) -> CallRecord:
        """Return the call of a record's file, of a run with these `sites`."""
        asked = sites if values["asked"] is None else tuple(values["asked"])
        answered = asked if values["answered"] is None else tuple(values["answered"])
        down, up = read(values["bytes_down"], asked), read(values["bytes_up"], answered)
        whole, texts = [values["number"], *down.values(), *up.values()], [values["step"], *asked, *answered]
        whole += [] if values["round"] is None else [values["round"]]
        if values["how"] not in _HOWS or {type(values["secure"]), type(values["replayed"])} != {bool}:
            raise ValueError("a call has values of other types")
        if set(map(type, whole)) != {int} or set(map(type, texts)) != {str} or not math.isfinite(values["seconds"]):
            raise ValueError("a call has values of other types")
        failed = _failures(values["failed"])
        more = {"asked": asked, "answered": answered, "failed": failed, "bytes_down": down, "bytes_up": up}
        return cls(**{**values, **more})


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
        Its parameters, as plain values (see `plain`).
    number, seed : int
        The run's number within its federation, and its seed.
    sites : tuple of str
        The sites that could be requested.
    calls : list of CallRecord
    metrics : list of Metrics
        What the protocol logged.
    stopped : Ending
        How the run ended, in words, with a ``kind``. Empty while it runs.
    privacy : PrivacySpent or None
        What the run has spent of the sites' privacy, where noise protects it.
    versions : dict of str to str
        Of Python and the packages at the coordinator when the run ended, with its kind of processor and its number of
        BLAS threads (see `fedspan.federation.versions`).
    policy : dict
        The federation's policy, as plain values.
    transforms : tuple of str
        The ids of the transforms through which the run saw the sites' rows.
    conditions : str
        The attacks and faults that were rehearsed.
    simulated : bool
        Whether all sites were in this process.

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
    stopped: Ending = NOT_ENDED
    privacy: PrivacySpent | None = None
    versions: dict[str, str] = field(default_factory=dict)
    policy: dict[str, Any] = field(default_factory=dict)
    transforms: tuple[str, ...] = ()
    conditions: str = ""
    simulated: bool = False

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
    def failures(self) -> list[tuple[int, str, Failure]]:
        """Every failure as (call number, site, failure)."""
        return [(call.number, site, failure) for call in self.calls for site, failure in call.failed.items()]

    @property
    def absences(self) -> list[str]:
        """Sentences on the sites that were offline: in which calls, and when they answered again."""
        offline = sorted({site for _, site, failure in self.failures if failure.offline})
        return [sentence for site in offline for sentence in _absences(site, self.calls)]

    def reject(self, number: int, failures: Mapping[str, Failure]) -> None:
        """Note that the protocol rejected replies to call `number`, which had been accepted."""
        index = next(i for i in range(len(self.calls) - 1, -1, -1) if self.calls[i].number == number)
        call = self.calls[index]
        answered = tuple(site for site in call.answered if site not in failures)
        self.calls[index] = replace(call, answered=answered, failed={**call.failed, **failures})

    def metric(self, name: str) -> list[Any]:
        """Return all values logged under `name`, in order."""
        return [entry.values[name] for entry in self.metrics if name in entry.values]

    def summary(self) -> str:
        """Describe in one line what the run did."""
        line = (
            f"{self.what}: {len(self.calls)} calls to {len(self.sites)} sites, {self.bytes_up:,} bytes up, "
            f"{self.bytes_down:,} down, {self.seconds:.2f} s"
        )
        failed = len(self.failures)
        spent = f"; privacy: {self.privacy.sentence()}" if self.privacy is not None else ""
        offline = "".join(f"; {sentence}" for sentence in self.absences)
        ended = self.stopped or "still running"
        return printable(f"{line}{f', {failed} failed replies' if failed else ''}; {ended}{spent}{offline}")

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        return fact_table(f"Run of {self.what}", self.facts(), self.remark)

    def facts(self) -> list[tuple[str, object]]:
        """Return what the run did, by name."""
        found: list[tuple[str, object]] = [
            ("sites", f"{len(self.sites):,}: {first_of(self.sites, 8)}"),
            ("calls", f"{len(self.calls):,} in {self.seconds:.2f} s"),
            ("bytes", f"{self.bytes_up:,} up, {self.bytes_down:,} down"),
            ("ended", self.stopped or "still running"),
        ]
        if self.failures:
            found.append(("failed replies", f"{len(self.failures):,}"))
        if self.privacy is not None:
            found.append(("privacy", self.privacy.sentence()))
        return found

    @property
    def remark(self) -> str:
        """A sentence that all sites were simulated in one process, or nothing."""
        return SIMULATED if self.simulated and len(self.sites) > 1 else ""

    def to_frame(self) -> pd.DataFrame:
        """Return one row per call: requested and failed sites, bytes, seconds, metrics logged after it."""
        needs_pandas()
        import pandas as pd

        rows = []
        for i, call in enumerate(self.calls):
            # What was logged before the first call is shown with it.
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
        entries: list[tuple[str, Any]] = [("run", {name: getattr(self, name) for name in _HEAD})]
        entries.append(("versions", self.versions))
        entries += [("call", call.values(self.sites)) for call in self.calls]
        entries += [("metrics", vars(entry)) for entry in self.metrics]
        entries += [("privacy", self.privacy.values())] if self.privacy is not None else []
        entries += [("ended", self.stopped.values())] if self.stopped else []
        return [json_line(kind, values) for kind, values in entries]

    @classmethod
    def from_lines(cls, lines: list[str]) -> RunRecord:
        """Read a record back from JSON Lines, in whatever order calls and metrics were written, or refuse them."""
        with damage_refused("record of a run"):
            parsed = [json_value(line, _LONGEST_LINE) for line in lines if line.strip()]
            head = next(entry for entry in parsed if entry["kind"] == "run")
            record = cls(**{name: head[name] for name in _HEAD})
            record.sites, record.transforms = tuple(map(str, record.sites)), tuple(map(str, record.transforms))
            if not (isinstance(record.what, str) and isinstance(record.settings, dict)):
                raise ValueError("the run has values of other types")
            for entry in parsed:
                kind = entry.pop("kind")
                if kind == "call":
                    record.calls.append(CallRecord.of(entry, record.sites))
                elif kind == "metrics":
                    turn = None if entry["round"] is None else int(entry["round"])
                    values = {k: float(v["float"]) if isinstance(v, dict) else v for k, v in entry["values"].items()}
                    record.metrics.append(Metrics(int(entry["call"]), turn, values))
                elif kind == "versions":
                    record.versions = {str(name): str(version) for name, version in entry.items()}
                elif kind == "privacy":
                    record.privacy = PrivacySpent.of(entry)
                elif kind == "ended":
                    record.stopped = Ending.of(entry)
                elif kind == "rejected":
                    record.reject(entry["number"], _failures(entry["failed"]))
            return record


#: Most bytes of one line.
_LONGEST_LINE = 2**24
#: What the first line of a record's file holds.
_HEAD = ("what", "settings", "number", "seed", "sites", "policy", "transforms", "conditions", "simulated")


def _failures(values: Mapping[str, Any]) -> dict[str, Failure]:
    return {site: Failure.of(failure) for site, failure in values.items()}


def _absences(site: str, calls: list[CallRecord]) -> Iterator[str]:
    asked = [call for call in calls if site in call.asked]
    for missed, some in groupby(asked, lambda call: site in call.failed and call.failed[site].offline):
        numbers = [call.number for call in some]
        if missed:
            back = next((call.number for call in asked if call.number > numbers[-1]), None)
            which = f"calls {numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"call {numbers[0]}"
            yield f"site {site} was offline in {which}" + ("" if back is None else f" and back in call {back}")


def json_line(kind: str, values: Mapping[str, Any]) -> str:
    """Return one line of a record's file."""
    return json.dumps(strict_json({"kind": kind, **values}))


def strict_json(value: Any) -> Any:
    """Return `value` with NaN and infinity as ``{"float": "nan"}``, which JSON lacks."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, Mapping):
        return {str(key): strict_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict_json(item) for item in value]
    return value


def plain(value: Any) -> Any:
    """Return a parameter as JSON can keep it, the same in every process.

    Numbers, text, lists and dicts stay themselves. An object becomes its class and fields, a function its dotted name,
    an array its shape and digest.

    Examples
    --------
    >>> plain({"tol": 1e-3, "start": np.zeros(2), "names": ("a", "b")})["start"]["shape"]
    [2]
    """
    for kind in (bool, int, str):
        if isinstance(value, kind):  # also an instance of a subclass, such as an enumeration
            return kind(value)
    if value is None or isinstance(value, np.integer | np.bool_):
        return None if value is None else value.item()
    if isinstance(value, float | np.floating):
        return strict_json(float(value))
    if isinstance(value, np.ndarray):
        digest = blake2b(np.ascontiguousarray(value).tobytes(), digest_size=8).hexdigest()
        return {"class": "array", "shape": list(value.shape), "dtype": str(value.dtype), "digest": digest}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in (sorted(value, key=repr) if isinstance(value, set | frozenset) else value)]
    if isinstance(value, type) or hasattr(value, "__qualname__"):
        return {"name": dotted_name(value)}
    if is_dataclass(value):
        parameters = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
    else:
        parameters = value.get_params(deep=False) if hasattr(value, "get_params") else {}
    return {"class": dotted_name(type(value)), **({"fields": plain(parameters)} if parameters else {})}
